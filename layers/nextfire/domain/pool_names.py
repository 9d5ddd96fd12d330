"""The messages for a pool that the caller's tenant cannot use."""

from __future__ import annotations

from collections.abc import Collection

NO_POOL = "pool not found, or closed to your tenant"


def available(pools: Collection[str]) -> str:
    """The remedy; *pools*: those that the tenant may use."""
    if not pools:
        return "No pool is open to your tenant: ask the operator."
    return f"Available: {', '.join(sorted(pools))}."
