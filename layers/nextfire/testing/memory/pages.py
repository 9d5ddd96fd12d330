"""Cursors of the listings in memory."""

from __future__ import annotations

from nextfire.domain.errors import invalid_cursor

CURSOR = "after:"


def after_cursor(cursor: str) -> str:
    if not cursor.startswith(CURSOR):
        raise invalid_cursor(cursor)
    return cursor.removeprefix(CURSOR)
