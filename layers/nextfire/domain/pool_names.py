"""What a caller reads who names a pool that its tenant cannot use."""

from __future__ import annotations

from collections.abc import Collection

NO_POOL = "pool not found, or closed to your tenant"


def available(pools: Collection[str]) -> str:
    """The remedy for the name of a pool that is not one of *pools*, which the tenant may use."""
    if not pools:
        return "No pool is open to your tenant: ask the operator."
    return f"Available: {', '.join(sorted(pools))}."
