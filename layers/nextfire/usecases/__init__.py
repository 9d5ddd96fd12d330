"""What the system does, one module a use case. Speaks to ports; knows no AWS."""
