"""Schedules: their types, fields and bounds. `recurrence` computes their occurrences.

A schedule contains wall-clock times, instants or durations. Rules for clock changes:

- A wall-clock time that the clock skips (spring) fires once, at the change. All times that one
  change skips, and a time at the change itself, are one occurrence.
- A wall-clock time that occurs twice (autumn) fires the first time only; with `dst` EACH, it fires
  both times.
- A cron whose hour field starts with ``*`` follows elapsed time, like INTERVAL: it fires in both
  passes of a repeated hour, and a skipped hour has no occurrences.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from nextfire.dataclass import dataclass

MAX_DELAY = timedelta(days=366 * 5)
MIN_INTERVAL = timedelta(seconds=1)
MAX_DATES = 1000
MAX_EXCEPT_DATES = 100
MAX_RUNS = 100_000
MAX_JITTER = timedelta(hours=1)


class ScheduleType(StrEnum):
    """The format of `schedule`."""

    ONCE = "ONCE"  # an instant
    DELAY = "DELAY"  # a duration from `effective_from`
    CRON = "CRON"  # five fields
    INTERVAL = "INTERVAL"  # a duration, repeated from `startAt`, else from `effective_from`
    DATES = "DATES"  # a list of instants
    MANUAL = "MANUAL"  # no schedule
    AFTER = "AFTER"  # no schedule: runs follow those of other jobs


UNTIMED = frozenset({ScheduleType.MANUAL, ScheduleType.AFTER})
"""The types without a schedule: their jobs never have a FIRE entry."""


class Dst(StrEnum):
    """How often a wall-clock time of CRON or DATES fires if a clock change repeats it."""

    ONCE = "ONCE"
    EACH = "EACH"


EXAMPLES = {
    ScheduleType.ONCE: "2030-05-24T10:00:00Z",
    ScheduleType.DELAY: "PT10M",
    ScheduleType.CRON: "0 3 * * 1-5",
    ScheduleType.INTERVAL: "PT10M",
    ScheduleType.DATES: '["2030-05-24T10:00:00Z"]',
}
"""An example of `schedule` for each type that needs one."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: `expression` in the format of `type`, in `timezone` (an IANA name), effective
    after `effective_from` and limited to `start_at` … `end_at`, both included.

    `start_at` and `end_at` are ISO 8601. Without an offset they are wall-clock times in `timezone`;
    a time that occurs twice means the first one. On `except_dates`, local dates as ``YYYY-MM-DD``,
    it has no occurrences.
    """

    type: ScheduleType
    expression: str | tuple[str, ...] | None
    timezone: str
    effective_from: datetime
    start_at: str | None = None
    end_at: str | None = None
    dst: Dst = Dst.ONCE
    except_dates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An instant of a schedule. `at`: in UTC. `local`: with the UTC offset of its zone at that
    time. `note`: the effect of a clock change, if any.
    """

    at: datetime
    local: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """An occurrence and its due instant, which jitter can delay."""

    occurrence: Occurrence
    due_at: datetime
