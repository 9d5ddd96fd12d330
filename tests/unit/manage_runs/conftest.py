"""An hourly job at 12:30, its runs, and the use case that cancels and redrives them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.manage_runs import ManageRuns
from tests.builders import a_job, a_message, at, claim_run, run_key
from tests.fakes import (
    Clock,
    Faults,
    InlineExecutor,
    MemoryDueStore,
    MemoryJobStore,
    MemoryRunStore,
)

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
        claim = claim_run(self.runs, a_message(key), key.scheduled_at, pool=pool)
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
        run = claim_run(
            self.runs, a_message(key, dispatch=redriven.dispatch), now, token="again"
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
