"""The difference of two definitions of a job, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nextfire.dataclass import dataclass
from nextfire.domain.definition import JobDefinition

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ABSENT: Any = object()
"""Stands for the value of a field that is absent."""


@dataclass(frozen=True)
class FieldChange:
    """A changed field. `path`: e.g. ``retryPolicy.maxAttempts`` or ``labels["a.b"]``. `old`, `new`:
    JSON values; `ABSENT` without one.
    """

    path: str
    old: Any
    new: Any

    def document(self) -> dict[str, Any]:
        """Return the change as JSON: `old` and `new` are left out if they are absent."""
        values = {"old": self.old, "new": self.new}
        return {"field": self.path} | {n: each for n, each in values.items() if each is not ABSENT}


def changed_fields(old: JobDefinition, new: JobDefinition) -> list[FieldChange]:
    """Return the fields in which *new* differs from *old*, with defaults filled in. Objects are
    compared member by member, lists as a whole.
    """
    return [*_changes(old.document(), new.document(), "")]


def _changes(old: Any, new: Any, path: str) -> Iterator[FieldChange]:  # noqa: ANN401 — JSON
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(each for each in new if each not in old)]:
            inner = _inner(path, name)
            yield from _changes(old.get(name, ABSENT), new.get(name, ABSENT), inner)
    elif not _equal(old, new):
        yield FieldChange(path, old, new)


def _inner(path: str, name: str) -> str:
    if not _PLAIN.fullmatch(name):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _equal(one: object, other: object) -> bool:
    """Whether two JSON values are equal. Unlike in Python, ``1`` is not ``true``."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
