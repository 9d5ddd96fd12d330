"""What to write instead of a text that does not have the five fields of a cron expression."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FIELDS = 5
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTERVAL = re.compile(r"p[0-9t].*|every|@every|[0-9]+(?:s|m|h|d)")


def instead(fields: Sequence[str]) -> str:
    """The remedy for a text with these *fields*, in lower case."""
    first = fields[0] if fields else ""
    if _INSTANT.match(first):
        return 'For one run at an instant write a job of type ONCE, with that as its "schedule".'
    if _INTERVAL.fullmatch(first):
        return 'For an interval write a job of type INTERVAL with a "schedule" such as PT5M.'
    five = "Give five: minute, hour, day of month, month, day of week"
    if len(fields) == _FIELDS + 1 and first.isdecimal():
        return f"{five}. Without its seconds it is `{' '.join(fields[1:])}`."
    return f"{five}; seconds and years are not supported."
