"""Items of the table `runs`: its field list, and what is made from it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from zlib import crc32

from nextfire.adapters.dynamodb.fields import (
    EXECUTORS,
    FLAG,
    INSTANT,
    INTEGER,
    MILLISECONDS,
    STAMP,
    TEXT,
    Codec,
    Field,
    decoder,
    encoder,
    member_of,
    nullable,
)
from nextfire.adapters.dynamodb.items import Item, from_item
from nextfire.domain.attempt import Attempt, AttemptOutcome, Value
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import JOB_ID, RUN_ID, JobKey, RunKey
from nextfire.domain.instants import to_ms
from nextfire.domain.replay import Replay
from nextfire.domain.retention import RETENTION
from nextfire.domain.run import Run, RunState, Trigger

_MAX_COUNT = 10**15
_SHA256_BYTES = 32


def _count(value: Any) -> int:
    """Check an integer that conditions compare and increment."""
    if not 0 <= value <= _MAX_COUNT or value % 1:
        raise ValueError(f"invalid number {value}: an integer from 0 to {_MAX_COUNT}")
    return int(value)


def _integer(value: Any) -> int:
    if not -_MAX_COUNT <= value <= _MAX_COUNT:
        raise ValueError(f"{value} is out of range: the maximum is ±{_MAX_COUNT}")
    return int(value)


def _pool(value: Any) -> str | None:
    """The pool of an attempt, which is part of the object keys of its files.

    Raises:
        ValueError: The pool contains a slash and could address another tenant's files.
    """
    pool: str | None = TEXT.decode(value)
    if pool is not None and "/" in pool:
        raise ValueError(f"invalid pool {pool!r}: a pool name has no slash")
    return pool


def _digest(value: Any) -> str | None:
    text = TEXT.decode(value)
    if text is None:
        return None
    digest = base64.b64decode(text, validate=True)
    if len(digest) != _SHA256_BYTES:
        raise ValueError("not a SHA-256 digest")
    return digest.hex()


_COUNT = Codec("N", str, _count)
_INTEGER = nullable(Codec("N", str, _integer))
_INSTANT = nullable(INSTANT)
_MILLISECONDS = nullable(MILLISECONDS)
_POOL = Codec("S", str, _pool)
# Base64 is shorter than hexadecimal: DynamoDB bills items by the KB.
_DIGEST = Codec("S", lambda digest: base64.b64encode(bytes.fromhex(digest)).decode(), _digest)

ATTEMPT: tuple[Field[Attempt], ...] = (
    Field("worker", TEXT, required=True),
    Field("started_at", INSTANT, required=True),
    Field("finished_at", _INSTANT),
    Field("outcome", member_of(AttemptOutcome)),
    Field("exit_code", _INTEGER),
    Field("reason", TEXT),
    Field("log_parts", _COUNT, unless=0),
    Field("script", _DIGEST, part="script_sha256"),
    Field("pool", _POOL),
    Field("call", TEXT),
)
"""Members of an element of the attribute `attempts`."""
encode_attempt = encoder(ATTEMPT)
_decode_attempt = decoder(ATTEMPT)


def _decode_attempts(items: list[dict[str, Any]], latest: int) -> tuple[Attempt, ...]:
    """Decode attempts. *latest*: number of the latest attempt. The others are numbered backward
    from it, because the first attempts may have been dropped.
    """
    attempts: list[Attempt] = []
    number = latest
    for values in reversed(items):
        fields = _decode_attempt(values)
        # The next attempt reuses the number of an attempt that does not count.
        outcome = fields.get("outcome")
        number += outcome is not None and not outcome.counts
        attempts.append(Attempt(number, **fields))
        number -= 1
    return tuple(reversed(attempts))


ATTEMPTS = Codec("L", lambda attempts: [{"M": encode_attempt(each)} for each in attempts], list)


def expiry(now: datetime, kept: timedelta = RETENTION) -> int:
    """`expires_at` of a record that is changed at *now*."""
    return to_ms(now + kept) // 1000


def _changed_at(run: Run) -> datetime:
    """When *run* changed last or, if that is later, when it will change next."""
    changed_at = run.finished_at or _last_step(run) or run.key.scheduled_at
    if run.skip_requested:
        changed_at = max(changed_at, run.key.scheduled_at)  # the record must exist until then
    if run.not_before is not None:
        changed_at = max(changed_at, run.not_before)  # a retry may be months away
    return changed_at


def _last_step(run: Run) -> datetime | None:
    if not run.attempts:
        return None
    return run.attempts[-1].finished_at or run.attempts[-1].started_at


DEAD_INDEX = "dead"
"""The index of DEAD runs."""
DEAD_SHARDS = 8
"""Partitions of a tenant's DEAD runs in the index. Each takes 1,000 deaths per second."""


