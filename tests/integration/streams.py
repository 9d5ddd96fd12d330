"""DynamoDB streams for tests: differences between two reads of the tables, as stream records."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from tests.integration.deployment import Deployment

Items = dict[tuple[str, str], dict[str, Any]]
_KEYS = {
    "jobs": ("tenant", "job_id"),
    "runs": ("job", "run_id"),
    "keys": ("tenant", "key_id"),
    "requests": ("request",),
}


def record(
    table: str, old: dict[str, Any] | None, new: dict[str, Any] | None, *, event_id: str, at: float
) -> dict[str, Any]:
    """A stream record as Lambda delivers it."""
    kind = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    item: dict[str, Any] = new or old or {}
    stream = {
        "ApproximateCreationDateTime": at,
        "Keys": {name: item[name] for name in _KEYS[table] if name in item},
        **({"NewImage": new} if new else {}),
        **({"OldImage": old} if old else {}),
        "SequenceNumber": event_id,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    arn = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/2026-05-24T00:00:00.000"
    return {
        "eventID": event_id,
        "eventName": kind,
        "eventSource": "aws:dynamodb",
        "eventSourceARN": arn,
        "dynamodb": stream,
    }


@dataclass
class Streams:
    """The streams of the tables of *system*."""

    system: Deployment
    _ids: Any = field(default_factory=lambda: count(1))
    _before: Items = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = self._items()

    def records(self, at: datetime) -> list[dict[str, Any]]:
        """The writes since the last call, with the time *at*."""
        before, self._before = self._before, self._items()
        return [
            record(
                key[0],
                before.get(key),
                self._before.get(key),
                event_id=f"write-{next(self._ids)}",
                at=at.timestamp(),
            )
            for key in sorted({*before, *self._before})
            if before.get(key) != self._before.get(key)
        ]

    def _items(self) -> Items:
        found: Items = {}
        for table, keys in _KEYS.items():
            pages = self.system.database.get_paginator("scan").paginate(
                TableName=getattr(self.system, f"{table}_table")
            )
            for page in pages:
                for item in page["Items"]:
                    key = "/".join(item[name]["S"] for name in keys)
                    found[table, key] = item
        return found
