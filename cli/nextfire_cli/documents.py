"""JSON documents as the command reads, sends and shows them."""

from collections.abc import Callable
from typing import Any

from nextfire.client.api import Page, up_to
from nextfire.client.models import Answer

Document = dict[str, Any]


def first(limit: int, ask: Callable[..., Page[Answer]]) -> tuple[list[Document], bool]:
    """A listing's first documents, at most *limit*, and whether there may be more."""
    items, more = up_to(limit, ask)
    return [each.document for each in items], more
