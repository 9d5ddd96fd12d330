"""The core of nextfire, shared by every function: domain, use cases, adapters."""
