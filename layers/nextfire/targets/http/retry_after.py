"""Reads the header `Retry-After`: seconds, or an HTTP date (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(days=1)
"""Later instants are cut to this."""
_SECONDS = re.compile(r"[0-9]{1,18}")
_MAX_LENGTH = 64


def retry_at(headers: Iterable[tuple[str, str]], now: datetime) -> datetime | None:
    """Return the instant that the server asks for, after *now* and at most `LONGEST` later. None if
    the header is absent or invalid, or appears with different values.
    """
    values = {value.strip() for name, value in headers if name.lower() == "retry-after"}
    if len(values) != 1:
        return None
    at = _instant(values.pop(), now)
    return None if at is None or at <= now else min(at, now + LONGEST)


def _instant(text: str, now: datetime) -> datetime | None:
    if _SECONDS.fullmatch(text):
        return now + min(timedelta(seconds=min(int(text), 10**9)), LONGEST)
    if len(text) > _MAX_LENGTH:
        return None
    try:
        at = parsedate_to_datetime(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
