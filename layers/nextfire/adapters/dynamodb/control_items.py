"""Items of the table `control`: a field list for each kind of item, and what is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from nextfire.adapters.dynamodb.fields import INSTANT, TEXT, Codec, Field, decoder, encoder
from nextfire.adapters.dynamodb.items import Item, from_item
from nextfire.dataclass import dataclass, field
from nextfire.domain.audit_pass import Audit
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import floor_minute, isoformat, to_ms
from nextfire.domain.ports.control import CLOCK_AHEAD, MIN_INSTANT, Lease, Takeover

_END = datetime(2100, 1, 1, tzinfo=UTC)
LAST_EPOCH = to_ms(_END)
"""Upper bound of epochs. No watcher writes a higher number."""

_INVALID = (ArithmeticError, LookupError, TypeError, ValueError)


def _count(value: object) -> int:
    """Check an integer that the conditions of this table can compare.

    Raises:
        ValueError: *value* is not an integer, or is out of the range that watchers write.
    """
    # `epoch = 1` is never true for 1.5, and numbers of more than 38 digits cannot be incremented.
    if not isinstance(value, Decimal) or not 0 <= value <= LAST_EPOCH or value % 1:
        raise ValueError(f"invalid count {value!r}: an integer from 0 to {LAST_EPOCH}")
    return int(value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


_COUNT = Codec("N", str, _count)
_STRING = Codec("S", str, _string)
_BOOLEAN = Codec("BOOL", bool, _boolean)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a shard: the earliest minute with a bucket that is still read."""

    minute: datetime
    epoch: int


@dataclass(frozen=True, slots=True)
class TakenRuns:
    """The number of runs of a tenant that were dispatched in a minute."""

    minute: datetime
    taken: int


ID: Field[Any] = Field("id", TEXT)
"""The key of all items."""
LEASE: tuple[Field[Lease], ...] = (
    Field("holder", _STRING, required=True),
    Field("epoch", _COUNT, required=True),
    Field("beat", _COUNT, required=True),
    Field("released", _BOOLEAN, unless=False),
    Field("idle", _BOOLEAN, unless=False),
    Field("groups", _COUNT),
    Field("renewed_at", INSTANT),
    Field("lost_at", INSTANT, get=lambda lease: lease.takeover and lease.takeover.lost_at),
    Field("taken_at", INSTANT, get=lambda lease: lease.takeover and lease.takeover.taken_at),
)
CURSOR: tuple[Field[Cursor], ...] = (
    Field("minute", INSTANT, required=True),
    Field("epoch", _COUNT, required=True),
)
TAKEN: tuple[Field[TakenRuns], ...] = (
    Field("minute", INSTANT, required=True),
    Field("taken", _COUNT, required=True),
)
AUDIT: tuple[Field[Audit], ...] = (
    Field("started_at", INSTANT, required=True),
    Field("since", INSTANT),
    Field("tenant", _STRING, get=lambda audit: audit.after and audit.after.tenant),
    Field("job_id", _STRING, get=lambda audit: audit.after and audit.after.job_id),
    Field("end_tenant", _STRING, get=lambda audit: audit.end and audit.end.tenant),
    Field("end_job_id", _STRING, get=lambda audit: audit.end and audit.end.job_id),
    Field("done", _BOOLEAN, required=True),
    Field("zones", _STRING),
    Field("zones_since", INSTANT),
)
CONTROL_TABLE: tuple[Field[Any], ...] = (ID, *LEASE, *CURSOR, *TAKEN, *AUDIT)

encode_lease, _lease_of = encoder(LEASE), decoder(LEASE)
encode_cursor, _cursor_of = encoder(CURSOR), decoder(CURSOR)
encode_taken, _taken_of = encoder(TAKEN), decoder(TAKEN)
encode_audit, _audit_of = encoder(AUDIT), decoder(AUDIT)


def lease_id(group: int) -> str:
    return f"lease#{group}"


def cursor_id(shard: int) -> str:
    return f"cursor#{shard}"


def taken_id(tenant: str) -> str:
    return f"runs#{tenant}"


def audit_id(part: int | None) -> str:
    """The id of the audit, or of its *part* in progress."""
    return "audit" if part is None else f"audit#{part}"


def encode_id(text: str) -> Item:
    return {ID.name: TEXT.attribute(text)}


@dataclass(frozen=True, slots=True)
class BrokenLease(Lease):
    """An item that does not decode as a lease. Its heartbeat is stale while `raw` is unchanged.

    It is replaced on condition that the item is still `raw`.
    """

    raw: Item = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokenAudit(Audit):
    """An item that does not decode as an audit.

    It counts as an audit that ended long ago, so the next one is due and starts from the beginning.
    It is replaced on condition that the item is still `raw`.
    """

    raw: Item = field(default_factory=dict)


def decode_lease(item: Mapping[str, Any]) -> Lease:
    try:
        fields = _lease_of(from_item(item))
        lost_at, taken_at = fields.pop("lost_at", None), fields.pop("taken_at", None)
        takeover = Takeover(lost_at, taken_at) if lost_at and taken_at else None
        return Lease(takeover=takeover, **fields)
    except _INVALID:
        return BrokenLease("", _epoch(item), 0, raw=dict(item))


def _epoch(item: Mapping[str, Any]) -> int:
    """The epoch of a broken lease; 0 if that is broken, too."""
    try:
        return _count(from_item(item)["epoch"])
    except _INVALID:
        return 0


def decode_cursor(item: Mapping[str, Any]) -> datetime | None:
    """The cursor's minute; None if *item* does not decode as a cursor."""
    try:
        minute = floor_minute(_cursor_of(from_item(item))["minute"])
    except _INVALID:
        return None
    return minute if MIN_INSTANT <= minute < _END else None


def decode_taken(item: Mapping[str, Any], minute: datetime) -> int | None:
    """Number of runs taken in *minute*; None if *item* does not hold a count of that minute."""
    try:
        values = from_item(item)
        stored = TakenRuns(**_taken_of(values))
    except _INVALID:
        return None
    # The condition compares the texts.
    sound = values["minute"] == isoformat(stored.minute)
    return stored.taken if sound and minute <= stored.minute <= minute + CLOCK_AHEAD else None


def decode_audit(item: Mapping[str, Any]) -> Audit:
    try:
        fields = _audit_of(from_item(item))
        keys = [
            [fields.pop(name) for name in names if name in fields]
            for names in (("tenant", "job_id"), ("end_tenant", "end_job_id"))
        ]
        after, end = (JobKey(*key) if key else None for key in keys)
        return Audit(after=after, end=end, **fields)
    except _INVALID:
        return BrokenAudit(MIN_INSTANT, done=True, raw=dict(item))
