"""Occurrences that are missed in an outage of the watchers: policies, schedules, and the outage."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP
from tests.world import World

POLICY_NAMES = ["RUN_ALL", "RUN_LATEST", "SKIP"]
POLICIES = pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=POLICY_NAMES)
HOURLY: dict[str, Any] = {}
TEN_SECONDS: dict[str, Any] = {"type": "INTERVAL", "schedule": "PT10S"}
JITTERED = MINUTELY | {"jitterSec": 300}
BOUNDED = MINUTELY | {"maxRuns": 200}
ENDING = MINUTELY | {"endAt": "2026-05-24T15:30:00Z"}


def outage(world: World, *, until: str = "18:00:30") -> None:
    """Advance to *until* without watchers or workers, then start a new watcher."""
    world.at(until)
    world.new_watcher()


def tick_through_faults(world: World) -> None:
    """Tick four times and ignore failures of stores, then clear all faults."""
    for _ in range(4):
        with suppress(UnavailableError):
            world.tick()
        world.advance(seconds=1)
    world.faults.clear()
