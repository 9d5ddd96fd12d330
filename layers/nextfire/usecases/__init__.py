"""Use cases of the system, one per module. They depend on ports only, never on AWS."""