def dead_runs(tenant: str) -> str:
    """The name of the DEAD runs of *tenant*: the beginning of `dead_shard`."""
    return f"{tenant}#{RunState.DEAD.value}"


def dead_shard(tenant: str, shard: int) -> str:
    """A partition of the index `dead`, with a part of *tenant*'s DEAD runs. *shard*: below
    `DEAD_SHARDS`.
    """
    return f"{dead_runs(tenant)}#{shard}"


def _attention(run: Run) -> str | None:
    if run.state is not RunState.DEAD:
        return None
    # By run, not by job: the runs of one job may all die at once, for example those of a backfill.
    shard = crc32(run.key.execution_id.encode()) % DEAD_SHARDS
    return dead_shard(run.key.job.tenant, shard)


def attention_at(run: Run) -> str | None:
    """The sort key of *run* in the index: the instant of its death and its id."""
    if run.state is not RunState.DEAD:
        return None
    return f"{to_ms(_changed_at(run)):013d}#{run.key.execution_id}"


ATTENTION_AT = re.compile(rf"[0-9]{{13}}#{JOB_ID.pattern}\.{RUN_ID.pattern}")
"""The result of `attention_at`."""


def partition(job: JobKey) -> str:
    return f"{job.tenant}/{job.job_id}"


def _if_skipped(name: str) -> Callable[[Run], Any]:
    """Return the field *name* of SKIPPED records only: the claim sets it on others."""
    return lambda run: getattr(run, name) if run.state is RunState.SKIPPED else None


def _value(name: str, get: Callable[[Run], Value | None]) -> tuple[Field[Run], ...]:
    """The three attributes of a `Value`."""

    def part(of_value: str) -> Callable[[Run], Any]:
        read = attrgetter(of_value)
        return lambda run: None if (value := get(run)) is None else read(value)

    return (
        Field(name, TEXT, EXECUTORS, get=part("text"), decoded=False),
        Field(f"{name}_bytes", INTEGER, EXECUTORS, get=part("size"), decoded=False),
        Field(f"{name}_file", TEXT, EXECUTORS, get=part("file"), decoded=False),
    )


def _decode_value(name: str, values: Mapping[str, Any]) -> Value | None:
    size = values.get(f"{name}_bytes")
    if size is None:
        return None
    text, file = values.get(name), values.get(f"{name}_file")
    return Value(int(size), TEXT.decode(text), TEXT.decode(file))


