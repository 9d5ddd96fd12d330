"""Formats of instants: ISO 8601 with `Z` for people, epoch milliseconds for sort keys.

In memory, an instant is a timezone-aware `datetime` in UTC with millisecond precision.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MINUTE = timedelta(minutes=1)
CLOCKS_DIFFER = timedelta(seconds=5)
"""Maximum assumed difference between the clocks of watchers and executors."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)
"""The precision of instants."""


def to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (at - EPOCH) // MOMENT


def from_ms(ms: int) -> datetime:
    """The instant *ms* milliseconds after 1970, in UTC."""
    return EPOCH + ms * MOMENT


def cut(at: datetime) -> datetime:
    """*at* in UTC, rounded down to milliseconds, the precision of all stored instants."""
    if at.tzinfo is UTC and at.microsecond % 1000 == 0:
        return at
    return from_ms(to_ms(at))


def floor_minute(at: datetime) -> datetime:
    """The start of the UTC minute that contains *at*."""
    at = at if at.tzinfo is UTC else at.astimezone(UTC)
    return at.replace(second=0, microsecond=0)


def isoformat(at: datetime) -> str:
    """``2026-05-24T10:00:00Z``, with milliseconds only if they are not zero."""
    at = cut(at)
    text = at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def parse_instant(text: str) -> datetime:
    """Parse an ISO 8601 instant with an offset or ``Z``. Returns it in UTC.

    Raises:
        ValueError: *text* is not an ISO 8601 instant, or has no offset.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    try:
        return cut(at)
    except OverflowError as error:
        raise ValueError(f"{text!r} is beyond the years 1 to 9999 in UTC") from error


def in_seconds(duration: timedelta) -> str:
    """Format as whole seconds, rounded down: ``90 s``."""
    return f"{duration // timedelta(seconds=1)} s"
