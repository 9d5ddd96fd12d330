"""Records of DynamoDB streams, as Lambda delivers them, read as changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from nextfire.domain.change import CHANGED_BY, MAX_TEXT, ItemChange, read_changed_by

KEYS = "keys"
"""The table of which every write is an event, with or without a request."""
_BY_USE = frozenset({"last_used_on"})
"""What the authorizer writes to a key: no change of it."""


def changes_of(records: Iterable[Mapping[str, Any]], tables: Mapping[str, str]) -> list[ItemChange]:
    """The changes among *records*; see `change_of`."""
    found = (change_of(record, tables) for record in records)
    return [change for change in found if change is not None]


def change_of(record: Mapping[str, Any], tables: Mapping[str, str]) -> ItemChange | None:
    """The change in *record*; None: no request made it.

    A write is a request's if its `changed_by` differs from the one before. An executor that writes
    the item later leaves the attribute as it is. Of the table `keys` all writes are changes except
    for the note of a key's last use and the removal after its time.

    Args:
        record: A record with both images.
        tables: What the tables are called here, by the names that they have in AWS.
    """
    stream = record["dynamodb"]
    new, old = stream.get("NewImage") or {}, stream.get("OldImage") or {}
    table = table_of(record, tables)
    attributes = sorted(
        name for name in {*new, *old} - {CHANGED_BY} if new.get(name) != old.get(name)
    )
    by = new.get(CHANGED_BY)
    if by == old.get(CHANGED_BY) or by is None:
        expired = record.get("userIdentity", {}).get("principalId") == "dynamodb.amazonaws.com"
        if table != KEYS or expired or {*attributes} <= _BY_USE:
            return None
        by = None
    return ItemChange(
        id=str(record["eventID"]),
        table=table,
        kind=str(record["eventName"]),
        item={name: _text(value) for name, value in sorted(stream["Keys"].items())},
        written_at=datetime.fromtimestamp(float(stream["ApproximateCreationDateTime"]), UTC),
        by={} if by is None else read_changed_by(_text(by)),
        attributes=tuple(attributes),
    )


def table_of(record: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """What the table of *record* is called here."""
    # arn:aws:dynamodb:us-east-1:123456789012:table/NAME/stream/2026-05-24T10:00:00.000
    name = str(record["eventSourceARN"]).split(":", 5)[-1].split("/")[1]
    return tables.get(name, name)


def _text(value: Mapping[str, Any]) -> str:
    """The text of an attribute, however long; of one that is not a text something like it."""
    [content] = value.values()
    return content if isinstance(content, str) else str(content)[:MAX_TEXT]
