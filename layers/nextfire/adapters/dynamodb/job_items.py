"""Items of the table `jobs`: its field list, and what is made from it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from nextfire.adapters.dynamodb.fields import (
    EXECUTORS,
    FLAG,
    INSTANT,
    INTEGER,
    STAMP,
    TEXT,
    Codec,
    Field,
    encoder,
    member_of,
    names,
    projection,
    raw_decoder,
)
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.backfill import Backfill, Order
from nextfire.domain.definition import EDGE_FIELDS, JobDefinition
from nextfire.domain.document import with_unknown
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import UID, JobKey
from nextfire.domain.instants import from_ms, isoformat, parse_instant, to_ms
from nextfire.domain.job import Job, Replaced
from nextfire.domain.json_text import compact_json, reject_constant
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.pages import Scan
from nextfire.domain.when import WhenDocument

_CACHED = 4 * 1024
_read_once = lru_cache(maxsize=512)(JobDefinition.stored)
"""Watchers read the same definitions repeatedly, so small ones are cached."""


def _uid(content: str) -> str:
    if not UID.fullmatch(content):  # its due entries and messages would not decode
        raise ValueError(f"invalid uid {content!r}")
    return content


def _payload(text: str) -> Any:
    """Decode strict JSON. Values that a response cannot hold are found here, not in a listing."""
    return json.loads(text, parse_constant=reject_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else reject_constant(text)


def _encode_all_replaced(replaced: Sequence[Replaced]) -> str:
    return json.dumps([_encode_replaced(past) for past in replaced])


def _decode_all_replaced(text: str) -> tuple[Replaced, ...]:
    return tuple(map(_decode_replaced, json.loads(text)))


def _encode_replaced(past: Replaced) -> dict[str, Any]:
    return {
        "version": past.version,
        "effective_from": isoformat(past.effective_from),
        "until": isoformat(past.until),
        "counted_from": past.counted_from and isoformat(past.counted_from),
        "resumed_at": past.resumed_at and isoformat(past.resumed_at),
        "paused": past.paused,
        "when": _smaller(
            with_unknown(
                past.when.model_dump(mode="json", by_alias=True, exclude_none=True), past.when
            )
        ),
    }


def _decode_replaced(values: Mapping[str, Any]) -> Replaced:
    return Replaced(
        version=int(values["version"]),
        effective_from=parse_instant(values["effective_from"]),
        until=parse_instant(values["until"]),
        when=WhenDocument.stored_values(values["when"]),
        counted_from=_from_text(values.get("counted_from")),
        resumed_at=_from_text(values.get("resumed_at")),
        paused=bool(values.get("paused", False)),
    )


def _from_text(value: str | None) -> datetime | None:
    return None if value is None else parse_instant(value)


def _encode_backfill(asked: Backfill) -> str:
    return compact_json(
        {
            "backfill_id": asked.backfill_id,
            "version": asked.version,
            "first": isoformat(asked.first),
            "last": isoformat(asked.last),
            "count": asked.count,
            "order": asked.order.value,
            "asked_at": isoformat(asked.asked_at),
            "reason": asked.reason,
        }
    )


def _decode_backfill(text: str) -> Backfill:
    values = json.loads(text)
    return Backfill(
        backfill_id=str(values["backfill_id"]),
        version=int(values["version"]),
        first=parse_instant(values["first"]),
        last=parse_instant(values["last"]),
        count=int(values["count"]),
        order=Order(values["order"]),
        asked_at=parse_instant(values["asked_at"]),
        reason=None if values["reason"] is None else str(values["reason"]),
    )


def _instants(content: Sequence[Mapping[str, str]]) -> tuple[datetime, ...]:
    return tuple(from_ms(int(at["N"])) for at in content)


def _definition_text(job: Job) -> str:
    # Jobs without parents have the defaults: their items stay as small as before.
    left_out = {"payload"} if job.definition.after else {"payload", *EDGE_FIELDS}
    document = _smaller(with_unknown(job.definition.document(), job.definition))
    return compact_json({name: value for name, value in document.items() if name not in left_out})


def _smaller(document: dict[str, Any]) -> dict[str, Any]:
    """*document*, of a job or schedule, without a list that most jobs do not have."""
    return {name: value for name, value in document.items() if name != "exceptDates" or value}


def _payload_text(job: Job) -> str | None:
    payload = job.definition.payload
    return compact_json(payload) if payload != {} else None


_IDS = Codec("S", ",".join, lambda text: tuple(text.split(",")))
_INSTANTS = Codec("L", lambda instants: [{"N": str(to_ms(at))} for at in instants], _instants)

KEY: tuple[Field[JobKey], ...] = (
    Field("tenant", TEXT, EXECUTORS, decoded=False),
    Field("job_id", TEXT, EXECUTORS, decoded=False),
)
_WITHOUT_PAYLOAD: tuple[Field[Job], ...] = (
    Field("uid", Codec("S", str, _uid), EXECUTORS, required=True),
    Field("revision", INTEGER, EXECUTORS, required=True),
    Field("schedule_version", INTEGER, EXECUTORS, required=True),
    Field("effective_from", INSTANT, required=True),
    Field("state", member_of(JobState), EXECUTORS, required=True),
    Field("definition", TEXT, get=_definition_text, required=True, decoded=False),
    Field("created_at", INSTANT, required=True),
    Field("updated_at", INSTANT, EXECUTORS, required=True),
    Field("replaced", Codec("S", _encode_all_replaced, _decode_all_replaced), unless=()),
    Field("counted_from", INSTANT),
    Field("resumed_at", INSTANT),
    Field("pause_reason", TEXT),
    Field("paused_by", TEXT, decoded=False),
    Field("skips", _INSTANTS, unless=()),
    Field("resumes_at", INSTANT),
    Field("counted", FLAG, EXECUTORS, unless=False, decoded=False),
    Field("drain_asked_at", INSTANT),
    Field("backfill", Codec("S", _encode_backfill, _decode_backfill)),
    Field("children", _IDS, unless=()),
    Field("defined_in", INTEGER),
)
JOB_FIELDS: tuple[Field[Any], ...] = (
    *KEY,
    *_WITHOUT_PAYLOAD,
    Field("payload", TEXT, get=_payload_text, decoded=False),
)
"""The attributes of a job. A change of an executor is the end of a job: it uses no definition, no
payload and no schedule."""
_OF_PAUSE = frozenset(
    {
        "revision",
        "schedule_version",
        "effective_from",
        "state",
        "updated_at",
        "replaced",
        "counted_from",
        "resumed_at",
        "pause_reason",
    }
)
PAUSED_FIELDS = tuple(field for field in _WITHOUT_PAYLOAD if field.name in _OF_PAUSE)
"""The attributes that a pause by an executor changes: in pools of calls only."""
COUNT_FIELDS: tuple[Field[Any], ...] = (*KEY, Field("jobs", INTEGER, EXECUTORS))
"""The attributes of the number of a tenant's jobs."""
JOBS_TABLE: tuple[Field[Any], ...] = (*JOB_FIELDS, *COUNT_FIELDS[len(KEY) :], STAMP)

