"""Scripts: Python programs of the pool, in a sandbox."""
