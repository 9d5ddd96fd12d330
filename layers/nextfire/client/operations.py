"""How the operations of the API are called: paths, headers, responses, pages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from nextfire.client.calls import Caller, segment
from nextfire.client.requests import without_none
from nextfire.responses.base import ApiResponse

_PAGE = 100
A = TypeVar("A", bound=ApiResponse)
Item = TypeVar("Item", bound=ApiResponse)
Item_co = TypeVar("Item_co", bound=ApiResponse, covariant=True)
Instant = datetime | str
"""An aware instant, or its ISO 8601 text."""


class Page(Protocol[Item_co]):
    """One page of a listing."""

    @property
    def items(self) -> Sequence[Item_co]: ...

    @property
    def cursor(self) -> str | None: ...


class Operations:
    """Base of the operations. `_caller`: sends the requests; `_sleep`, `_monotonic`: its clock."""

    _caller: Caller
    _sleep: Callable[[float], None]
    _monotonic: Callable[[], float]

    def _read(self, model: type[A], path: str, query: Mapping[str, object] | None = None) -> A:
        return model(*self._caller.call("GET", path, query=without_none(query or {})))

    def _post(
        self,
        model: type[A],
        path: str,
        body: Mapping[str, Any],
        idempotency_key: str | None,
        if_match: str | None = None,
    ) -> A:
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        if if_match is not None:
            headers["If-Match"] = if_match
        return model(*self._caller.call("POST", path, body=body, headers=headers))

    def _send(
        self,
        model: type[A],
        method: str,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str | None],
    ) -> A:
        sent_headers = without_none(headers)
        again = not sent_headers.keys() & {"If-Match", "If-None-Match"}
        return model(*self._caller.call(method, path, body=body, headers=sent_headers, again=again))

    def _delete(self, model: type[A], path: str, headers: Mapping[str, str | None]) -> A:
        return model(*self._caller.call("DELETE", path, headers=without_none(headers), again=False))


def pages(ask: Callable[..., Page[Item]]) -> Iterator[Item]:
    """Iterate over all items of a listing, page by page, with `limit` and `cursor`."""
    cursor = None
    while True:
        page = ask(limit=_PAGE, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if not cursor:
            return


def up_to(limit: int, ask: Callable[..., Page[Item]]) -> tuple[list[Item], bool]:
    """Return the first items of a listing, at most *limit*, and whether more may exist."""
    items: list[Item] = []
    cursor = None
    while len(items) < limit:
        page = ask(limit=min(_PAGE, limit - len(items)), cursor=cursor)
        items += page.items
        cursor = page.cursor
        if not cursor:
            break
    return items, bool(cursor)


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{segment(job_id)}"
