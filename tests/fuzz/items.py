"""Generators of stored items, as the adapters write them.

An item has the form of DynamoDB's client, except for binary values: they are Base64 text under
``B64``, so that the item is JSON and fits into the corpus.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from hypothesis import strategies as st

from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.endpoint_items import encode_endpoint
from nextfire.adapters.dynamodb.fields import encoder
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.job_items import encode_job
from nextfire.adapters.dynamodb.run_items import KEY, MARKS, RUNS_TABLE, encode_key
from nextfire.domain.attempt import Attempt, AttemptOutcome, Result, Value
from nextfire.domain.backfill import Backfill, Order
from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import DispatchEntry, DueEntry, FireEntry
from nextfire.domain.endpoints import Endpoint, EndpointKey, EndpointState, paused
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import cut, isoformat, to_ms
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState

Item: TypeAlias = dict[str, Any]

BEGINNING = datetime(2026, 5, 24, 12, tzinfo=UTC)
LEASE = timedelta(seconds=60)

instants = st.datetimes(
    datetime(2020, 1, 1),  # noqa: DTZ001 — hypothesis adds the zone
    datetime(2099, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
).map(cut)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text("aZ09_-", min_size=1, max_size=64)
uids = st.text("az09", min_size=8, max_size=32)
tenants = st.text("0123456789", min_size=12, max_size=12) | st.text('aé💥 ."', min_size=1)
job_keys = st.builds(JobKey, tenants, names)
payloads = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

SCHEDULES: list[dict[str, Any]] = [
    {"type": "CRON", "schedule": "* * * * *"},
    {"type": "CRON", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "dst": "EACH"},
    {"type": "CRON", "schedule": "0 0 29 2 *", "jitterSec": 600},
    {"type": "CRON", "schedule": "*/5 9-17 * * 1-5", "maxRuns": 3},
    {"type": "CRON", "schedule": "0 3 * * *", "exceptDates": ["2026-05-25", "2026-12-25"]},
    {"type": "INTERVAL", "schedule": "PT45S"},
    {"type": "INTERVAL", "schedule": "P1D", "startAt": "2026-06-01T00:00:00", "jitterSec": 5},
    {"type": "ONCE", "schedule": "2026-05-24T13:00:00Z"},
    {"type": "DELAY", "schedule": "PT20M", "maxRuns": 1},
    {"type": "DATES", "schedule": ["2026-05-24T13:00:00Z", "2026-12-31T23:59:59.5+14:00"]},
    {"type": "MANUAL"},
    {"type": "AFTER", "after": [{"job": "a"}], "triggerRule": "ALL_DONE", "joinTimeoutSec": 60},
    {"type": "AFTER", "after": [{"job": "a"}], "deadlineSec": 3_600},
    {"type": "AFTER", "after": [{"job": "a", "delaySec": 5}, {"job": "b", "which": "same"}]},
    {"type": "AFTER", "after": [{"job": "a", "setup": True}, {"job": "b"}]},
]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Valid job documents."""
    document = dict(draw(st.sampled_from(SCHEDULES))) | {"target": {"handler": "hello"}}
    more: dict[str, st.SearchStrategy[Any]] = {
        "name": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128),
        "payload": payloads,
        "priority": st.sampled_from(["HIGH", "NORMAL", "LOW"]),
        "overlap": st.sampled_from(["ALLOW", "QUEUE", "SKIP", "REPLACE"]),
        "misfire": st.sampled_from(
            [{"policy": "RUN_ALL"}, {"policy": "SKIP", "relevancyWindowSec": 60}, {}]
        ),
        "labels": st.dictionaries(texts.filter(bool), texts, max_size=3),
        "timeoutSec": st.integers(1, 840),
        "retryPolicy": st.sampled_from(
            [
                {"maxAttempts": 1},
                {"maxAttempts": 100, "backoff": "FIXED", "initialDelayMs": 0},
                {"jitter": "FULL", "retryOn": {"states": ["FAILED"], "exitCodes": [1, -9]}},
            ]
        ),
    }
    for name in draw(st.sets(st.sampled_from(sorted(more)), max_size=4)):
        document[name] = draw(more[name])
    return document


