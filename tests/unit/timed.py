"""Jobs with a schedule and parents."""

from __future__ import annotations

from typing import Any

HOURLY = "0 * * * *"


def cron(schedule: str, **edge: Any) -> dict[str, Any]:
    """A job with *schedule* after the job a."""
    return {"type": "CRON", "schedule": schedule, "after": [{"job": "a", **edge}]}
