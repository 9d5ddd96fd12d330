"""A system with quotas, and jobs that meet them."""

from __future__ import annotations

from typing import Any

from nextfire.domain.quotas import TenantQuotas
from tests.world import World

ONCE: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


def quotas(**of_acme: Any) -> TenantQuotas:
    return TenantQuotas.model_validate({"tenants": {"acme": of_acme}})


def a_world(**of_acme: Any) -> World:
    world = World("11:59:30", quotas=quotas(**of_acme))
    world.tick()
    return world