KEY: tuple[Field[RunKey], ...] = (
    Field("job", TEXT, EXECUTORS, get=lambda key: partition(key.job), decoded=False),
    Field("run_id", TEXT, EXECUTORS, decoded=False),
)
STEP: tuple[Field[Run], ...] = (
    Field("state", member_of(RunState), EXECUTORS, required=True),
    Field("dispatch", _COUNT, EXECUTORS),
    Field("attempt", _COUNT, EXECUTORS),
    Field("fence", _COUNT, EXECUTORS),
    Field("claim_token", TEXT, EXECUTORS, unless=""),
    Field("worker", TEXT, EXECUTORS),
    Field("lease_until", _MILLISECONDS, EXECUTORS),
    Field("not_before", _MILLISECONDS, EXECUTORS),
    Field("started_at", _INSTANT, EXECUTORS),
    Field("finished_at", _INSTANT, EXECUTORS),
    Field("exit_code", _INTEGER, EXECUTORS),
    Field("stdout", TEXT, EXECUTORS, unless=""),
    Field("stderr", TEXT, EXECUTORS, unless=""),
    Field("reason", TEXT, EXECUTORS),
    Field("attempts", ATTEMPTS, EXECUTORS, decoded=False),
    Field(
        "expires_at",
        INTEGER,
        EXECUTORS,
        get=lambda run: expiry(_changed_at(run), run.kept or RETENTION),
        decoded=False,
    ),
    Field("attention", TEXT, EXECUTORS, get=_attention, decoded=False),
    Field("attention_at", TEXT, EXECUTORS, get=attention_at, decoded=False),
    *_value("result", lambda run: run.result),
    STAMP,
)
"""Each step of a run sets or removes all of these."""
SKIPPED: tuple[Field[Run], ...] = (
    Field("pool", TEXT, EXECUTORS, get=_if_skipped("pool")),
    Field("dispatched_at", _INSTANT, EXECUTORS, get=_if_skipped("dispatched_at")),
    Field("covered_to", _MILLISECONDS, EXECUTORS),
    Field("covered", _COUNT, EXECUTORS, get=lambda run: run.covered if run.covered > 1 else None),
)
"""SKIPPED records have these in addition."""
_REPLAY = nullable(Codec("S", attrgetter("text"), Replay.parse))
CHECKPOINT = _value("checkpoint", lambda run: run.checkpoint)
REQUEST: tuple[Field[Run], ...] = (
    Field("trigger", member_of(Trigger), unless=Trigger.SCHEDULE),
    Field("request", TEXT, unless=""),
    Field("request_reason", TEXT),
    Field("payload", TEXT),
    Field("replay_of", _REPLAY),
)
"""The request of a user, written once."""
MARKS: Field[Any] = Field("marks", Codec("SS", list, list), EXECUTORS, decoded=False)
RUNS_TABLE: tuple[Field[Any], ...] = (
    *KEY,
    *STEP,
    *SKIPPED,
    *CHECKPOINT,
    *REQUEST,
    Field("job_revision", _INTEGER, EXECUTORS),
    Field("dispatch_reason", TEXT, EXECUTORS),
    Field("attempt_base", _COUNT, unless=0),
    Field("restarted", FLAG, unless=False),
    Field("fence_base", _COUNT, unless=0),
    Field("buried", _COUNT, EXECUTORS, unless=0),
    # Executors do not set it: conditions of their writes use it.
    Field("cancel_requested", FLAG, EXECUTORS, unless=False),
    Field("cancel_reason", TEXT),
    # Only the items of joins have it.
    MARKS,
)
"""All attributes of the table. Those outside of a group have their own updates."""

encode_key = encoder(KEY)
encode_checkpoint = encoder(CHECKPOINT)
encode_step = encoder(STEP)
encode_record = encoder((*STEP, *SKIPPED))
_encode_attributes = encoder((*STEP, *SKIPPED, *REQUEST))
_decode_attributes = decoder(RUNS_TABLE)


def encode_run(run: Run) -> Item:
    """The item of a new run."""
    return encode_key(run.key) | _encode_attributes(run)


def decode_run(item: Mapping[str, Any]) -> Run:
    """Decode *item* as a run.

    Raises:
        UndecodableError: *item* is not a run.
    """
    try:
        values = from_item(item)
        tenant, _, job_id = values["job"].partition("/")
        key = RunKey(JobKey(tenant, job_id), values["run_id"])
        _ = key.scheduled_at
        fields = _decode_attributes(values)
        return Run(
            key,
            attempts=_decode_attempts(values.get("attempts", []), fields.get("attempt", 0)),
            checkpoint=_decode_value("checkpoint", values),
            result=_decode_value("result", values),
            **fields,
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UndecodableError(f"run does not decode: {type(error).__name__}: {error}") from error
