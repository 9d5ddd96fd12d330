"""Cursors of listings: the last sort key of a page, encoded."""

from __future__ import annotations

import base64
import binascii
import re

from nextfire.domain.errors import invalid_cursor


def encode_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, pattern: re.Pattern[str]) -> str:
    """The sort key in *cursor*. Cursors hold no partition, so they cannot reach another tenant.

    Raises:
        InvalidInputError: *cursor* does not hold a sort key that matches *pattern*.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not pattern.fullmatch(text):
        raise invalid_cursor(cursor)
    return text
