"""Quotas of jobs and runs. `Stack.assert_sound` checks the count of jobs for every flow."""

from __future__ import annotations

import pytest

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import NotFoundError, QuotaUsedUpError
from nextfire.domain.instants import MINUTE
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.quotas import Quotas, TenantQuotas
from nextfire.domain.run import RunState
from tests.accounting import ran
from tests.builders import RUN_LATEST, at, job_key
from tests.crashes.executor_flows import Settle
from tests.crashes.flow import (
    ONCE,
    ONE_JOB,
    SECOND,
    RequestFlow,
    WatcherFlow,
    dates,
    dispatch,
    watch,
)
from tests.crashes.job_flows import Delete, EndOfPause, Register
from tests.crashes.missed_flows import CoverLast
from tests.crashes.processes import Api
from tests.crashes.run_flows import CancelRunning
from tests.crashes.stack import Stack
from tests.fakes import Script


class RegisterCounted(Register):
    name = "quota of jobs: register"
    quotas = ONE_JOB


class DeleteCounted(Delete):
    """Afterwards the quota has room for exactly one other job."""

    name = "quota of jobs: delete"
    quotas = ONE_JOB

    def check(self, stack: Stack) -> None:
        super().check(stack)
        stack.register("other")
        with pytest.raises(QuotaUsedUpError):
            stack.register("beyond")


class DeleteRunning(CancelRunning):
    """The only run of the job runs while the job is deleted: the job is completed once or not at
    all.
    """

    name = "quota of jobs: delete, the last run runs"
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE)

    def ask(self, api: Api, stack: Stack) -> object:
        return api.jobs.delete(job_key(), now=stack.now)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script()

    def check(self, stack: Stack) -> None:
        assert isinstance(stack.answered, Job | NotFoundError)
        assert stack.job().state is JobState.CANCELLED


class SettleCounted(Settle):
    name = "quota of jobs: settle"
    quotas = ONE_JOB


class CoverLastCounted(CoverLast):
    name = "quota of jobs: cover missed, the last"
    quotas = ONE_JOB


class Revive(RequestFlow):
    """A COMPLETED job is changed so that it fires again, and completes again."""

    name = "quota of jobs: a completed job is revived"
    until = "12:10:10"
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE)
        stack.worker().work()

    def ask(self, api: Api, stack: Stack) -> object:
        def edit(definition: JobDefinition) -> JobDefinition:
            again = {"schedule": "2026-05-24T12:10:00Z"}
            return JobDefinition.model_validate(definition.document() | again)

        return api.jobs.change(job_key(), edit, now=stack.now)

    def check(self, stack: Stack) -> None:
        assert ran(stack.snapshot(), stack.job()) == ["12:00", "12:10"]
        assert stack.job().state is JobState.COMPLETED


class EndOfLastPause(EndOfPause):
    """The last run ended during the pause: on resumption, the job is COMPLETED."""

    name = "quota of jobs: a job ends with its pause"
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        stack.at("11:54")
        dispatch(stack, "11:55", **dates("11:55"))
        stack.api().jobs.pause(job_key(), None, now=stack.now, until=at("12:05"))
        stack.worker().work()
        stack.at("12:05")

    def check(self, stack: Stack) -> None:
        assert stack.job().state is JobState.COMPLETED
        assert ran(stack.snapshot(), stack.job()) == ["11:55"]


class TickWithRates(WatcherFlow):
    """Of three due runs, one waits for the next minute, or longer if its watcher died between
    counting and sending.
    """

    name = "quotas of runs: tick"
    until = "12:01:10"
    quotas = TenantQuotas(default=Quotas(runs_per_minute=2, concurrent_runs=1))
    job_ids: tuple[str, ...] = ("first", "second", "third")

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, misfire=RUN_LATEST)
        stack.at("12:00")

    def check(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            run = stack.run(job_id=job_id)
            assert run.state is RunState.SUCCEEDED
            stack.assert_attempts(run, 1)
        assert max(stack.sent_per_minute.values()) <= 2


class TickOfWaiting(TickWithRates):
    """The next minute has begun for the waiting run."""

    name = "quotas of runs: the next minute"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        watch(stack, "12:00")
        stack.at("12:01")


class Park(TickWithRates):
    """Of four runs, one can be sent per minute. The last one is parked twice, the second time for
    two minutes, and is sent earlier, when the quota of the third minute is free.
    """

    name = "watcher: a parked entry is sent before its minute"
    until = "12:05:30"
    quotas = TenantQuotas(default=Quotas(runs_per_minute=1))
    job_ids = ("first", "second", "third", "fourth")

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, misfire=RUN_LATEST)
        for time in ("12:00", "12:01"):
            watch(stack, time)
        stack.at("12:02")

    def act(self, stack: Stack) -> None:
        watcher = stack.watcher()
        watcher.live(SECOND)
        stack.at("12:03:06")
        watcher.live(SECOND)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        # A second death between counting and sending costs the quota of another minute.
        latest = at("12:04") + max(stack.cloud.died["watcher"] - 1, 0) * MINUTE
        assert max(stack.sent_per_minute) <= latest, stack.sent_per_minute


class TakeOverWithRates(TickWithRates):
    """The holder sent all runs of the minute and vanished: the watcher that takes over sends no
    more in it.
    """

    name = "quotas of runs: a takeover of the lease"

    def prepare(self, stack: Stack) -> None:
        for job_id in ("first", "second"):
            stack.register(job_id, misfire=RUN_LATEST)
        late = {"type": "ONCE", "schedule": "2026-05-24T12:00:02Z"}
        stack.register("third", misfire=RUN_LATEST, **late)
        stack.at("12:00")
        stack.watcher().step()

    def act(self, stack: Stack) -> None:
        stack.watcher().live(4 * SECOND)

    def check(self, stack: Stack) -> None:
        runs = [stack.run(job_id="first"), stack.run(job_id="second")]
        runs.append(stack.run("12:00:02", "third"))
        assert {run.state for run in runs} == {RunState.SUCCEEDED}
        minutes = stack.sent_per_minute
        assert minutes == {at("12:00"): 2, at("12:01"): 1}, f"sent: {minutes}"
