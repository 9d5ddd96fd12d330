"""Runs cancelled and redriven, whoever else is at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import ConflictError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job, JobState
from nextfire.domain.run import Attempt, AttemptOutcome, Result, Run, RunState
from nextfire.usecases import manage_runs
from nextfire.usecases.manage_runs import ManageRuns, PendingOccurrence
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


class Desk:
    """Stores, and who looks after the runs in them. It is 12:30, and `report` is hourly."""

    def __init__(self) -> None:
        self.clock = Clock(at("12:30"))
        self.faults = Faults()
        self.due = MemoryDueStore()
        self.jobs = MemoryJobStore(self.due)
        self.runs = MemoryRunStore(self.due)
        self.job = self.registered()
        self.manage = ManageRuns(
            self.faults.through(self.jobs, "jobs"),
            self.faults.through(self.runs, "runs"),
            pools=("default", "batch"),
            retention=timedelta(days=90),
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
        """What was redriven is tried a second later, and fails."""
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
def desk() -> Desk:
    return Desk()


# Cancelling


def test_an_occurrence_that_is_claimed_meanwhile_is_asked_to_end(desk: Desk) -> None:
    key = run_key(at("12:00"))
    desk.faults.once_before("runs.cancel", desk.started)

    run = desk.manage.cancel(key, "why")

    assert (run.state, run.cancel_requested, run.cancel_reason) == (RunState.RUNNING, True, "why")


def test_a_run_that_ends_meanwhile_is_not_cancelled(desk: Desk) -> None:
    run = desk.started()
    ended = run.ended(RunState.SUCCEEDED, FAILED, at("12:01"))
    desk.faults.once_before("runs.stop", lambda: desk.runs.advance(run, ended))

    with pytest.raises(ConflictError) as refused:
        desk.manage.cancel(run.key, None)

    assert "is SUCCEEDED" in refused.value.problem


def test_a_run_is_asked_once(desk: Desk) -> None:
    run = desk.started()
    desk.manage.cancel(run.key, "first")

    again = desk.manage.cancel(run.key, "second")

    assert again.cancel_reason == "first"


def test_a_waiting_run_that_was_to_be_cancelled_when_it_ran_is_cancelled(desk: Desk) -> None:
    run = replace(desk.started(), state=RunState.PENDING, cancel_requested=True)
    desk.runs._store(run)  # noqa: SLF001 — no writer leaves one behind

    assert desk.manage.cancel(run.key, None).state is RunState.CANCELLED


def test_an_occurrence_of_a_paused_job_can_be_cancelled(desk: Desk) -> None:
    desk.jobs.put(desk.job.paused(at("11:30"), None))
    key = run_key(at("12:00"))
    assert isinstance(desk.manage.find(key), PendingOccurrence)

    assert desk.manage.cancel(key, None).state is RunState.CANCELLED
    with pytest.raises(NotFoundError):
        desk.manage.cancel(run_key(at("13:00")), None)


# Who is in the way of what waits


def starts(run: Run) -> Run:
    return run


def is_handed_back(run: Run) -> Run:
    return run.handed_back(Result(AttemptOutcome.HANDED_BACK, "shut down"), at("11:01"))


def is_to_be_retried_at(time: str) -> Callable[[Run], Run]:
    return lambda run: run.retrying(FAILED, at("11:01"), not_before=at(time))


@pytest.mark.parametrize(
    ("earlier", "in_the_way"),
    [
        (starts, True),
        (is_handed_back, True),
        (is_to_be_retried_at("12:00"), True),
        (is_to_be_retried_at("12:01"), False),
    ],
    ids=["it runs", "handed back", "retried at 12:00", "retried later"],
)
def test_an_occurrence_waits_for_an_earlier_run_whose_message_came_first(
    desk: Desk, earlier: Callable[[Run], Run], *, in_the_way: bool
) -> None:
    desk.registered(overlap="QUEUE")
    run = desk.started(run_key(at("11:00")))
    desk.runs.advance(run, earlier(run))

    waiting = desk.manage.find(run_key(at("12:00")))

    assert isinstance(waiting, PendingOccurrence)
    assert (f"waits for {run.key.execution_id}" in waiting.reason) is in_the_way


# Redriving


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (RunState.RUNNING, "It has not ended. Only a DEAD execution can be redriven."),
        (RunState.SUCCEEDED, "Only a DEAD execution can be redriven."),
    ],
)
def test_what_is_not_dead_is_not_redriven(desk: Desk, state: RunState, remedy: str) -> None:
    run = desk.started()
    if state.ended:
        desk.runs.advance(run, run.ended(state, FAILED, at("12:01")))

    with pytest.raises(ConflictError) as refused:
        desk.manage.redrive(run.key, None)

    assert (refused.value.problem, refused.value.remedy) == (f"The execution is {state}", remedy)


def test_what_is_not_dead_says_so_though_its_job_is_gone(desk: Desk) -> None:
    run = desk.started()
    desk.jobs.put(replace(desk.job, state=JobState.CANCELLED))

    with pytest.raises(ConflictError, match="RUNNING"):
        desk.manage.redrive(run.key, None)


def test_a_dead_run_gets_an_entry_in_its_jobs_present_pool(desk: Desk) -> None:
    job = desk.registered(target={"handler": "x", "pool": "batch"}, overlap="QUEUE", priority="LOW")
    run = desk.dead()

    redriven = desk.manage.redrive(run.key, None)

    assert (redriven.state, redriven.reason) == (RunState.PENDING, "redriven on request")
    [entry] = desk.due.entries
    assert isinstance(entry, DispatchEntry)
    assert (entry.at, entry.dispatch) == (at("12:30"), redriven.dispatch)
    assert (entry.pool, entry.rank, entry.exclusive) == (
        "batch",
        job.definition.priority.rank,
        True,
    )


def test_a_redrive_that_comes_again_does_nothing_once_it_was_begun_with(desk: Desk) -> None:
    died = desk.dead()
    asked_at = desk.clock.now()
    redriven = desk.manage.redrive(died.key, None, asked_at=asked_at)
    desk.clock.advance(seconds=1)
    assert desk.manage.redrive(died.key, None, asked_at=asked_at) == redriven
    died_again = desk.dies_again(died.key)

    assert desk.manage.redrive(died.key, None, asked_at=asked_at) == died_again
    later = desk.clock.advance(seconds=1)
    assert desk.manage.redrive(died.key, None, asked_at=later).state is RunState.PENDING


def test_what_somebody_else_has_redriven_waits_for_no_other(desk: Desk) -> None:
    died = desk.dead()
    desk.manage.redrive(died.key, None)
    later = desk.clock.advance(seconds=1)

    with pytest.raises(ConflictError, match="PENDING"):
        desk.manage.redrive(died.key, None, asked_at=later)
    desk.manage.cancel(died.key, None)
    with pytest.raises(ConflictError, match="CANCELLED"):
        desk.manage.redrive(died.key, None, asked_at=later)


def test_a_redrive_that_comes_again_is_carried_out_if_none_was_before(desk: Desk) -> None:
    """It was refused at first: the run had not ended then."""
    died = desk.dead()

    redriven = desk.manage.redrive(died.key, None, asked_at=at("11:59"))

    assert redriven.state is RunState.PENDING


def test_of_two_that_redrive_at_once_one_dispatch_comes(desk: Desk) -> None:
    run = desk.dead()
    desk.faults.once_before("runs.redrive", lambda: desk.manage.redrive(run.key, "other"))

    redriven = desk.manage.redrive(run.key, "mine")

    assert redriven.state is RunState.PENDING
    [entry] = desk.due.entries
    assert isinstance(entry, DispatchEntry)
    assert entry.dispatch == redriven.dispatch


def test_a_run_that_was_redriven_and_taken_meanwhile_is_told_as_it_is(desk: Desk) -> None:
    run = desk.dead()

    def overtakes() -> None:
        redriven = desk.manage.redrive(run.key, None)
        desk.runs._store(replace(redriven, state=RunState.SUCCEEDED, dispatch=99))  # noqa: SLF001

    desk.faults.once_before("runs.redrive", overtakes)

    with pytest.raises(ConflictError) as refused:
        desk.manage.redrive(run.key, None)

    assert "is SUCCEEDED" in refused.value.problem


def test_a_paused_jobs_run_is_redriven(desk: Desk) -> None:
    run = desk.dead()
    desk.jobs.put(desk.job.paused(at("12:10"), None))

    assert desk.manage.redrive(run.key, None).state is RunState.PENDING


# Many


def test_the_dead_of_a_pool_are_redriven_page_by_page(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_runs, "TOGETHER", 2)
    runs = [desk.dead(run_key(at(f"{hour:02}:00"))) for hour in (12, 11, 10, 8, 7)]
    desk.dead(run_key(at("09:00")), pool="batch")
    ids = [run.key.execution_id for run in runs]

    redriven, skipped, cursor = desk.redrive_dead(limit=2)
    assert (redriven, skipped) == (ids[:2], {})
    assert desk.redrive_dead(cursor=cursor) == (ids[2:], {}, None)
    assert desk.redrive_dead() == ([], {}, None)
    assert len(desk.due.entries) == 5


def test_what_one_run_meets_keeps_no_other(desk: Desk) -> None:
    desk.registered("gone", uid="uid00009")
    spoilt, refused, fine = (
        desk.dead(run_key(at(time), job_id=job, uid=uid))
        for time, job, uid in (
            ("10:00", "gone", "uid00001"),
            ("11:00", "report", "uid00001"),
            ("12:00", "report", "uid00001"),
        )
    )
    desk.faults.refuse("runs.redrive")

    redriven, skipped, _ = desk.redrive_dead()

    assert redriven == [refused.key.execution_id]
    assert set(skipped) == {spoilt.key.execution_id, fine.key.execution_id}
    assert skipped[spoilt.key.execution_id] == "Its job was deleted."
    assert "Try again" in skipped[fine.key.execution_id]


def test_a_job_that_cannot_be_read_costs_its_own_runs_only(desk: Desk) -> None:
    desk.registered("other")
    desk.jobs.spoil(job_key("other"))
    broken = desk.dead(run_key(at("12:00"), job_id="other"))
    fine = desk.dead(run_key(at("11:00")))

    redriven, skipped, _ = desk.redrive_dead()

    assert redriven == [fine.key.execution_id]
    assert list(skipped) == [broken.key.execution_id]


def test_a_listing_of_a_moment_ago_starts_nothing_twice(desk: Desk) -> None:
    run = desk.dead()

    def redriven_and_succeeded() -> None:
        now = desk.manage.redrive(run.key, None)
        attempts = (*now.attempts, Attempt(2, "w", at("12:30")))
        desk.runs._store(  # noqa: SLF001 - as its worker wrote it
            replace(now, state=RunState.SUCCEEDED, attempt=2, fence=2, attempts=attempts)
        )

    desk.faults.once_before("jobs.get", redriven_and_succeeded)

    redriven, skipped, _ = desk.redrive_dead()

    assert redriven == []
    assert skipped == {run.key.execution_id: "The execution is SUCCEEDED."}


def test_a_listing_that_fails_is_told(desk: Desk) -> None:
    desk.faults.refuse("runs.list_dead")

    with pytest.raises(UnavailableError):
        desk.redrive_dead()


def test_a_search_for_a_pools_dead_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage_runs, "PAGES_AT_MOST", 3)
    for minute in range(10):
        desk.dead(run_key(at(f"12:{minute:02}")), pool="batch")

    page = desk.manage.dead(
        "acme", first=at("00:00"), last=at("13:00"), pool="default", cursor=None, limit=2
    )

    assert page.items == []
    assert page.cursor is not None
    follows = desk.runs.list_dead(
        "acme", first=at("00:00"), last=at("13:00"), cursor=page.cursor, limit=1
    )
    assert [run.key.scheduled_at for run in follows.items] == [at("12:03")]
