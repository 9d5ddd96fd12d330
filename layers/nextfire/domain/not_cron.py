"""What to write instead of a text that does not have the form of a cron expression."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FIELDS = 5
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ONE_SHOT = frozenset({"@once", "@at", "at", "once"})
_INTERVAL = re.compile(r"p[0-9t].*|every|@every|[0-9]+(?:s|m|h|d)")


def instead(fields: Sequence[str], example: str) -> str:
    """The remedy for a text with these *fields*, in lower case. *example*: a cron expression."""
    first = fields[0] if fields else ""
    if _INSTANT.match(first) or first in _ONE_SHOT:
        return (
            "For one run at an instant, write a job with `type` ONCE, and the instant as its"
            " `schedule`. For example `2030-05-24T10:00:00Z`."
        )
    if _INTERVAL.fullmatch(first):
        return (
            "For an interval, write a job with `type` INTERVAL, and the duration as its"
            " `schedule`. For example `PT5M`."
        )
    five = "Give five: minute, hour, day of month, month, day of week"
    if len(fields) == _FIELDS + 1 and first.isdecimal():
        return f"{five}. For example, without its seconds: `{' '.join(fields[1:])}`."
    return f"{five}; seconds and years are not supported. For example `{example}`."
