"""Items of the table `overview`: segments, and the head and the snapshot of each tenant.

The steps of an item are compressed columns: some 15 bytes for each, of which 8 are the random `uid`
of its job.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from nextfire.adapters.dynamodb.fields import INTEGER, TEXT, Codec, Field
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import MOMENT
from nextfire.domain.overview import Head, Segment, Step
from nextfire.domain.run import RunState

OVERVIEW_TABLE: tuple[Field[Any], ...] = (
    Field("log", TEXT, decoded=False),
    Field("place", TEXT, decoded=False),
    Field("steps", Codec("B", bytes, bytes), decoded=False),
    *(Field(name, INTEGER, decoded=False) for name in ("seen_ms", "written_ms", "expires_at")),
    Field("snapshot", TEXT, decoded=False),
    *(Field(name, INTEGER, decoded=False) for name in ("parts", "since_ms", "next_ms")),
    *(Field(name, INTEGER, decoded=False) for name in ("begins_ms", "folded_ms")),
)
"""All attributes of the table."""
HEAD = "head"
_FORMAT = 1
_MAX_BYTES = 16 * 1024 * 1024
_INVALID = (
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError),
    zlib.error,
)
_HEAD = ("parts", "since_ms", "next_ms", "begins_ms", "seen_ms", "folded_ms")


def pack(steps: Sequence[Step]) -> bytes:
    """Encode *steps*."""
    first = steps[0].at_ms if steps else 0
    scheduled, uids = [], []
    for step in steps:
        instant, _, uid = step.run_id.partition("-")
        scheduled.append(instant)
        uids.append(uid)
    columns: dict[str, Any] = {
        "format": _FORMAT,
        "first": first,
        "at": [step.at_ms - first for step in steps],
        "job": "\n".join(step.job_id for step in steps),
        "scheduled": "\n".join(scheduled),
        "uid": "\n".join(uids),
        "state": _column([step.state.value for step in steps]),
        "dispatch": _column([step.dispatch for step in steps]),
        "fence": _column([step.fence for step in steps]),
        "pool": _column([step.pool for step in steps]),
    }
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)


def unpack(packed: object) -> list[Step]:
    """Decode steps. *packed*: bytes, or base64, as the lean client returns them.

    Raises:
        UndecodableError: They are invalid.
    """
    try:
        data = b64decode(packed, validate=True) if isinstance(packed, str) else bytes(packed)  # type: ignore[call-overload]
        stream = zlib.decompressobj()
        columns = json.loads(stream.decompress(data, _MAX_BYTES))
        if not stream.eof:
            raise ValueError("truncated, or too long")
        if columns["format"] != _FORMAT:
            raise ValueError(f"unknown format {columns['format']!r}")
        count, first = len(columns["at"]), columns["first"]
        if not count:
            return []
        states = {value: RunState(value) for value in {*_values(columns["state"], count)}}
        instants, uids = columns["scheduled"].split("\n"), columns["uid"].split("\n")
        rows = zip(
            [first + at for at in columns["at"]],
            columns["job"].split("\n"),
            [f"{instant}-{uid}" for instant, uid in zip(instants, uids, strict=True)],
            [states[value] for value in _values(columns["state"], count)],
            _values(columns["dispatch"], count),
            _values(columns["fence"], count),
            _values(columns["pool"], count),
            strict=True,
        )
        return [*map(Step._make, rows)]
    except _INVALID as error:
        raise UndecodableError(f"steps do not decode: {type(error).__name__}: {error}") from error


def _expiry(at_ms: int, kept: timedelta) -> int:
    """`expires_at` of an item of *at_ms*, in epoch seconds."""
    return (at_ms + kept // MOMENT) // 1000


def _column(values: list[Any]) -> Any:
    """*values*, or the one value that all of them have."""
    return values[0] if values and len({*values}) == 1 else values


def _values(column: Any, count: int) -> list[Any]:
    return column if isinstance(column, list) else [column] * count


def partition(tenant: str, log: str) -> str:
    """The partition of a log. No tenant contains `#`."""
    return f"{tenant}#{log}"


def place(window_ms: int, segment_id: str = "") -> str:
    """The sort key of a segment."""
    return f"{window_ms:013d}#{segment_id}"


def encode_key(partition_key: str, sort_key: str) -> Item:
    return to_item({"log": partition_key, "place": sort_key})


def encode_segment(tenant: str, segment: Segment, kept: timedelta) -> tuple[Item, int]:
    """The item of *segment*, and the size of its steps in bytes."""
    steps = pack(segment.steps)
    item = encode_key(partition(tenant, segment.log), place(segment.window_ms, segment.id))
    item |= to_item(
        {
            "seen_ms": segment.seen_ms,
            "written_ms": segment.written_ms,
            "expires_at": _expiry(segment.window_ms, kept),
            "steps": steps,
        }
    )
    return item, len(steps)


def decode_segment(log: str, item: Item) -> Segment:
    """Decode the item of a segment of *log*.

    Raises:
        UndecodableError: It is invalid.
    """
    try:
        window, _, segment_id = item["place"]["S"].partition("#")
        seen, written = int(item["seen_ms"]["N"]), int(item["written_ms"]["N"])
        return Segment(log, int(window), segment_id, seen, written, unpack(item["steps"]["B"]))
    except _INVALID as error:
        raise UndecodableError(f"segment does not decode: {error}") from error


def encode_head(tenant: str, head: Head, kept: timedelta) -> Item:
    """The item of *head*."""
    values = {"snapshot": head.snapshot} | {name: getattr(head, name) for name in _HEAD}
    expires_at = _expiry(head.folded_ms, kept)
    return encode_key(partition(tenant, HEAD), HEAD) | to_item(values | {"expires_at": expires_at})


def decode_head(item: Item) -> Head:
    """Decode the item of a head.

    Raises:
        UndecodableError: It is invalid.
    """
    try:
        numbers = [int(item[name]["N"]) for name in _HEAD]
        return Head(item["snapshot"]["S"], *numbers)
    except _INVALID as error:
        raise UndecodableError(f"head does not decode: {error}") from error


def snapshot_items(
    tenant: str, head: Head, parts: Iterable[Sequence[Step]], kept: timedelta
) -> list[Item]:
    """The items of the snapshot of *head*."""
    expires_at = _expiry(head.folded_ms, kept)
    return [
        snapshot_key(tenant, head.snapshot, number)
        | to_item({"steps": pack(part), "expires_at": expires_at})
        for number, part in enumerate(parts)
    ]


def snapshot_key(tenant: str, snapshot: str, number: int) -> Item:
    return encode_key(partition(tenant, "snapshot"), f"{snapshot}#{number:06d}")
