"""The current request. Each of its writes carries its description, for the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

from nextfire.domain.json_text import compact_json


class CurrentRequest:
    """The current request. *describe* is called on its first write."""

    def __init__(self, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._describe = describe
        self._described: Mapping[str, Any] | None = None
        self._writes = count(1)

    def text(self, **more: Any) -> str:  # noqa: ANN401 — any JSON
        """The value of `changed_by` for the next write, with *more* of it."""
        if self._described is None:
            self._described = self._describe()
        document = {**self._described, **more, "n": next(self._writes)}
        return compact_json(document)


_changing: ContextVar[CurrentRequest | None] = ContextVar("changing", default=None)


@contextmanager
def changing(describe: Callable[[], Mapping[str, Any]]) -> Iterator[CurrentRequest]:
    """Attribute all writes in this context to the request that *describe* describes."""
    request = CurrentRequest(describe)
    before = _changing.set(request)
    try:
        yield request
    finally:
        _changing.reset(before)


def changed_by(**more: Any) -> str | None:  # noqa: ANN401 — any JSON
    """The value of `changed_by` for the next write; None outside a request."""
    request = _changing.get()
    return None if request is None else request.text(**more)
