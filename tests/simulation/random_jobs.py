"""Random schedules and definitions of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.recurrence import check
from tests.builders import a_definition
from tests.simulation.callbacks import URLS
from tests.simulation.redrives import redrives

if TYPE_CHECKING:
    from tests.simulation.history import History

SCHEDULES: list[dict[str, Any]] = [
    {"type": "CRON", "schedule": "* * * * *"},
    {"type": "CRON", "schedule": "* * * * *"},
    {"type": "CRON", "schedule": "*/5 * * * *"},
    {"type": "CRON", "schedule": "7 * * * *"},
    {"type": "CRON", "schedule": "30 13 * * *", "timezone": "Europe/Berlin"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT15S"},
    {"type": "INTERVAL", "schedule": "PT45S"},
    {"type": "INTERVAL", "schedule": "PT7M"},
    {"type": "ONCE", "schedule": "2026-05-24T12:01:00Z"},
    {"type": "DELAY", "schedule": "PT40S"},
    {
        "type": "DATES",
        "schedule": [f"2026-05-24T{h}:{m}:00Z" for h in range(12, 16) for m in ("02", 10, 11, 40)],
    },
]
_MIDNIGHTS = [{"timezone": "Etc/GMT-12", "exceptDates": [f"2026-05-{day}"]} for day in (24, 25)]
"""Dates without occurrences; the clock shows midnight between them at 12:00 UTC."""
_EXCLUDING = 31
"""One history of this many has jobs with such dates; of each kind of history, as many."""
MOST = 0.7
_LIMITED = 0.4
"""Part of the jobs that limit their runs, in histories whose users redrive: what waits several
times is what they cancel first."""


def random_schedule(history: History) -> dict[str, Any]:
    return history.kernel.dice.choice(SCHEDULES)


def random_definition(history: History) -> JobDefinition:
    """A random definition."""
    dice = history.kernel.dice
    while True:
        misfire: dict[str, Any] = {"policy": dice.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}
        if dice.random() < 0.2:
            misfire["relevancyWindowSec"] = dice.choice([5, 90, 1_800])
        retries: dict[str, Any] = {"maxAttempts": dice.choice([1, 2, 3])}
        retries["initialDelayMs"] = dice.choice([1_000, 5_000])
        fields = {**random_schedule(history), "misfire": misfire, "retryPolicy": retries}
        if history.wide:
            fields |= _more(history, retries)
        for odds, more in (
            (0.4, {"overlap": dice.choice(["QUEUE", "SKIP", "REPLACE"])}),
            (0.2, {"jitterSec": dice.choice([5, 50])}),
            (0.2, {"maxRuns": dice.choice([1, 2, 7])}),
            (0.1, {"endAt": f"2026-05-24T{dice.choice([12, 13])}:33:00Z"}),
            (history.removing, {"target": {"handler": "report", "pool": "batch"}}),
            (0.2, {"timeoutSec": 30}),
            (0.3, {"priority": dice.choice(["LOW", "HIGH"])}),
        ):
            if dice.random() < odds:
                fields.update(more)
        if history.seed % _EXCLUDING == 3:
            fields.update(dice.choice([{}, *_MIDNIGHTS]))
        if redrives(history.seed) and dice.random() < _LIMITED:
            fields["maxParallel"] = dice.choice([1, 1, 2])
        if history.calls and dice.random() < MOST:
            pool = dice.choice(["default", "default", "batch"])
            fields["target"] = {"pool": pool, "http": {"url": dice.choice(URLS)}}
            if dice.random() < MOST:
                fields |= {"type": "INTERVAL", "schedule": "PT10S"}
        try:
            definition = a_definition(**fields)
            check(definition.schedule_from(history.kernel.clock.now()))
        except (InvalidInputError, ValueError):
            continue  # it would never fire
        return definition


def _more(history: History, retries: dict[str, Any]) -> dict[str, Any]:
    """Fields that only wide histories have: *retries* as a whole among them."""
    dice = history.kernel.dice
    if dice.random() < 0.3:
        retries = retries | {"retryOn": {"states": ["FAILED"]}}
    if dice.random() < 0.3:
        retries = retries | {"jitter": "FULL"}
    bounds = [{}, {}, {"jitterSec": 400}, {"maxRuns": 60}]
    return {"retryPolicy": retries, **dice.choice(bounds)}
