"""Item changes in the audit trail: who changed which item, without values.

A request stores the attribute `changed_by` in every item that it writes, so the change and its
audit record are one write. The value is JSON with `tenant`, `principal`, `operation`, `requestId`,
`sourceIp`, `at`, and `n`, which differs between two writes of the same request.
Other members are dropped, because anyone with write access to the table can add them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nextfire.dataclass import dataclass, field

CHANGED_BY = "changed_by"
"""The item attribute that identifies the request of the last write."""
MAX_TEXT = 300
"""Maximum length of a text from a request or an unreadable item, in characters."""
_MAX_STAMP = 8 * 1024
"""Maximum length of a `changed_by` that is parsed, in characters."""
_MAX_TEXT_OF_STAMP = 1024
_TEXTS = frozenset(
    {"tenant", "principal", "operation", "at", "requestId", "sourceIp", "idempotencyKey", "sha256"}
)
_NUMBERS = frozenset({"n", "status", "omitted"})
_RESOURCE = "resource"
_MAX_NAMES = 10
"""Maximum number of members of `resource` in the audit trail."""
_MAX_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class ItemChange:
    """One write to one item. `id` identifies the write: a repeated delivery has the same id,
    another write has a different one. `by`: the request that made the write; empty if it was not a
    request. `attributes`: names of the attributes that the write set, changed or removed.
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
    """Parse the value of `changed_by`. Returns its known members, with bounded values that have a
    canonical form, or `unreadable` with the beginning of *text* if it has no known member. Never
    raises: an exception would block the stream of the table.
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
    """*text* with its surrogates replaced, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode("utf-8")
