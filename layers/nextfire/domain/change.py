"""Changes of stored items as the audit trail sees them: who wrote what, without values.

A write that a request makes carries the attribute `changed_by` in the same item, so the change and
its audit record are one write. Its value is JSON: `tenant`, `principal`, `operation`, `requestId`,
`sourceIp`, `at`, and `n`, which differs between two writes of one request.
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
            "item": dict(self.item),
            "attributes": list(self.attributes),
            "by": dict(self.by) or None,
            "writtenAt": self.written_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "recordedAt": recorded_at,
        }


def read_changed_by(text: str) -> dict[str, Any]:
    """The request that `changed_by` names; what does not decode is kept as `unreadable`."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        return {"unreadable": text[:MAX_TEXT]}
    return found
