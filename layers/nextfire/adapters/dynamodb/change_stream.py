"""Decodes DynamoDB stream records, as Lambda delivers them, into changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from nextfire.domain.change import CHANGED_BY, MAX_TEXT, ItemChange, read_changed_by

KEYS = "keys"
"""The table whose writes are all audit events, with or without an API request."""
_USAGE_ATTRIBUTES = frozenset({"last_used_on"})
"""Attributes that the authorizer writes to a key. They are not a change of the key."""


def changes_of(records: Iterable[Mapping[str, Any]], tables: Mapping[str, str]) -> list[ItemChange]:
    """The changes among *records*; see `change_of`."""
    found = (change_of(record, tables) for record in records)
    return [change for change in found if change is not None]


def change_of(record: Mapping[str, Any], tables: Mapping[str, str]) -> ItemChange | None:
    """The change in *record*; None if no API request made it.

    A request made the write if `changed_by` differs between the two images. Executors that write
    the item later do not change the attribute. In the table `keys` all writes are changes, except
    updates of a key's last use and removals by TTL.

    Args:
        record: A record with both images.
        tables: Maps the name of each table in AWS to its logical name.
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
        if table != KEYS or expired or {*attributes} <= _USAGE_ATTRIBUTES:
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
    """The logical name of the table of *record*."""
    # arn:aws:dynamodb:us-east-1:123456789012:table/NAME/stream/2026-05-24T10:00:00.000
    name = str(record["eventSourceARN"]).split(":", 5)[-1].split("/")[1]
    return tables.get(name, name)


def _text(value: Mapping[str, Any]) -> str:
    """The text of an attribute, of any length; for other types, their `str` form, truncated."""
    [content] = value.values()
    return content if isinstance(content, str) else str(content)[:MAX_TEXT]
