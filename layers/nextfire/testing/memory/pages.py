"""Cursors of the listings in memory."""

from __future__ import annotations

from nextfire.domain.errors import (
    InvalidInputError,
)

CURSOR = "after:"


def after_cursor(cursor: str) -> str:
    if not cursor.startswith(CURSOR):
        raise InvalidInputError("cursor", cursor, "not a cursor of this listing", "Use one of it.")
    return cursor.removeprefix(CURSOR)
