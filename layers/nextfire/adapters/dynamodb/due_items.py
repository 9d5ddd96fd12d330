"""Items of the table `due`: its field list, and what is made from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

from nextfire.adapters.dynamodb.fields import (
    EXECUTORS,
    FLAG,
    INSTANT,
    INTEGER,
    MILLISECONDS,
    TEXT,
    Codec,
    Field,
    member_of,
)
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.due import (
    NORMAL_RANK,
    BackfillEntry,
    BrokenEntry,
    DispatchEntry,
    DueEntry,
    FireEntry,
    ResumeEntry,
    Slot,
    StoredEntry,
)
from nextfire.domain.ids import JOB_ID, TENANT, UID, JobKey, RunKey
from nextfire.domain.instants import from_ms
from nextfire.domain.run import Trigger
from nextfire.domain.zones import ZoneReading

_TENANT, _JOB_ID = "job.tenant", "job.job_id"

KEY: tuple[Field[Slot], ...] = (
    Field("bucket", TEXT, EXECUTORS),
    Field("entry", TEXT, EXECUTORS, part="sort_key"),
)
QUARANTINE_BUCKET = "quarantine"
"""The bucket of quarantined items."""
_KIND: Field[Any] = Field("kind", TEXT, EXECUTORS)
_COMMON: tuple[Field[Any], ...] = (
    Field("tenant", TEXT, EXECUTORS, part=_TENANT, required=True),
    Field("job_id", TEXT, EXECUTORS, part=_JOB_ID, required=True),
    Field("uid", TEXT, EXECUTORS, required=True),
    Field("rank", INTEGER, EXECUTORS, unless=NORMAL_RANK),
    Field("held", FLAG, EXECUTORS, unless=False),
)
_ORDINAL: Field[Any] = Field("ordinal", INTEGER, unless=1)
_SECOND = timedelta(seconds=1)


def _reading(text: str) -> ZoneReading:
    release, _, seconds = text.partition(" ")
    return ZoneReading(release, int(seconds) * _SECOND)


_READING = Codec("S", lambda read: f"{read.release} {read.offset // _SECOND}", _reading)
"""The release of the time zone database, a space, the UTC offset in seconds: `2025b 7200`."""
_FIRE: tuple[Field[FireEntry], ...] = (
    Field("version", INTEGER, required=True),
    Field("occurs_at", MILLISECONDS, part="occurrence"),
    _ORDINAL,
    Field("zones", _READING, part="reading"),
)
_DISPATCH: tuple[Field[DispatchEntry], ...] = (
    Field("run_id", TEXT, EXECUTORS, required=True),
    Field("dispatch", INTEGER, EXECUTORS, required=True),
    Field("pool", TEXT, EXECUTORS, required=True),
    Field("exclusive", FLAG, EXECUTORS, unless=False),
    Field("trigger", member_of(Trigger), EXECUTORS, unless=Trigger.SCHEDULE),
    Field("counted", FLAG, EXECUTORS, unless=False),
)
_BACKFILL: tuple[Field[BackfillEntry], ...] = (
    Field("request", TEXT, required=True),
    _ORDINAL,
)
ENTRY: tuple[Field[Any], ...] = (_KIND, *_COMMON, *_FIRE, *_DISPATCH, *_BACKFILL[:1])
"""The attributes of an entry, without its key. Executors write dispatch entries only: theirs do not
suffice for a FIRE or BACKFILL entry."""
QUARANTINE: tuple[Field[Any], ...] = (
    Field("error", TEXT),
    Field("quarantined_at", INSTANT),
)
"""Set on entries that do not decode."""
DUE_TABLE: tuple[Field[Any], ...] = (*KEY, *ENTRY, *QUARANTINE)


class _Kind:
    """A kind of entry: its type, its attributes, and their parts that encoding and decoding use.
    Both are done for each run, and decoding on every poll: so nothing is computed twice.
    """

    def __init__(self, entry_type: type[Any], *fields: Field[Any]) -> None:
        self.type = entry_type
        self.values = attrgetter(*(each.field for each in fields))
        self.rows = [(e.name, e.codec.kind, e.codec.encode, e.unless) for e in fields]
        self.required = [(each.name, each.codec.kind) for each in fields if each.required]
        self.optional = [(each.name, each.codec.kind) for each in fields if not each.required]
        in_order = sorted(fields, key=lambda each: not each.required)
        self.arguments = [(each.field, each.codec.decode) for each in in_order]


_KINDS = {
    "FIRE": _Kind(FireEntry, *_COMMON, *_FIRE),
    "RETRY": _Kind(DispatchEntry, *_COMMON, *_DISPATCH),
    "RESUME": _Kind(ResumeEntry, *_COMMON),
    "BACKFILL": _Kind(BackfillEntry, *_COMMON, *_BACKFILL),
}
"""Maps the stored kind to the type of entry and its attributes. Stored items and older versions use
these texts, so they must not change.
"""
_NAMES = {kind.type: name for name, kind in _KINDS.items()}
_UNKNOWN_KIND_KEY = re.compile(rf"[0-9]{{13}}#{UID.pattern}#(?![FRPB]\b)[A-Z]")


def encode_key(slot: Slot) -> Item:
    return {"bucket": {"S": slot.bucket}, "entry": {"S": slot.sort_key}}


def entry_item(entry: DueEntry, now: datetime, shards: int) -> Item:
    """*entry* as the item that a writer at *now* stores."""
    return encode_entry(entry, Slot(entry.bucket(now, shards), entry.sort_key))


def encode_entry(entry: DueEntry, slot: Slot) -> Item:
    name = _NAMES[type(entry)]
    kind = _KINDS[name]
    item = {"bucket": {"S": slot.bucket}, "entry": {"S": slot.sort_key}, "kind": {"S": name}}
    for (attribute, of, encode, unless), value in zip(kind.rows, kind.values(entry), strict=False):
        if value != unless:
            item[attribute] = {of: encode(value)}
    return item


def decode_entry(item: Mapping[str, Any]) -> StoredEntry | BrokenEntry:
    slot = Slot(item["bucket"]["S"], item["entry"]["S"])
    try:
        kind = item["kind"]["S"]
        if kind not in _KINDS:
            raise ValueError(f"kind {kind!r} is not one of {', '.join(_KINDS)}")
        fields = _KINDS[kind]
        contents = [kind, slot.sort_key]
        for name, of in fields.required:
            contents.append(item[name][of])
        if len(item) > len(contents) + len(KEY) - 1:  # few entries have other attributes
            for name, of in fields.optional:
                contents.append(item[name][of] if name in item else None)
        entry = _build(*contents)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        return BrokenEntry(slot, item, problem, *_salvage(slot, item), _is_foreign(slot, item))
    return StoredEntry(slot, entry)


@lru_cache(maxsize=4096)
def _build(kind: str, sort_key: str, *contents: str | bool | None) -> DueEntry:
    """Build the entry with the key *sort_key*. *contents*: of the attributes of *kind*, in their
    order; None: absent. Cached: each poll of the look-ahead reads the same items again.

    Raises:
        LookupError, TypeError, ValueError: This is not an entry.
    """
    values: dict[str, Any] = {
        field: decode(content)
        for (field, decode), content in zip(_KINDS[kind].arguments, contents, strict=False)
        if content is not None
    }
    job = JobKey(values.pop(_TENANT), values.pop(_JOB_ID))
    entry: DueEntry = _KINDS[kind].type(job, at=from_ms(int(sort_key[:13])), **values)
    _check(entry, sort_key)
    return entry


def _check(entry: DueEntry, sort_key: str) -> None:
    """Reject an entry that cannot become a message: found later, it would fail the whole batch.

    Raises:
        ValueError: A field is malformed, or the entry does not belong to *sort_key*.
    """
    if entry.sort_key != sort_key:
        raise ValueError(f"the attributes belong to another key, {entry.sort_key}")
    if not TENANT.fullmatch(entry.job.tenant) or not JOB_ID.fullmatch(entry.job.job_id):
        raise ValueError(f"invalid job key {entry.job}")
    if not UID.fullmatch(entry.uid):
        raise ValueError(f"invalid uid {entry.uid!r}")
    if isinstance(entry, DispatchEntry):
        key = RunKey(entry.job, entry.run_id)
        _ = key.scheduled_at
        if entry.dispatch < 1 or not entry.pool or key.uid != entry.uid:
            raise ValueError(
                f"invalid dispatch {entry.dispatch} (1 or more), or empty pool {entry.pool!r},"
                f" or the run does not belong to the job with uid {entry.uid!r}"
            )
    elif isinstance(entry, FireEntry | BackfillEntry) and entry.ordinal < 1:
        raise ValueError(f"invalid ordinal {entry.ordinal}: 1 or more")


def _is_foreign(slot: Slot, item: Mapping[str, Any]) -> bool:
    """Whether both its kind and its key show a kind of entry that this version does not know."""
    kind = item.get("kind", {}).get("S")
    named = isinstance(kind, str) and kind not in _KINDS
    return named and _UNKNOWN_KIND_KEY.match(slot.sort_key) is not None


def _salvage(slot: Slot, item: Mapping[str, Any]) -> tuple[datetime | None, JobKey | None]:
    """The due instant and the job of a broken entry; None for each that cannot be read."""
    stamp = re.match(r"[0-9]{13}(?=#)", slot.sort_key)
    tenant, job_id = (str(item.get(name, {}).get("S", "")) for name in ("tenant", "job_id"))
    job = JobKey(tenant, job_id) if tenant and JOB_ID.fullmatch(job_id) else None
    return from_ms(int(stamp[0])) if stamp else None, job
