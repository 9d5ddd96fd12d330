"""Pages of the listings in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from nextfire.domain.errors import invalid_cursor
from nextfire.domain.ports.pages import Page, Unreadable

CURSOR = "after:"
T = TypeVar("T")


def listed(
    items: Mapping[str, T],
    cursor: str | None,
    limit: int,
    *,
    broken: Collection[str],
    problem: str,
    newest_first: bool = False,
) -> Page[T]:
    """A page of *items* by their ids. Those that are *broken* are unreadable: *problem*."""
    page, more = page_of(items, cursor, limit, newest_first=newest_first)
    return Page(
        [items[each] for each in page if each not in broken],
        more,
        [Unreadable(each, problem) for each in page if each in broken],
    )


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
