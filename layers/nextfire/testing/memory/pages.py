"""Pages of the listings in memory."""

from __future__ import annotations

from collections.abc import Collection

from nextfire.domain.errors import invalid_cursor

CURSOR = "after:"


def after_cursor(cursor: str) -> str:
    if not cursor.startswith(CURSOR):
        raise invalid_cursor(cursor)
    return cursor.removeprefix(CURSOR)


def page_of(
    ids: Collection[str], cursor: str | None, limit: int, *, newest_first: bool = False
) -> tuple[list[str], str | None]:
    """The first *limit* of *ids* after *cursor*, in order, and the cursor after these."""
    found = sorted(ids, reverse=newest_first)
    if cursor is not None:
        after = after_cursor(cursor)
        found = [each for each in found if (each < after if newest_first else each > after)]
    page = found[:limit]
    return page, CURSOR + page[-1] if len(found) > limit else None
