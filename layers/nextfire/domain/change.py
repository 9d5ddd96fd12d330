"""Changes of stored items as the audit trail sees them: who wrote what, without values.

A write that a request makes carries the attribute `changed_by` in the same item, so the change and
its audit record are one write. Its value is JSON: `tenant`, `principal`, `operation`, `requestId`,
`sourceIp`, `at`, and `n`, which differs between two writes of one request.
Other members are dropped: a writer of the table can put anything there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

CHANGED_BY = "changed_by"
"""The attribute of an item that says which request wrote it last."""
MAX_TEXT = 300
"""Characters that are kept of a text."""
_MAX_STAMP = 8 * 1024
"""Characters of a `changed_by` that is read."""
_MAX_TEXT_OF_STAMP = 1024
_TEXTS = frozenset(
    {"tenant", "principal", "operation", "at", "requestId", "sourceIp", "idempotencyKey", "sha256"}
)
_NUMBERS = frozenset({"n", "status", "omitted"})
_RESOURCE = "resource"
_MAX_NAMES = 10
"""Members of `resource` that are kept."""
_MAX_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class ItemChange:
    """One write to one item. `id` is unique to the write: a second delivery has the same id, a
    second write another. `by`: the request that wrote it; empty if no request did. `attributes`:
    the names of those that the write set, changed or removed.
    """

    id: str
    table: str
    kind: str
    item: Mapping[str, str]
    written_at: datetime
    by: Mapping[str, Any] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()

    def body(self, recorded_at: str) -> dict[str, Any]:
        """The change as an event of the audit chain."""
        return {
            "id": self.id,
            "table": self.table,
            "kind": self.kind,
            "item": {_encodable(name): _encodable(text) for name, text in self.item.items()},
            "attributes": [_encodable(name) for name in self.attributes],
            "by": dict(self.by) or None,
            "writtenAt": self.written_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "recordedAt": recorded_at,
        }


def read_changed_by(text: str) -> dict[str, Any]:
    """The request that `changed_by` names: its known members, with bounded values that have a
    canonical form. `unreadable`, with the beginning of *text*, if there are none. Never raises: an
    exception here stops the stream of the table.
    """
    try:
        found = json.loads(text) if len(text) <= _MAX_STAMP else None
    except (ValueError, RecursionError):
        found = None
    kept = _known_members(found) if isinstance(found, dict) else {}
    return kept or {"unreadable": _encodable(text[:MAX_TEXT])}


def _known_members(found: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in found.items():
        if name in _TEXTS and isinstance(value, str):
            kept[name] = _bounded(value)
        elif name in _NUMBERS and type(value) is int and 0 <= value < _MAX_NUMBER:
            kept[name] = value
        elif name == _RESOURCE and isinstance(value, dict):
            members = [*value.items()][:_MAX_NAMES]
            kept[name] = {_bounded(n): _bounded(v) for n, v in members if isinstance(v, str)}
    return kept


def _bounded(text: str) -> str:
    return _encodable(text[:_MAX_TEXT_OF_STAMP])


def _encodable(text: str) -> str:
    """*text* with surrogates, which UTF-8 cannot encode, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
