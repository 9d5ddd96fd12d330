"""Jobs of several tenants, and full queues."""

from __future__ import annotations

from typing import Any

from tests.world import World


def register_jobs(world: World, tenant: str, jobs: int, **fields: Any) -> None:
    """Register *jobs* jobs of *tenant* that are due at 12:00."""
    for number in range(jobs):
        world.register(f"{tenant}{number}", tenant=tenant, **fields)
