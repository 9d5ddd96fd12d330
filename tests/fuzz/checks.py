"""Checks of every case, in memory. A decoded item must be usable: the API shows it, decisions about
it succeed, and it can be stored again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from nextfire.adapters.dynamodb.control_items import decode_audit, decode_cursor, decode_lease
from nextfire.adapters.dynamodb.due_items import decode_entry, encode_entry
from nextfire.adapters.dynamodb.endpoint_items import decode_endpoint, encode_endpoint
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.job_items import decode_job, encode_job
from nextfire.adapters.dynamodb.run_items import decode_run, encode_record
from nextfire.domain import endpoints
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.audit_pass import Audit
from nextfire.domain.decisions import decide_claim
from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import BrokenEntry, FireEntry, StoredEntry
from nextfire.domain.due_decisions import Fire, Resend, decide_due
from nextfire.domain.endpoints import Endpoint, EndpointState
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.policies import RetryPolicy
from nextfire.domain.ports.control import Lease
from nextfire.domain.recurrence import check
from nextfire.domain.run import Run, RunState
from nextfire.domain.upcoming_runs import upcoming_runs
from nextfire.responses.endpoints import EndpointResponse
from nextfire.responses.executions import ExecutionResponse
from nextfire.responses.jobs import JobResponse
from tests.builders import a_job
from tests.fuzz.cases import Kept, counted
from tests.fuzz.items import BEGINNING, LEASE, Item, stored

_END = BEGINNING.replace(year=9999)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def as_json(document: object) -> str:
    """*document* as the API returns it: strict JSON."""
    text = json.dumps(document)
    json.loads(text, parse_constant=no_constant)
    return text


@counted("schedule")
def check_schedule(document: dict[str, Any]) -> None:
    """It is rejected with a field, a value and a remedy, or its instants increase."""
    try:
        definition = JobDefinition.model_validate_json(
            json.dumps(document), by_alias=True, by_name=False
        )
        check(definition.schedule_from(BEGINNING))
    except ValidationError:  # the API's tests check the message
        return
    except InvalidInputError as error:
        assert all([error.field, error.value, error.problem, error.remedy])  # noqa: PT017 — if raised
        return
    job = a_job(definition=definition)
    found = upcoming_runs(job, BEGINNING, 10)
    at = [each.occurrence.at for each in found]
    assert at == sorted(set(at))
    assert all(BEGINNING < each <= _END for each in at)
    assert len(at) <= (definition.max_runs or 10)
    for each in found:
        assert each.due_at >= each.occurrence.at
    seen: list[datetime] = []
    entry = job.first()
    while entry is not None and len(seen) < len(at):
        seen.append(entry.occurs_at)
        entry = job.successor(entry)
    if not definition.jitter_sec:
        assert seen == at[: len(seen)], "the chain differs from the preview"


@counted("message")
def check_message(body: str) -> None:
    """It is a message that can be sent again unchanged, or undecodable."""
    try:
        message = decode_message(body)
    except UndecodableError:
        return
    assert decode_message(message.encode()) == message
    assert len(message.dedup) == 64
    assert len(message.group) == 64


@counted("due item")
def check_due_item(item: Item) -> None:
    """It is an entry that becomes a message, or broken."""
    found = decode_entry(stored(item))
    if isinstance(found, BrokenEntry):
        assert found.error
        return
    assert isinstance(found, StoredEntry)
    entry = found.entry
    again = encode_entry(entry, found.slot)
    assert decode_entry(again) == found
    version = entry.version if isinstance(entry, FireEntry) else 0
    job = a_job(entry.job.job_id, tenant=entry.job.tenant, uid=entry.uid, version=version)
    for current in (None, job):
        for late in (timedelta(), timedelta(days=1)):
            decision = decide_due(entry, current, entry.at + late)
            if isinstance(decision, Fire | Resend):
                key = decision.run
                RunMessage(
                    tenant=key.job.tenant,
                    job_id=key.job.job_id,
                    run_id=key.run_id,
                    dispatch=decision.dispatch if isinstance(decision, Resend) else 1,
                    missed=decision.missed if isinstance(decision, Fire) else (),
                    dispatched_at=entry.at,
                )


@counted("job item")
def check_job_item(item: Item) -> None:
    """The item is a job that can be shown, decided on and stored again, or it is undecodable."""
    try:
        job = decode_job(stored(item))
    except UndecodableError:
        return
    as_json(JobResponse.of(job, BEGINNING).document)
    assert decode_job(encode_job(job)) == job
    with suppress(InvalidInputError):  # an unknown schedule or zone
        use(job)


def use(job: Job) -> None:
    """Use *job* as watcher, auditor and executor do."""
    upcoming_runs(job, BEGINNING, 3)
    entry = job.next_entry(BEGINNING)
    if entry is not None:
        decision = decide_due(entry, job, entry.at)
        if isinstance(decision, Fire):
            RunMessage.of(job.run_key(entry.occurs_at), 1, entry.at)
        job.is_last(entry.occurs_at)
    for past in job.replaced:
        job.as_of(past).next_after(past.effective_from)


@counted("run item")
def check_run_item(item: Item) -> None:
    """It is a run that can be shown, claimed and changed, or undecodable."""
    try:
        run = decode_run(stored(item))
    except UndecodableError:
        return
    as_json(ExecutionResponse.of(run).document)
    now = cut(BEGINNING)
    message = RunMessage(
        tenant="acme",
        job_id="report",
        run_id=run_id("uid00001", now),
        dispatch=2,
        dispatched_at=now,
    )
    decide_claim(run, message, RetryPolicy(), now)
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    after = [
        run.taken_over(dispatch=2, token="t", worker="w", now=now, lease_until=now + LEASE),
        run.ended(RunState.DEAD, failed, now),
    ]
    for to in after:
        encode_record(to)


@counted("control item")
def check_control_item(item: Item) -> None:
    """It decodes as the kind in its id, or as a broken one that can be replaced."""
    read = {
        "lease": decode_lease,
        "cursor": decode_cursor,
        "audit": decode_audit,
    }
    kind = item["id"]["S"].partition("#")[0]
    found = read[kind](stored(item))
    if isinstance(found, Lease):
        assert found.epoch >= 0
        to_item({"epoch": found.epoch + 1})
    elif isinstance(found, Audit):
        assert found.started_at.tzinfo is not None


@counted("endpoint item")
def check_endpoint_item(item: Item) -> None:
    """It is shown, runs are admitted or held, and each change of it can be stored; or it is
    undecodable.
    """
    try:
        endpoint = decode_endpoint(stored(item))
    except UndecodableError:
        return
    as_json(EndpointResponse.of(endpoint, BEGINNING).document)
    hold = endpoints.hold(endpoint, BEGINNING, "run")
    assert hold is None or BEGINNING < hold.until <= BEGINNING + timedelta(hours=1, seconds=10)
    admitted = endpoints.admit(endpoint, BEGINNING, "run")
    changed = [
        admitted if isinstance(admitted, Endpoint) else None,
        endpoints.reported(endpoint, "ok", BEGINNING),
        endpoints.reported(endpoint, "down", BEGINNING),
        endpoints.reported(endpoint, "throttled", BEGINNING, BEGINNING + timedelta(days=1)),
        endpoints.paused(replace(endpoint, state=EndpointState.CLOSED), "reason", BEGINNING),
        endpoints.resumed(replace(endpoint, state=EndpointState.PAUSED), BEGINNING),
    ]
    for each in filter(None, changed):
        assert each.version == endpoint.version + 1
        assert decode_endpoint(encode_endpoint(each)) == each


def check_round_trip_of_a_job(job: Job) -> None:
    assert decode_job(encode_job(job)) == job


def check_round_trip_of_a_run(run: Run, item: Item) -> None:
    decoded = decode_run(item)
    assert isinstance(decoded.key, RunKey)
    assert decoded == run


IN_MEMORY: dict[str, Callable[[Any], None]] = {
    "schedule": check_schedule,
    "message": check_message,
    "due item": check_due_item,
    "job item": check_job_item,
    "run item": check_run_item,
    "control item": check_control_item,
    "endpoint item": check_endpoint_item,
}


def check_kept(case: Kept, check: Callable[[Any], None]) -> None:
    """Run *check* on a case of the corpus. Cases that must decode do."""
    try:
        check(case.case)
        if case.decodes:
            _DECODED[case.kind](case.case)
    except Exception as error:
        error.add_note(f"{case.name}: {case.why}")
        raise


def _entry(item: Item) -> None:
    assert isinstance(decode_entry(stored(item)), StoredEntry)


_DECODED: dict[str, Callable[[Any], object]] = {
    "message": decode_message,
    "due item": _entry,
    "job item": lambda item: decode_job(stored(item)),
    "run item": lambda item: decode_run(stored(item)),
}
