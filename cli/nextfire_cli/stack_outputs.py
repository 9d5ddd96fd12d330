"""Names of the outputs of a deployed stack."""


def pascal(pool: str) -> str:
    """Return the name of *pool* as in the names of the outputs: `my-pool` is `MyPool`."""
    return "".join(part.capitalize() for part in pool.split("-"))
