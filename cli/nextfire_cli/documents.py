"""JSON documents as the command reads, sends and shows them."""

from collections.abc import Callable
from typing import Any

from nextfire.client.operations import Page, up_to
from nextfire.responses.base import ApiResponse

Document = dict[str, Any]


def first(limit: int, ask: Callable[..., Page[ApiResponse]]) -> tuple[list[Document], bool]:
    """The first documents of a listing, at most *limit*, and whether more may exist."""
    items, more = up_to(limit, ask)
    return [each.document for each in items], more
