"""Texts and styles for a terminal."""

import re
import textwrap
from collections.abc import Iterable
from datetime import datetime, timedelta

from rich.text import Text

from nextfire_cli.documents import Document
from nextfire_cli.escaping import escaped

_STYLES = {
    "ACTIVE": "green",
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "PENDING": "yellow",
    "PAUSED": "yellow",
    "OPEN": "red",
    "UNREADABLE": "bold red",
    "DEAD": "bold red",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "WORKER_LOST": "red",
}
_EXECUTION_ID = re.compile(r"[A-Za-z0-9_-]+\.[0-9]{8}T[0-9]{9}Z-[a-z0-9]+")
_UNITS = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def output(text: str) -> Text:
    """Output of a script, with its lines and tabs."""
    return Text(escaped(text.rstrip("\n"), keep="\n\t"))


def state(name: str | None) -> Text:
    """A state or outcome in its colour."""
    return Text(escaped(name or ""), _STYLES.get(name or "", "dim"))


def span(length: timedelta) -> str:
    """``31 ms``, ``1.25 s``, ``2 m 05 s``, ``3 h 10 m``, ``2 d 04 h``; with a sign if negative."""
    if length < timedelta():
        return f"-{span(-length)}"
    second, minute, hour, day = _UNITS
    if length < second:
        return f"{length // timedelta(milliseconds=1)} ms"
    if length < minute:
        return f"{length / second:.2f} s"
    if length < hour:
        return f"{length // minute} m {length % minute // second:02} s"
    if length < day:
        return f"{length // hour} h {length % hour // minute:02} m"
    return f"{length // day} d {length % day // hour:02} h"


def between(document: Document, start: str, end: str) -> str:
    """The time from the field *start* to the field *end*; empty if one is absent."""
    if start not in document or end not in document:
        return ""
    return span(datetime.fromisoformat(document[end]) - datetime.fromisoformat(document[start]))


def late(run: Document, field: str) -> str:
    """The time from the scheduled instant to *field*, e.g. ``+31 ms``; empty after an earlier
    attempt. A run that waited without an attempt was dispatched again, and is late.
    """
    begun = {attempt.get("startedAt") for attempt in run.get("attempts", ())}
    if run.get("attempt", 1) > 1 or begun - {None, run.get("startedAt")}:
        return ""
    text = between(run, "scheduledAt", field)
    return text if text.startswith("-") else text and f"+{text}"


def clock(document: Document, field: str) -> str:
    """The time of day of *field*, to the millisecond; empty if it is absent."""
    if field not in document:
        return ""
    return datetime.fromisoformat(document[field]).time().isoformat(timespec="milliseconds")


def minute(at: str | None) -> str:
    return f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M:%S}" if at else ""


def next_to(document: Document, field: str, text: str) -> str | None:
    """The value of *field* with *text* next to it; None if the field is absent."""
    if field not in document:
        return None
    return f"{document[field]}  ({text})" if text else str(document[field])


def suffixed(value: object | None, suffix: str) -> str | None:
    return None if value is None else f"{value}{suffix}"


def prefixed(prefix: str, value: str | None) -> str:
    return f"{prefix}{value}" if value else ""


def with_reason(identity: str, *reasons: str | None) -> Text:
    """An id, and below it *reasons*, wrapped to its width."""
    below = "".join(f"\n{line}" for line in indented(reasons, len(identity)))
    return Text(escaped(identity)).append(below, "dim")


def indented(reasons: Iterable[str | None], width: int) -> list[str]:
    """The lines of *reasons*, wrapped to *width*, or to a readable width that is more."""
    lines: list[str] = []
    for reason in map(escaped, filter(None, reasons)):
        # Ids of other executions stay whole, so that they can be copied.
        ids = map(len, _EXECUTION_ID.findall(reason))
        wrapped = textwrap.wrap(reason, width=max(width - 2, 38, *ids), break_on_hyphens=False)
        lines += (f"  {line}" for line in wrapped)
    return lines
