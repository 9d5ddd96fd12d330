"""Cancelling and redriving runs, alone and concurrently with other actors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.attempt import Attempt, AttemptOutcome, Result
from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import ConflictError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from nextfire.usecases import manage_runs
from nextfire.usecases.find_run import FindRun, PendingOccurrence
from nextfire.usecases.manage_runs import ManageRuns
from tests.builders import a_job, a_message, at, job_key, run_key
from tests.fakes import (
    Clock,
    Faults,
    InlineExecutor,
    MemoryDueStore,
    MemoryJobStore,
    MemoryRunStore,
)

LEASE = timedelta(minutes=1)
FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1)


class Harness:
    """Stores and the use case under test. It is 12:30; the job `report` is hourly."""

    def __init__(self) -> None:
        self.clock = Clock(at("12:30"))
        self.faults = Faults()
        self.due = MemoryDueStore()
        self.jobs = MemoryJobStore(self.due)
        self.runs = MemoryRunStore(self.due)
        self.job = self.registered()
        jobs, runs = self.faults.through(self.jobs, "jobs"), self.faults.through(self.runs, "runs")
        self.find_run = FindRun(jobs, runs, retention=timedelta(days=90), clock=self.clock)
        self.manage = ManageRuns(
            jobs,
            runs,
            self.find_run,
            pools=("default", "batch"),
            clock=self.clock,
            executor=InlineExecutor(),
        )

    def registered(self, job_id: str = "report", **fields: object) -> Job:
        job = a_job(job_id, since=at("09:00"), **fields)  # type: ignore[arg-type]
        self.jobs.put(job)
        return job

    def started(self, key: RunKey | None = None, *, pool: str = "default") -> Run:
        key = key or run_key(at("12:00"))
        claim = self.runs.claim(
            a_message(key),
            token="t",
            worker="w",
            pool=pool,
            job_revision=1,
            now=key.scheduled_at,
            lease_until=key.scheduled_at + LEASE,
        )
        return claim.run

    def dead(self, key: RunKey | None = None, *, pool: str = "default") -> Run:
        run = self.started(key, pool=pool)
        died_at = run.key.scheduled_at + timedelta(seconds=1)
        return self.runs.advance(run, run.ended(RunState.DEAD, FAILED, died_at)).run

    def dies_again(self, key: RunKey) -> Run:
        """A worker claims the redriven run one second later, and it fails."""
        now = self.clock.advance(seconds=1)
        redriven = self.runs.get(key)
        assert redriven is not None
        run = self.runs.claim(
            a_message(key, dispatch=redriven.dispatch),
            token="again",
            worker="w",
            pool="default",
            job_revision=1,
            now=now,
            lease_until=now + LEASE,
        ).run
        return self.runs.advance(run, run.ended(RunState.DEAD, FAILED, now)).run

    def redrive_dead(self, **more: object) -> tuple[list[str], dict[str, str], str | None]:
        asked: dict[str, object] = {
            "first": at("00:00"),
            "last": self.clock.now(),
            "cursor": None,
            "limit": 50,
        }
        asked |= {"reason": None, "until": at("12:31")} | more
        done = self.manage.redrive_dead("acme", "default", **asked)  # type: ignore[arg-type]
        return (
            [key.execution_id for key in done.redriven],
            {key.execution_id: why for key, why in done.skipped},
            done.cursor,
        )


@pytest.fixture
def harness() -> Harness:
    return Harness()


# Cancelling


def test_an_occurrence_that_is_claimed_meanwhile_is_asked_to_end(harness: Harness) -> None:
    key = run_key(at("12:00"))
    harness.faults.call_before_next("runs.cancel", harness.started)

    run = harness.manage.cancel(key, "why")

    assert (run.state, run.cancel_requested, run.cancel_reason) == (RunState.RUNNING, True, "why")


def test_a_run_that_ends_meanwhile_is_not_cancelled(harness: Harness) -> None:
    run = harness.started()
    ended = run.ended(RunState.SUCCEEDED, FAILED, at("12:01"))
    harness.faults.call_before_next("runs.stop", lambda: harness.runs.advance(run, ended))

    with pytest.raises(ConflictError) as refused:
        harness.manage.cancel(run.key, None)

    assert "is SUCCEEDED" in refused.value.problem


def test_a_run_is_asked_once(harness: Harness) -> None:
    run = harness.started()
    harness.manage.cancel(run.key, "first")

    again = harness.manage.cancel(run.key, "second")

    assert again.cancel_reason == "first"


def test_a_waiting_run_that_was_to_be_cancelled_when_it_ran_is_cancelled(harness: Harness) -> None:
    run = replace(harness.started(), state=RunState.PENDING, cancel_requested=True)
    harness.runs._store(run)  # noqa: SLF001 — writers never leave such a record

    assert harness.manage.cancel(run.key, None).state is RunState.CANCELLED


def test_an_occurrence_of_a_paused_job_can_be_cancelled(harness: Harness) -> None:
    harness.jobs.put(harness.job.paused(at("11:30"), None))
    key = run_key(at("12:00"))
    assert isinstance(harness.find_run.find(key), PendingOccurrence)

    assert harness.manage.cancel(key, None).state is RunState.CANCELLED
    with pytest.raises(NotFoundError):
        harness.manage.cancel(run_key(at("13:00")), None)


# Runs that a pending occurrence waits for


def is_running(run: Run) -> Run:
    return run


def is_handed_back(run: Run) -> Run:
    return run.handed_back(Result(AttemptOutcome.HANDED_BACK, "shut down"), at("11:01"))


def is_to_be_retried_at(time: str) -> Callable[[Run], Run]:
    return lambda run: run.retrying(FAILED, at("11:01"), not_before=at(time))


@pytest.mark.parametrize(
    ("earlier", "blocks"),
    [
        (is_running, True),
        (is_handed_back, True),
        (is_to_be_retried_at("12:00"), True),
        (is_to_be_retried_at("12:01"), False),
    ],
    ids=["it runs", "handed back", "retried at 12:00", "retried later"],
)
def test_an_occurrence_waits_for_an_earlier_run_whose_message_came_first(
    harness: Harness, earlier: Callable[[Run], Run], *, blocks: bool
) -> None:
    harness.registered(overlap="QUEUE")
    run = harness.started(run_key(at("11:00")))
    harness.runs.advance(run, earlier(run))

    waiting = harness.find_run.find(run_key(at("12:00")))

    assert isinstance(waiting, PendingOccurrence)
    assert (f"waits for {run.key.execution_id}" in waiting.reason) is blocks


# Redriving


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (RunState.RUNNING, "It has not ended. Only a DEAD execution can be redriven."),
        (RunState.SUCCEEDED, "Only a DEAD execution can be redriven."),
    ],
)
def test_what_is_not_dead_is_not_redriven(harness: Harness, state: RunState, remedy: str) -> None:
    run = harness.started()
    if state.ended:
        harness.runs.advance(run, run.ended(state, FAILED, at("12:01")))

    with pytest.raises(ConflictError) as refused:
        harness.manage.redrive(run.key, None)

    assert (refused.value.problem, refused.value.remedy) == (f"The execution is {state}", remedy)


def test_what_is_not_dead_says_so_though_its_job_is_gone(harness: Harness) -> None:
    run = harness.started()
    harness.jobs.put(replace(harness.job, state=JobState.CANCELLED))

    with pytest.raises(ConflictError, match="RUNNING"):
        harness.manage.redrive(run.key, None)


def test_a_dead_run_gets_an_entry_in_its_jobs_present_pool(harness: Harness) -> None:
    job = harness.registered(
        target={"handler": "x", "pool": "batch"}, overlap="QUEUE", priority="LOW"
    )
    run = harness.dead()

    redriven = harness.manage.redrive(run.key, None)

    assert (redriven.state, redriven.reason) == (RunState.PENDING, "redriven on request")
    [entry] = harness.due.entries
    assert isinstance(entry, DispatchEntry)
    assert (entry.at, entry.dispatch) == (at("12:30"), redriven.dispatch)
    assert (entry.pool, entry.rank, entry.exclusive) == (
        "batch",
        job.definition.priority.rank,
        True,
    )


def test_a_redrive_that_comes_again_does_nothing_once_it_was_begun_with(harness: Harness) -> None:
    died = harness.dead()
    asked_at = harness.clock.now()
    redriven = harness.manage.redrive(died.key, None, asked_at=asked_at)
    harness.clock.advance(seconds=1)
    assert harness.manage.redrive(died.key, None, asked_at=asked_at) == redriven
    died_again = harness.dies_again(died.key)

    assert harness.manage.redrive(died.key, None, asked_at=asked_at) == died_again
    later = harness.clock.advance(seconds=1)
    assert harness.manage.redrive(died.key, None, asked_at=later).state is RunState.PENDING


def test_a_run_that_was_already_redriven_is_returned_at_once(harness: Harness) -> None:
    died = harness.dead()
    harness.manage.redrive(died.key, None)
    later = harness.clock.advance(seconds=1)

    with pytest.raises(ConflictError, match="PENDING"):
        harness.manage.redrive(died.key, None, asked_at=later)
    harness.manage.cancel(died.key, None)
    with pytest.raises(ConflictError, match="CANCELLED"):
        harness.manage.redrive(died.key, None, asked_at=later)


def test_a_redrive_that_comes_again_is_carried_out_if_none_was_before(harness: Harness) -> None:
    """The first request was rejected because the run had not ended yet."""
    died = harness.dead()

    redriven = harness.manage.redrive(died.key, None, asked_at=at("11:59"))

    assert redriven.state is RunState.PENDING


def test_of_two_that_redrive_at_once_one_dispatch_comes(harness: Harness) -> None:
    run = harness.dead()
    harness.faults.call_before_next(
        "runs.redrive", lambda: harness.manage.redrive(run.key, "other")
    )

    redriven = harness.manage.redrive(run.key, "mine")

    assert redriven.state is RunState.PENDING
    [entry] = harness.due.entries
    assert isinstance(entry, DispatchEntry)
    assert entry.dispatch == redriven.dispatch


def test_a_redrive_returns_the_current_state_of_a_run_that_has_ended(harness: Harness) -> None:
    run = harness.dead()

    def finish_first() -> None:
        redriven = harness.manage.redrive(run.key, None)
        harness.runs._store(replace(redriven, state=RunState.SUCCEEDED, dispatch=99))  # noqa: SLF001

    harness.faults.call_before_next("runs.redrive", finish_first)

    with pytest.raises(ConflictError) as refused:
        harness.manage.redrive(run.key, None)

    assert "is SUCCEEDED" in refused.value.problem


def test_a_paused_jobs_run_is_redriven(harness: Harness) -> None:
    run = harness.dead()
    harness.jobs.put(harness.job.paused(at("12:10"), None))

    assert harness.manage.redrive(run.key, None).state is RunState.PENDING


# Many runs


def test_the_dead_of_a_pool_are_redriven_page_by_page(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_runs, "TOGETHER", 2)
    runs = [harness.dead(run_key(at(f"{hour:02}:00"))) for hour in (12, 11, 10, 8, 7)]
    harness.dead(run_key(at("09:00")), pool="batch")
    ids = [run.key.execution_id for run in runs]

    redriven, skipped, cursor = harness.redrive_dead(limit=2)
    assert (redriven, skipped) == (ids[:2], {})
    assert harness.redrive_dead(cursor=cursor) == (ids[2:], {}, None)
    assert harness.redrive_dead() == ([], {}, None)
    assert len(harness.due.entries) == 5


def test_an_error_of_one_run_does_not_affect_the_others(harness: Harness) -> None:
    harness.registered("gone", uid="uid00009")
    spoilt, refused, fine = (
        harness.dead(run_key(at(time), job_id=job, uid=uid))
        for time, job, uid in (
            ("10:00", "gone", "uid00001"),
            ("11:00", "report", "uid00001"),
            ("12:00", "report", "uid00001"),
        )
    )
    harness.faults.refuse("runs.redrive")

    redriven, skipped, _ = harness.redrive_dead()

    assert redriven == [refused.key.execution_id]
    assert set(skipped) == {spoilt.key.execution_id, fine.key.execution_id}
    assert skipped[spoilt.key.execution_id] == "Its job was deleted."
    assert "Try again" in skipped[fine.key.execution_id]


def test_a_job_that_cannot_be_read_costs_its_own_runs_only(harness: Harness) -> None:
    harness.registered("other")
    harness.jobs.spoil(job_key("other"))
    broken = harness.dead(run_key(at("12:00"), job_id="other"))
    fine = harness.dead(run_key(at("11:00")))

    redriven, skipped, _ = harness.redrive_dead()

    assert redriven == [fine.key.execution_id]
    assert list(skipped) == [broken.key.execution_id]


def test_a_listing_of_a_moment_ago_starts_nothing_twice(harness: Harness) -> None:
    run = harness.dead()

    def redriven_and_succeeded() -> None:
        now = harness.manage.redrive(run.key, None)
        attempts = (*now.attempts, Attempt(2, "w", at("12:30")))
        harness.runs._store(  # noqa: SLF001 - as its worker would store it
            replace(now, state=RunState.SUCCEEDED, attempt=2, fence=2, attempts=attempts)
        )

    harness.faults.call_before_next("jobs.get", redriven_and_succeeded)

    redriven, skipped, _ = harness.redrive_dead()

    assert redriven == []
    assert skipped == {run.key.execution_id: "The execution is SUCCEEDED."}


def test_a_failed_listing_is_an_error(harness: Harness) -> None:
    harness.faults.refuse("runs.list_dead")

    with pytest.raises(UnavailableError):
        harness.redrive_dead()


def test_a_search_for_a_pools_dead_ends(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage_runs, "PAGES_AT_MOST", 3)
    for minute in range(10):
        harness.dead(run_key(at(f"12:{minute:02}")), pool="batch")

    page = harness.manage.dead(
        "acme", first=at("00:00"), last=at("13:00"), pool="default", cursor=None, limit=2
    )

    assert page.items == []
    assert page.cursor is not None
    follows = harness.runs.list_dead(
        "acme", first=at("00:00"), last=at("13:00"), cursor=page.cursor, limit=1
    )
    assert [run.key.scheduled_at for run in follows.items] == [at("12:03")]
