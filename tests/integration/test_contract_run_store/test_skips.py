"""The contract of `RunStore`: occurrences that are skipped by the system or by a user."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import Claim, RunStore, Written
from nextfire.domain.run import Run
from tests.builders import NOON, a_job, a_message, a_retry, at, run_key
from tests.fakes import MemoryDueStore, MemoryJobStore, MemoryRunStore
from tests.integration.backends import MEMORY, SQLITE
from tests.integration.races import at_once
from tests.integration.test_contract_run_store.conftest import asked_for, claim

# Records of occurrences that do not run


def a_range(first: str = "12:00", last: str = "15:00", count: int = 4) -> Run:
    key = run_key(at(first))
    return Run.skipped(key, "noticed late", NOON, covered_to=at(last), covered=count)


@pytest.mark.parametrize(
    "record",
    [
        a_range(),
        Run.skipped(run_key(), "noticed late", NOON),
        Run.skipped(run_key(), "picked up late", NOON, pool="default", dispatched_at=at("11:59")),
    ],
    ids=["several", "one", "by an executor"],
)
def test_a_skipped_run_comes_back_as_it_was_put(store: RunStore, record: Run) -> None:
    assert store.skip(record) == record
    assert store.get(record.key) == record


def test_a_repeated_skip_finds_what_it_wrote(store: RunStore) -> None:
    assert store.skip(a_range()) == store.skip(a_range()) == a_range()


def test_the_first_of_two_skips_stays(store: RunStore) -> None:
    store.skip(a_range(last="13:00", count=2))

    stored = store.skip(a_range(last="18:00", count=7))

    assert (stored.covered_to, stored.covered) == (at("13:00"), 2)
    assert store.get(run_key()) == stored


def test_a_claimed_run_is_not_skipped(store: RunStore) -> None:
    run = claim(store).run

    assert store.skip(a_range()) == run == store.get(run.key)


def test_a_run_that_was_skipped_is_never_taken(store: RunStore) -> None:
    record = store.skip(a_range())

    refused = claim(store, a_message(dispatch=7))

    assert (refused.taken, refused.run) == (False, record)
    assert store.cancel(a_message(), reason="its job was deleted", now=NOON) == record


def test_of_twenty_skips_and_claims_one_has_the_run(store: RunStore) -> None:
    def race(n: int) -> Run:
        if n % 2:
            return claim(store, mark=f"t{n}", worker=f"w{n}").run
        return store.skip(replace(a_range(), reason=f"skip {n}"))

    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(race, range(20)))

    assert all(run == found[0] for run in found)


# Occurrences to be skipped


@dataclass(frozen=True, slots=True)
class Both:
    """A store of runs and a store of jobs, both changed by some writes, with one job."""

    runs: RunStore
    jobs: JobStore
    job: Job

    def skip(self, job: Job | None = None, run: Run | None = None) -> Written:
        return self.runs.skip_next(run or self.skipped(), job or self.next())

    def next(self, *skips: datetime) -> Job:
        return replace(self.job, revision=self.job.revision + 1, skips=skips or (NOON,))

    @staticmethod
    def skipped() -> Run:
        return replace(Run.skipped(run_key(), "a reason", at("11:00")), request="skip")


@pytest.fixture
def both(backend: str, request: pytest.FixtureRequest) -> Both:
    job = a_job(since=at("11:00"))
    runs: RunStore
    jobs: JobStore
    if backend == MEMORY:
        due = MemoryDueStore(shards=1)
        jobs = memory = MemoryJobStore(due)
        runs = MemoryRunStore(due, memory)
    elif backend == SQLITE:
        database = request.getfixturevalue("database")
        jobs, runs = SqliteJobStore(database), SqliteRunStore(database)
    else:
        tables = request.getfixturevalue("tables")
        jobs = DynamoDbJobStore(dynamodb(), table=tables.jobs, due_table=tables.due)
        runs = DynamoDbRunStore(
            dynamodb(), table=tables.runs, due_table=tables.due, jobs_table=tables.jobs
        )
    jobs.create(job, None, at("11:00"))
    return Both(runs, jobs, job)


def test_a_skip_is_on_record_and_in_the_job(both: Both) -> None:
    assert both.skip() is Written.DONE
    assert both.skip() is Written.DONE, "a repetition finds what it wrote"
    assert both.jobs.get(both.job.key) == both.next()
    assert both.runs.get(run_key()) == both.skipped()
    assert not claim(both.runs).taken


def test_a_job_that_was_changed_meanwhile_is_not_written_over(both: Both) -> None:
    changed = replace(both.job, revision=2, updated_at=NOON)
    both.jobs.update(changed, None, NOON)

    assert both.skip() is Written.CHANGED
    assert both.runs.unskip(run_key(), both.next()) is Written.CHANGED
    assert both.jobs.get(both.job.key) == changed
    assert both.runs.get(run_key()) is None


def test_an_occurrence_that_is_on_record_is_not_skipped(both: Both) -> None:
    run = claim(both.runs).run

    assert both.skip() is Written.REFUSED
    assert both.jobs.get(both.job.key) == both.job
    assert both.runs.get(run_key()) == run


def test_a_skip_is_undone_with_the_job(both: Both) -> None:
    both.skip()
    undone = replace(both.next(), revision=3, skips=())

    assert both.runs.unskip(run_key(), undone) is Written.DONE
    assert both.runs.unskip(run_key(), undone) is Written.DONE
    assert both.jobs.get(both.job.key) == undone
    assert both.runs.get(run_key()) is None


@pytest.mark.parametrize("existing", [None, Run.skipped(run_key(), "noticed late", NOON)])
def test_only_what_was_asked_to_be_skipped_is_undone(both: Both, existing: Run | None) -> None:
    if existing is not None:
        both.runs.skip(existing)

    assert both.runs.unskip(run_key(), both.next()) is Written.REFUSED
    assert both.jobs.get(both.job.key) == both.job
    assert both.runs.get(run_key()) == existing


def test_a_run_on_request_cannot_be_undone_as_a_skip(both: Both) -> None:
    run = replace(asked_for(), key=run_key())
    both.runs.request(run, a_retry(run.key, NOON, dispatch=1), NOON)

    assert both.runs.unskip(run_key(), both.next()) is Written.REFUSED
    assert both.runs.get(run_key()) == run

    skipped = both.runs.skip(run.passed_over("busy", NOON, pool="default", dispatched_at=NOON))

    assert both.runs.unskip(run_key(), both.next()) is Written.REFUSED
    assert both.runs.get(run_key()) == skipped


def test_of_a_skip_and_twenty_claims_one_has_the_run(both: Both) -> None:
    asks: list[Callable[[], Claim | Written]]
    asks = [partial(claim, both.runs, mark=f"t{n}") for n in range(20)]

    done = at_once(both.skip, *asks)

    taken = [each for each in done if isinstance(each, Claim) and each.taken]
    assert len(taken) + done.count(Written.DONE) == 1


def test_the_record_of_a_skip_outlives_its_occurrence(
    both: Both, backend: str, request: pytest.FixtureRequest
) -> None:
    far = NOON + timedelta(days=365)
    run = replace(Run.skipped(run_key(far), "a reason", NOON), request="skip")
    assert both.skip(run=run) is Written.DONE
    if backend == MEMORY:  # it never expires records
        return
    if backend == SQLITE:
        with request.getfixturevalue("database").reading("test") as connection:
            (item,) = RUNS.select(connection, "", ())
    else:
        (item,) = dynamodb().scan(TableName=request.getfixturevalue("tables").runs)["Items"]
    assert int(item["expires_at"]["N"]) > far.timestamp()
