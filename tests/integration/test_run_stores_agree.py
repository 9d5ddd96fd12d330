"""The fake, SQLite and DynamoDB answer random calls of `RunStore` in the same way. Each call is
made from a record as a caller may have read it: now, or some changes ago.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.domain.attempt import AttemptOutcome, Result, Value
from nextfire.domain.errors import NextfireError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import LEASE, NOON, a_job, a_message, a_retry, claim_run, run_key
from tests.crons import LONG
from tests.fakes import MemoryDueStore, MemoryJobStore, MemoryRunStore
from tests.integration.tables import Tables

CALLS = 40
SEEDS = range(18, 118 if LONG else 22)  # the first find the two defects that were found so
KEYS = [run_key(), run_key(NOON + timedelta(milliseconds=1))]
BACK = Result(AttemptOutcome.HANDED_BACK, "its worker shut down")


@dataclass(frozen=True, slots=True)
class Stores:
    runs: RunStore
    jobs: JobStore

    def next_job(self, now: datetime) -> Job:
        job = self.jobs.get(a_job().key)
        assert job is not None
        return job.revised(now)


Call = Callable[[Stores], object]


def of_any(dice: Random, key: RunKey, now: datetime) -> dict[str, Call]:
    """Calls for the run *key* in any state."""
    message = a_message(key, dispatch=dice.choice([1, 2, 30_000]), dispatched_at=now)
    token, pool = dice.choice("tu"), dice.choice([None, "default"])
    late = Run.skipped(key, "late", now, pool=pool)
    asked = replace(Run.skipped(key, "asked", now), request="skip")
    run = Run(key, RunState.PENDING, trigger=Trigger.BACKFILL, request="r", reason="asked")
    return {
        "claim": lambda to: claim_run(to.runs, message, now, token=token),
        "cancel": lambda to: to.runs.cancel(message, reason="deleted", now=now),
        "skip": lambda to: to.runs.skip(late),
        "request": lambda to: to.runs.request(run, a_retry(key, now, dispatch=1), now),
        "skip next": lambda to: to.runs.skip_next(asked, to.next_job(now)),
        "unskip": lambda to: to.runs.unskip(key, to.next_job(now)),
    }


def of_running(dice: Random, was: Run, now: datetime) -> dict[str, Call]:
    result = Result(dice.choice([*AttemptOutcome]), "a reason", 1, "out", "")
    ended = was.ended(dice.choice([s for s in RunState if s.ended]), result, now)
    taken = was.taken_over(dispatch=2, token="v", worker="v", now=now, lease_until=now + LEASE)
    retrying = was.retrying(result, now, not_before=now + dice.choice([0, 1]) * LEASE)
    return {
        "end": lambda to: to.runs.advance(was, ended),
        "retry": lambda to: to.runs.advance(was, retrying),
        "hand back": lambda to: to.runs.advance(was, was.handed_back(BACK, now)),
        "take over": lambda to: to.runs.advance(was, taken, lapsed=True),
        "extend": lambda to: to.runs.extend(was, lease_until=now + LEASE),
        "save": lambda to: to.runs.save(was, Value(2, "{}")),
        "stop": lambda to: to.runs.stop(was, reason="enough", now=now),
    }


def of_pending(_: Random, was: Run, now: datetime) -> dict[str, Call]:
    over = was.passed_over("busy", now, pool="default", dispatched_at=now)
    ahead = was.brought_forward("hurry", now)
    entry = a_retry(was.key, now, dispatch=ahead.dispatch)
    calls: dict[str, Call] = {"stop": lambda to: to.runs.stop(was, reason="enough", now=now)}
    if was.on_request:
        calls["pass over"] = lambda to: to.runs.skip(over)
    if was.fence:  # it waits after an attempt
        calls["bring forward"] = lambda to: to.runs.bring_forward(was, ahead, entry, now)
    return calls


def of_ended(dice: Random, was: Run, now: datetime) -> dict[str, Call]:
    by_user = dice.choice([True, not was.skipped_by_parents])
    again = was.redriven("again", now, by_user=by_user)
    entry = a_retry(was.key, now, dispatch=again.dispatch)

    def redrive(to: Stores) -> object:
        done = to.runs.redrive(again, entry, now, was=was.state, by_user=by_user)
        return done.taken, done.run.state  # DynamoDB returns the rest as it was given

    return {
        "redrive": redrive,
        "mark": lambda to: to.runs.mark_death_published(was),
        "await": lambda to: to.runs.await_parents(was, was.awaiting_parents("redriven")).taken,
    }


def answer(call: Call, to: Stores) -> object:
    try:
        return call(to), [*to.runs.between(a_job().key, "0", "9", page=1)]
    except NextfireError as error:
        return type(error)


@pytest.fixture
def stores(database: Database, tables: Tables) -> list[Stores]:
    due, client, (jobs, dues) = MemoryDueStore(), dynamodb(), (tables.jobs, tables.due)
    memory = MemoryJobStore(due)
    runs = DynamoDbRunStore(client, table=tables.runs, due_table=dues, jobs_table=jobs)
    found = [
        Stores(MemoryRunStore(due, memory), memory),
        Stores(SqliteRunStore(database), SqliteJobStore(database)),
        Stores(runs, DynamoDbJobStore(client, table=jobs)),
    ]
    for each in found:
        each.jobs.create(a_job(), None, NOON)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_random_calls_have_the_same_answers(stores: list[Stores], seed: int) -> None:
    dice, now = Random(seed), NOON  # noqa: S311 — not a secret
    of = {RunState.RUNNING: of_running, RunState.PENDING: of_pending}
    read: dict[RunKey, list[Run]] = {key: [] for key in KEYS}
    for number in range(CALLS):
        now += dice.choice([timedelta(), LEASE / 2])
        key = dice.choice(KEYS)
        calls = of_any(dice, key, now)
        if read[key]:
            was = dice.choice([read[key][-1], dice.choice(read[key])])
            calls |= of.get(was.state, of_ended)(dice, was, now)
        name = dice.choice([*calls])
        first, *others = [answer(calls[name], each) for each in stores]
        assert others == [first, first], (number, name)
        record = stores[0].runs.get(key)
        read[key] += [] if record is None or record in read[key][-1:] else [record]
