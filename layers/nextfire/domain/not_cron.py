"""What to write instead of a text that does not have the form of a cron expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_FIELDS = 5
_GIVE = "Give five: minute, hour, day of month, month, day of week"
_INSTANT = re.compile(r"(?:at\()?[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ONE_SHOT = frozenset({"@once", "@at", "at", "once"})
_INTERVAL = re.compile(r"p[0-9t].*|every|@every|[0-9]+(?:s|m|h|d)|rate\(.*")
_ZONE = re.compile(r"(?:cron_)?tz=.*")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(rf"[*?0-9l][-*?0-9,#/lw]*|(?:{'|'.join(_DAYS)})(?![a-z])[-a-z0-9,#/]*")
_FROM_ONE = re.compile(r"(?<![#/0-9])[1-7](?![0-9])")
"""A day of the week where Sunday is 1."""


def instead(fields: Sequence[str], example: str, works: Callable[[str], bool]) -> str:
    """The remedy for a text with these *fields*, in lower case. *example*: a cron expression.
    *works*: whether a text is one.
    """
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
    hint, meant = _meant(fields)
    if meant and works(meant):
        return f"{hint} `{meant}`."
    return f"{_GIVE}; seconds and years are not supported. For example `{example}`."


def _meant(fields: Sequence[str]) -> tuple[str, str]:
    """What other schedulers mean by *fields*, as a cron expression; empty if unknown."""
    if fields and _ZONE.fullmatch(fields[0]):
        return "Give the time zone as `timezone`. For example, without it:", " ".join(fields[1:])
    named = bool(fields) and fields[0].startswith("cron(")
    if named:
        fields = " ".join(fields).removeprefix("cron(").removesuffix(")").split()
    if len(fields) <= _FIELDS:
        return "", ""
    if not _PART.fullmatch(fields[_FIELDS]):
        hint = "A command is not part of a schedule: write a script. For example, without it:"
        return hint, " ".join(fields[:_FIELDS])
    if named or "?" in (fields[2], fields[4]):  # EventBridge: the last one is a year
        return _numbered_from_one(fields[:_FIELDS])
    if "?" in (fields[3], fields[5]):  # Quartz: the first one is seconds
        return _numbered_from_one(fields[1 : _FIELDS + 1])
    if len(fields) == _FIELDS + 1 and fields[0].isdecimal():
        return f"{_GIVE}. For example, without its seconds:", " ".join(fields[1:])
    return "", ""


def _numbered_from_one(five: Sequence[str]) -> tuple[str, str]:
    *others, week = ("*" if each == "?" else each for each in five)
    week = _FROM_ONE.sub(lambda day: _DAYS[int(day[0]) - 1], week)
    hint = f"{_GIVE} (0 is Sunday), and `*` for `?`. For example, in this case:"
    return hint, " ".join([*others, week])