WITHOUT_PAYLOAD: Any = projection((*KEY, *_WITHOUT_PAYLOAD))
"""Watchers do not need payloads, and a hundred payloads may not fit into their memory."""

encode_key = encoder(KEY)
_encode_attributes = encoder(JOB_FIELDS[len(KEY) :])
_decode_attributes = raw_decoder(JOB_FIELDS)


_KNOWN = frozenset(names(JOBS_TABLE))


def encode_job(job: Job) -> Item:
    return {**job.unknown, **encode_key(job.key), **_encode_attributes(job)}


def decode_key(item: Mapping[str, Any]) -> JobKey:
    return JobKey(item["tenant"]["S"], item["job_id"]["S"])


def _definition(item: Mapping[str, Any]) -> JobDefinition:
    text = item["definition"]["S"]
    read = _read_once if len(text) <= _CACHED else JobDefinition.stored
    definition = read(text)
    if "payload" not in item:
        return definition
    return definition.model_copy(update={"payload": _payload(item["payload"]["S"])})


def decode_job(item: Mapping[str, Any]) -> Job:
    """Decode *item* as a job.

    Raises:
        UndecodableError: *item* is not a job.
    """
    try:
        return Job(
            decode_key(item),
            definition=_definition(item),
            counted="counted" in item,
            paused_by=item.get("paused_by", {}).get("S"),  # whatever it is, the job can run
            unknown={name: value for name, value in item.items() if name not in _KNOWN},
            **_decode_attributes(item),
        )
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UndecodableError(f"job does not decode: {type(error).__name__}: {error}") from error


def decode_jobs(items: Iterable[Mapping[str, Any]]) -> dict[JobKey, Job | Exception]:
    """The jobs of *items*; instead of one that does not decode, the error."""
    found: dict[JobKey, Job | Exception] = {}
    for item in items:
        try:
            found[decode_key(item)] = decode_job(item)
        except UndecodableError as error:
            found[decode_key(item)] = error
    return found


def scanned(items: Iterable[Mapping[str, Any]], last: JobKey | None) -> Scan:
    found = decode_jobs(items)
    jobs = [job for job in found.values() if isinstance(job, Job)]
    unreadable = [(key, str(e)) for key, e in found.items() if isinstance(e, Exception)]
    return Scan(jobs, unreadable, last)


def is_unchanged(item: Mapping[str, Any], job: Job) -> bool:
    """Whether *item* is *job*, still ACTIVE and with the same schedule version."""
    wanted = {
        "uid": {"S": job.uid},
        "schedule_version": {"N": str(job.schedule_version)},
        "state": {"S": JobState.ACTIVE.value},
    }
    return all(item.get(name) == value for name, value in wanted.items())
