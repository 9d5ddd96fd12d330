"""Records, attempts and marks of a soak test, to be accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.soak.account import Account, Record
from tests.soak.accounting import account
from tests.soak.delays import Loss, Stops
from tests.soak.marks import Mark
from tests.soak.oracle import Document, Event, History, Operation

NOON = datetime(2026, 5, 24, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


TENANT = "000000000000"
TEN = {"type": "INTERVAL", "schedule": "PT10S"}
ALL = {**TEN, "misfire": {"policy": "RUN_ALL"}, "retryPolicy": {"maxAttempts": 2}}
LATEST = {**ALL, "misfire": {"policy": "RUN_LATEST"}}
SKIP = {**ALL, "misfire": {"policy": "SKIP"}}
AWAY = [(at(9), at(9))]
"""A stop without duration: it delays nothing, but is the cause of what is late."""
FAILS = {**ALL, "payload": {"do": "fail", "fails": 9}}


def history(document: Document, *events: tuple[Operation, float, Document | None]) -> History:
    """A job that was created at noon, with later events by the second. Answers take no time."""
    made = History("000000000000", "job")
    made.events.append(Event(Operation.CREATED, NOON, NOON, document))
    for did, second, patch in events:
        fresh = None if patch is None else {**made.document, **patch}
        made.events.append(Event(did, at(second), at(second), fresh))
    return made


def iso(second: float) -> str:
    return at(second).isoformat()


def execution_id(second: float) -> str:
    return f"job.{at(second):%Y%m%dT%H%M%S}000Z-abc"


def attempt(number: int, start: float, end: float, outcome: str = "SUCCEEDED") -> Record:
    times = {"startedAt": iso(start), "finishedAt": iso(end)}
    return {"number": number, "worker": "host-1", "outcome": outcome, **times}


def run(second: float, *attempts: Record, state: str = "SUCCEEDED", **fields: Any) -> Record:
    """The record of an occurrence; without *attempts*, of a run that succeeded immediately."""
    made = attempts or (attempt(1, second + 1, second + 3),)
    return {
        "executionId": execution_id(second),
        "state": state,
        "scheduledAt": iso(second),
        "dispatchedAt": iso(second + 0.5),
        "dispatch": 1,
        "attempt": made[-1]["number"],
        "attempts": [*made],
        "finishedAt": made[-1]["finishedAt"],
        **fields,
    }


def skipped(first: float, last: float, count: int, *, decided: float) -> Record:
    record = {
        "executionId": execution_id(first),
        "state": "SKIPPED",
        "scheduledAt": iso(first),
        "finishedAt": iso(decided),
        "dispatch": 1,
        "attempt": 0,
        "attempts": [],
    }
    span = {"from": iso(first), "to": iso(last), "count": count}
    return record if count == 1 else {**record, "range": span}


def mark(second: float, number: int = 1, *, begun: float, until: float, **more: Any) -> Mark:
    values = {"code": 0, **more}
    return Mark(TENANT, execution_id(second), number, at(begun), at(until), **values)


def marks_of(*records: Record) -> list[Mark]:
    """The marks of the scripts of *records*, if every attempt began a second after its claim."""
    return [
        Mark(
            TENANT,
            record["executionId"],
            each["number"],
            datetime.fromisoformat(each["startedAt"]) + timedelta(seconds=0.5),
            datetime.fromisoformat(each["finishedAt"]),
            code=0 if each["outcome"] == "SUCCEEDED" else 1,
        )
        for record in records
        for each in record["attempts"]
    ]


def accounted(
    job: History | Document,
    records: list[Record],
    marks: list[Mark] | None = None,
    *,
    until: float = 25,
    stops: Stops = (),
    losses: tuple[Loss, ...] = (),
    slots: Mapping[str, int] | None = None,
) -> Account:
    job = job if isinstance(job, History) else history(job)
    marks = marks_of(*records) if marks is None else marks
    by_job = {(TENANT, "job"): records}
    return account([job], by_job, marks, until=at(until), stops=stops, losses=losses, slots=slots)


def counted(found: Account) -> tuple[int, int, int]:
    """Lost, done twice, other."""
    return found.total.lost, found.total.double_effects, found.others


# Ten occurrences of a minutely job, a clean environment, and failures only: each must be counted.

MINUTES = [60.0 * n for n in range(1, 11)]
WORKERS = tuple(Loss(at(second), "host-1") for second in (60, 240, 420, 600))
