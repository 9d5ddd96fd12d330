"""What must be true of every case, in memory. What an item decodes to must do: be shown, be decided
about, be written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from functions.api.documents import execution_document, job_document
from nextfire.adapters import control_store, due_store, job_store, run_store
from nextfire.adapters.items import to_item
from nextfire.domain.audit import Audit
from nextfire.domain.decisions import decide_claim
from nextfire.domain.due import BrokenEntry, FireEntry, StoredEntry
from nextfire.domain.due_decisions import Fire, Resend, decide_due
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.ids import RunKey, dedup_id, run_id
from nextfire.domain.instants import cut
from nextfire.domain.job import Job, JobDefinition, RetryPolicy
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports import Lease
from nextfire.domain.run import AttemptOutcome, Result, Run, RunState
from nextfire.domain.schedule import check
from tests.builders import a_job
from tests.fuzz.cases import Kept, counted
from tests.fuzz.items import BEGINNING, LEASE, Item, stored

_END = BEGINNING.replace(year=9999)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def as_json(document: object) -> str:
    """*document* as the API answers it: strict JSON."""
    text = json.dumps(document)
    json.loads(text, parse_constant=no_constant)
    return text


@counted("schedule")
def check_schedule(document: dict[str, Any]) -> None:
    """It is refused with a field, a value and a remedy, or has instants that increase."""
    try:
        definition = JobDefinition.model_validate_json(
            json.dumps(document), by_alias=True, by_name=False
        )
        check(definition.schedule_from(BEGINNING))
    except ValidationError:  # its words are checked at the API
        return
    except InvalidInputError as error:
        assert all([error.field, error.value, error.problem, error.remedy])  # noqa: PT017 — if raised
        return
    job = a_job(definition=definition)
    found = job.upcoming(BEGINNING, 10)
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
        assert seen == at[: len(seen)], "the chain goes another way than the preview"


@counted("message")
def check_message(body: str) -> None:
    """It is a message, which can be sent again as it is, or refused."""
    try:
        message = decode_message(body)
    except UndecodableError:
        return
    assert decode_message(message.encode()) == message
    assert len(dedup_id(message.key, message.dispatch)) == 64
    assert len(message.group) == 64


@counted("due item")
def check_due_item(item: Item) -> None:
    """It is an entry of which a message can be made, or broken."""
    found = due_store._decode(stored(item))  # noqa: SLF001 — what reads the table
    if isinstance(found, BrokenEntry):
        assert found.error
        return
    assert isinstance(found, StoredEntry)
    entry = found.entry
    again = due_store._item(entry, found.slot)  # noqa: SLF001
    assert due_store._decode(again) == found  # noqa: SLF001
    version = entry.version if isinstance(entry, FireEntry) else 0
    job = a_job(entry.job.job_id, tenant=entry.job.tenant, uid=entry.uid, version=version)
    for there in (None, job):
        for late in (timedelta(), timedelta(days=1)):
            decision = decide_due(entry, there, entry.at + late)
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
    """It is a job that can be shown, decided about and stored again, or undecodable."""
    try:
        job = job_store.decode_job(stored(item))
    except UndecodableError:
        return
    as_json(job_document(job, BEGINNING))
    assert job_store.decode_job(job_store._encode(job)) == job  # noqa: SLF001
    with suppress(InvalidInputError):  # a schedule, or a zone, that is not known
        use(job)


def use(job: Job) -> None:
    """Whatever watcher, auditor and executor make of a job."""
    job.upcoming(BEGINNING, 3)
    entry = job.next_entry(BEGINNING)
    if entry is not None:
        decision = decide_due(entry, job, entry.at)
        if isinstance(decision, Fire):
            RunMessage(
                tenant=job.key.tenant,
                job_id=job.key.job_id,
                run_id=run_id(job.uid, entry.occurs_at),
                dispatch=1,
                dispatched_at=entry.at,
            )
        job.is_last(entry.occurs_at)
    for past in job.replaced:
        job.as_of(past).next_after(past.effective_from)


@counted("run item")
def check_run_item(item: Item) -> None:
    """It is a run that can be shown, decided about and changed, or undecodable."""
    try:
        run = run_store._decode(stored(item))  # noqa: SLF001 — what reads the table
    except UndecodableError:
        return
    as_json(execution_document(run))
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
        to_item(run_store._encode(to))  # noqa: SLF001


@counted("control item")
def check_control_item(item: Item) -> None:
    """It is read as what its id says, or as one that is broken and can be replaced."""
    read = {
        "lease": control_store._decode_lease,  # noqa: SLF001 — what reads the table
        "cursor": control_store._decode_cursor,  # noqa: SLF001
        "audit": control_store._decode_audit,  # noqa: SLF001
    }
    kind = item["id"]["S"].partition("#")[0]
    found = read[kind](stored(item))
    if isinstance(found, Lease):
        assert found.epoch >= 0
        to_item({"epoch": found.epoch + 1})
    elif isinstance(found, Audit):
        assert found.started_at.tzinfo is not None


def check_round_trip_of_a_job(job: Job) -> None:
    assert job_store.decode_job(job_store._encode(job)) == job  # noqa: SLF001


def check_round_trip_of_a_run(run: Run, item: Item) -> None:
    there = run_store._decode(item)  # noqa: SLF001
    assert isinstance(there.key, RunKey)
    assert there == run


IN_MEMORY: dict[str, Callable[[Any], None]] = {
    "schedule": check_schedule,
    "message": check_message,
    "due item": check_due_item,
    "job item": check_job_item,
    "run item": check_run_item,
    "control item": check_control_item,
}


def check_kept(case: Kept, check: Callable[[Any], None]) -> None:
    """*check* of a case of the corpus; one that must decode does."""
    try:
        check(case.case)
        if case.decodes:
            _DECODED[case.kind](case.case)
    except Exception as error:
        error.add_note(f"{case.name}: {case.why}")
        raise


def _entry(item: Item) -> None:
    assert isinstance(due_store._decode(stored(item)), StoredEntry)  # noqa: SLF001


_DECODED: dict[str, Callable[[Any], object]] = {
    "message": decode_message,
    "due item": _entry,
    "job item": lambda item: job_store.decode_job(stored(item)),
    "run item": lambda item: run_store._decode(stored(item)),  # noqa: SLF001
}