backfills = st.builds(
    Backfill,
    backfill_id=st.text("0123456789abcdef", min_size=16, max_size=16),
    version=st.integers(0, 10**14),
    first=instants,
    last=instants,
    count=st.integers(1, 1000),
    order=st.sampled_from(Order),
    asked_at=instants,
    reason=st.none() | texts.filter(bool),
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs with a history: created, then changed, paused, resumed, ended."""
    at = draw(instants)
    definition = JobDefinition.model_validate(draw(documents()))
    job = Job(draw(job_keys), draw(uids), 1, to_ms(at), at, JobState.ACTIVE, definition, at, at)
    for step in draw(st.lists(st.sampled_from(["change", "pause", "resume", "end"]), max_size=5)):
        at += timedelta(seconds=draw(st.integers(0, 10**6)))
        if step == "change":
            job = job.with_new_version(at)
        elif step == "pause" and job.state is JobState.ACTIVE:
            given = st.none() | texts.filter(bool)
            job = job.paused(at, draw(given), by=draw(given))
            job = replace(job, drain_asked_at=draw(st.none() | st.just(at)))
        elif step == "resume" and job.state is JobState.PAUSED:
            job = job.resumed(at)
    return replace(job, backfill=draw(st.none() | backfills))


@st.composite
def entries(draw: st.DrawFn) -> DueEntry:
    job, uid, at = draw(job_keys), draw(uids), draw(instants)
    if draw(st.booleans()):
        return DispatchEntry(
            job,
            uid,
            at,
            run_id(uid, draw(instants)),
            draw(st.integers(1, 10**6)),
            draw(st.sampled_from(["default", "batch"])),
            rank=draw(st.integers(0, 2)),
            exclusive=draw(st.booleans()),
        )
    delay_by = draw(st.none() | st.integers(1, 3_600_000))
    return FireEntry(
        job,
        uid,
        at,
        version=draw(st.integers(1, to_ms(at))),
        occurrence=None if delay_by is None else at - timedelta(milliseconds=delay_by),
        ordinal=draw(st.integers(1, 10**5)),
        rank=draw(st.integers(0, 2)),
    )


values = (
    st.none()
    | st.builds(Value, st.integers(1, 8192), texts)
    | st.builds(Value, st.integers(8193, 10**6), st.none(), st.just("result/000001.json"))
)
results = st.builds(
    Result,
    st.sampled_from([each for each in AttemptOutcome if each is not AttemptOutcome.HANDED_BACK]),
    texts,
    st.none() | st.integers(-64, 255),
    texts.filter(bool),
    texts.filter(bool),
    value=values,
    log_parts=st.integers(0, 64),
)


def claimed(run: Run, at: datetime) -> Run:
    """*run*, which is PENDING, as the store's claim changes it."""
    number = run.attempt + 1
    return replace(
        run,
        state=RunState.RUNNING,
        attempt=number,
        fence=run.fence + 1,
        claim_token="t",
        worker="w",
        lease_until=at + LEASE,
        not_before=None,
        started_at=at,
        exit_code=None,
        stdout=None,
        stderr=None,
        reason=None,
        attempts=(*run.attempts, Attempt(number, "w", at)),
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Runs with a history that starts with their first claim."""
    at = draw(instants)
    key = RunKey(draw(job_keys), run_id(draw(uids), at))
    if draw(st.integers(0, 4)) == 0:
        covered = draw(st.integers(1, 1000))
        to = at + covered * timedelta(minutes=1)
        return Run.skipped(key, draw(texts), at, covered_to=to, covered=covered)
    run = claimed(Run(key, RunState.PENDING), at)
    for step in draw(st.lists(st.sampled_from(["lost", "retry", "back", "redrive"]), max_size=6)):
        at = cut(at + timedelta(seconds=draw(st.integers(0, 10**5))))
        result = draw(results)
        if step == "lost":
            run = run.taken_over(
                dispatch=run.dispatch, token="t", worker="v", now=at, lease_until=at + LEASE
            )
            continue
        if step == "back":
            run = run.handed_back(Result(AttemptOutcome.HANDED_BACK, "stopped"), at)
        elif step == "retry":
            run = run.retrying(result, at, not_before=at + timedelta(seconds=1))
        else:
            run = run.ended(RunState.DEAD, result, at).redriven("again", at)
        if draw(st.booleans()):
            run = claimed(run, at)
            continue
        return run
    if draw(st.booleans()):
        states = [RunState.SUCCEEDED, RunState.CANCELLED, RunState.DEAD]
        run = run.ended(draw(st.sampled_from(states)), draw(results), at)
    return run


_encode_run = encoder([each for each in RUNS_TABLE[len(KEY) :] if each is not MARKS])


def job_item(job: Job) -> Item:
    return encode_job(job)


def due_item(entry: DueEntry) -> Item:
    return dict(entry_item(entry, entry.at, 1))


def run_item(run: Run) -> Item:
    """The item of a run with all its attributes."""
    return encode_key(run.key) | _encode_run(run)


LEASES: list[Item] = [
    {"id": {"S": "lease#0"}, **to_item({"holder": "a", "epoch": 1, "beat": 5})},
    {"id": {"S": "lease#0"}, **to_item({"holder": "a", "epoch": 1, "beat": 5, "released": True})},
    {
        "id": {"S": "lease#0"},
        **to_item(
            {"holder": "a", "epoch": 1, "beat": 5, "released": True, "idle": True, "groups": 2}
        ),
    },
]
CURSORS: list[Item] = [
    {"id": {"S": "cursor#000"}, **to_item({"minute": isoformat(BEGINNING), "epoch": 7})}
]
AUDITS: list[Item] = [
    {"id": {"S": "audit"}, **to_item({"started_at": isoformat(BEGINNING), "done": True})},
    {
        "id": {"S": "audit"},
        **to_item(
            {
                "started_at": isoformat(BEGINNING),
                "since": isoformat(BEGINNING),
                "tenant": "acme",
                "job_id": "report",
                "done": False,
            }
        ),
    },
]

_ENDPOINT = EndpointKey("calls", "acme", "api.example.com:443")
ENDPOINTS: list[Item] = [
    encode_endpoint(Endpoint(_ENDPOINT, changed_at=BEGINNING, version=1)),
    encode_endpoint(
        Endpoint(
            _ENDPOINT, EndpointState.OPEN, 5, BEGINNING, BEGINNING, 3, BEGINNING,
            changed_at=BEGINNING, version=9,
        )
    ),
    encode_endpoint(paused(Endpoint(_ENDPOINT), "maintenance", BEGINNING)),
]  # fmt: skip


def stored(item: Item) -> Item:
    """*item* as the SDK returns it."""
    return {name: _stored(value) for name, value in item.items()}


def _stored(value: dict[str, Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "B64":
        return {"B": base64.b64decode(content)}
    if kind == "L":
        return {"L": [_stored(each) for each in content]}
    if kind == "M":
        return {"M": {name: _stored(each) for name, each in content.items()}}
    return value
