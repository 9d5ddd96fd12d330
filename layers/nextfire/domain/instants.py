"""Instants as they are written: ISO 8601 with `Z` for people, epoch milliseconds for sort keys.

Inside, an instant is an aware `datetime` in UTC, cut to milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MINUTE = timedelta(minutes=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (at - _EPOCH) // _MILLISECOND


def from_ms(ms: int) -> datetime:
    """The instant *ms* milliseconds after 1970, in UTC."""
    return _EPOCH + ms * _MILLISECOND


def cut(at: datetime) -> datetime:
    """*at* in UTC, rounded down to the millisecond, the resolution of every stored instant."""
    if at.tzinfo is UTC and at.microsecond % 1000 == 0:
        return at
    return from_ms(to_ms(at))


def floor_minute(at: datetime) -> datetime:
    """The beginning of the UTC minute that holds *at*."""
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def isoformat(at: datetime) -> str:
    """``2026-05-24T10:00:00Z``, with milliseconds only where there are any."""
    at = cut(at)
    text = at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def parse_instant(text: str) -> datetime:
    """The instant that *text* (ISO 8601 with an offset or ``Z``) names, in UTC.

    Raises:
        ValueError: *text* is no ISO 8601 instant, or has no offset.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return cut(at)
