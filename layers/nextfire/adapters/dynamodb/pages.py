"""Pages of listings: decoded items, those that do not decode, and the cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from nextfire.adapters.dynamodb.cursors import encode_cursor
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ports.pages import Page, Unreadable

T = TypeVar("T")


def decode_all(
    items: Iterable[Item], decode: Callable[[Item], T], identity: Callable[[Item], str]
) -> tuple[list[T], list[Unreadable]]:
    """*decode* all *items*; list those that do not decode, by their *identity*."""
    found: list[T] = []
    unreadable: list[Unreadable] = []
    for item in items:
        try:
            found.append(decode(item))
        except UndecodableError as error:
            unreadable.append(Unreadable(identity(item), str(error)))
    return found, unreadable


def answered(answer: Mapping[str, Any], decode: Callable[[Item], T], sort_key: str) -> Page[T]:
    """The page in the *answer* to a query. *sort_key*: the attribute that identifies an item."""
    found, unreadable = decode_all(answer["Items"], decode, lambda item: str(item[sort_key]["S"]))
    last = answer.get("LastEvaluatedKey")
    return Page(found, encode_cursor(last[sort_key]["S"]) if last else None, unreadable)


def limited(
    items: Sequence[Item],
    limit: int,
    decode: Callable[[Item], T],
    sort_key: str,
    identity: Callable[[str], str] = lambda name: name,
) -> Page[T]:
    """The page of the first *limit* of *items*: those found with a limit of one more. *sort_key*:
    the attribute that the cursor contains, and from which *identity* derives the id of an item.
    """

    def name_of(item: Item) -> str:
        return str(item[sort_key]["S"])

    shown = items[:limit]
    found, unreadable = decode_all(shown, decode, lambda item: identity(name_of(item)))
    more = encode_cursor(name_of(shown[-1])) if len(items) > limit else None
    return Page(found, more, unreadable)
