"""Releases of the time zone database that disagree about a zone, for processes side by side."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from nextfire.domain import audit_pass, zone_moves, zones
from nextfire.domain.definition import JobDefinition
from nextfire.domain.schedule import Schedule

MOVED = "Europe/Berlin"
"""The zone whose rules differ between the releases."""
OLD, LATER, EARLIER = "2026a", "2026b", "2026c"
RULES = {OLD: "Asia/Tehran", LATER: "Etc/GMT-3", EARLIER: "Etc/GMT-4"}
"""The zone whose rules `MOVED` has in each release: UTC+3:30 at first. With `LATER` (UTC+3) local
times come half an hour later, with `EARLIER` (UTC+4) half an hour earlier.
"""


def disagree(patch: pytest.MonkeyPatch, release: Callable[[], str]) -> None:
    """From now on `MOVED` has the rules of the release that *release* returns."""
    schedule_from = JobDefinition.schedule_from

    def of_release(definition: JobDefinition, effective_from: datetime) -> Schedule:
        if definition.timezone == MOVED:
            definition = definition.model_copy(update={"timezone": RULES[release()]})
        return schedule_from(definition, effective_from)

    patch.setattr(JobDefinition, "schedule_from", of_release)
    for module in (zones, zone_moves, audit_pass):
        patch.setattr(module, "release", release)
