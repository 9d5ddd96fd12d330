"""Requests about runs: cancel, redrive, run now, skip, backfill."""

from __future__ import annotations

from contextlib import suppress

from nextfire.domain.errors import ConflictError, NotFoundError
from nextfire.domain.job import Job
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.manage_backfills import BackfillRange
from nextfire.usecases.manage_runs import Redriven, was_started
from tests.accounting import ran
from tests.builders import at, job_key
from tests.crashes.flow import (
    EVERY_TEN,
    ONE_ATTEMPT,
    SECOND,
    Flow,
    RequestFlow,
    attempt,
    die,
    dispatch,
    lose_worker,
    run_key,
    watch,
)
from tests.crashes.processes import Api, Worker
from tests.crashes.stack import Stack
from tests.fakes import Killed, Script


class Cancel(RequestFlow):
    """After an answer, no further attempt begins."""

    attempts_before = 0

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.executions.cancel(run_key(), None)

    def check(self, stack: Stack) -> None:
        run = stack.run()
        # A repeated request, for lack of an answer, may find that the run is already CANCELLED.
        assert isinstance(stack.answered, Run | ConflictError)
        assert run.state is RunState.CANCELLED
        stack.assert_attempts(run, stack.starts.total() + self.attempts_before)
        assert stack.starts.total() == stack.starts_at_answer


class CancelUnclaimed(Cancel):
    name = "cancel: not taken yet"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)


class CancelWaiting(Cancel):
    name = "cancel: waits for its retry"
    attempts_before = 1

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 30_000})
        stack.worker().work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)


class CancelLost(Cancel):
    name = "cancel: its worker vanished"
    attempts_before = 1

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)
        lose_worker(stack)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(meanwhile=die)


class CancelRunning(Cancel):
    """A worker runs the script while the API process dies; the script fails and may be retried."""

    name = "cancel: runs"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 30_000})

    def act(self, stack: Stack) -> None:
        worker = Worker(stack.process("worker", bystander=True))

        def meanwhile() -> None:
            with suppress(Killed):
                super(CancelRunning, self).act(stack)
            stack.clock.advance(seconds=5)  # the worker checks for a cancel every 4 s

        stack.meanwhile = meanwhile
        worker.work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)


class Redrive(RequestFlow):
    name = "redrive: one"
    job_ids: tuple[str, ...] = ("report",)

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, retryPolicy=ONE_ATTEMPT)
        watch(stack, "12:00")
        stack.worker().work()

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.executions.redrive(run_key(), None)

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if attempt(call) == 1 else 0)

    def check(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            run = stack.run(job_id=job_id)
            # It has one attempt only, which a killed worker may have used up.
            died = stack.cloud.died["worker"] and run.state is RunState.DEAD
            assert died or run.state is RunState.SUCCEEDED
            stack.assert_attempts(run, 2)


class StartWaiting(RequestFlow):
    """The run makes its second attempt before its retry is due."""

    name = "redrive: waits for its retry"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 30_000})
        stack.worker().work()

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.executions.redrive(run_key(), None)

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if attempt(call) == 1 else 0)

    def check(self, stack: Stack) -> None:
        # A repeated request, for lack of an answer, may find that the run is due or has ended.
        assert isinstance(stack.answered, Run | ConflictError)
        run = stack.run()
        assert run.state is RunState.SUCCEEDED
        assert was_started(run)
        stack.assert_attempts(run, 2)


class RedrivePool(Redrive):
    name = "redrive: a pool"
    job_ids: tuple[str, ...] = ("first", "second", "third")

    def ask(self, api: Api, stack: Stack) -> object:
        done = api.executions.redrive_dead(
            "acme",
            "default",
            first=at("11:00"),
            last=stack.now,
            cursor=None,
            limit=100,
            reason=None,
            until=stack.now + SECOND,
        )
        assert isinstance(done, Redriven)
        # after a refusal in the result, the caller repeats the request
        return None if done.skipped else done


class RunNow(RequestFlow):
    """A caller without an answer repeats the request with the same id."""

    name = "run now"

    def prepare(self, stack: Stack) -> None:
        stack.register(payload={"a": 1}, overlap="QUEUE")
        stack.at("11:59:55")

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.request_runs.run_now(
            job_key(), payload="7", reason=None, request="r", asked_at=at("11:59:55")
        )

    def script(self, call: ScriptCall) -> Script:
        scheduled = call.environment["NEXTFIRE_SCHEDULED_AT"]
        assert (call.payload == "7") == (scheduled == "2026-05-24T11:59:55.001Z")
        return Script()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        runs = stack.snapshot().runs.all.values()
        states = [run.state for run in runs if run.request == "r"]
        assert states == [RunState.SUCCEEDED]


class SkipNext(RequestFlow):
    name = "skip next"
    until = "12:10:10"

    def prepare(self, stack: Stack) -> None:
        stack.register(**EVERY_TEN)
        stack.at("11:59:55")

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.skips.skip_next(job_key(), "a reason")

    def check(self, stack: Stack) -> None:
        skipped = stack.job().skips
        assert stack.run().skip_requested == (at("12:00") in skipped)
        assert isinstance(stack.answered, ConflictError) or skipped
        # A caller that has no answer before 12:00 skips the next occurrence instead.
        runs = [time for time in ("12:00", "12:10") if at(time) not in skipped]
        assert ran(stack.snapshot(), stack.job()) == runs


class Unskip(RequestFlow):
    name = "skip next: undone"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:55")
        stack.register()
        stack.api().skips.skip_next(job_key(), None)

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.skips.unskip(job_key())

    def check(self, stack: Stack) -> None:
        # A repeated request, for lack of an answer, may find that the undo is done.
        assert isinstance(stack.answered, Job | NotFoundError)
        super().check(stack)


class BeginBackfill(RequestFlow):
    """A caller without an answer repeats the request with the same id."""

    name = "backfill: begun"
    until = "12:00:30"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("11:59:55")

    def ask(self, api: Api, stack: Stack) -> object:
        wanted = BackfillRange(at("09:00"), at("12:00"))
        return api.backfills.begin(
            job_key(), wanted, backfill_id="b", asked_at=at("11:59:55"), now=stack.now
        )

    def check(self, stack: Stack) -> None:
        super().check(stack)
        for time in ("09:00", "10:00", "11:00"):
            run = stack.run(time)
            assert (run.state, run.trigger) == (RunState.SUCCEEDED, Trigger.BACKFILL)
        assert stack.job().backfill is None


class StopBackfill(BeginBackfill):
    name = "backfill: stopped"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        super().ask(stack.api(), stack)

    def ask(self, api: Api, stack: Stack) -> object:
        return api.backfills.stop(job_key(), now=stack.now)

    def check(self, stack: Stack) -> None:
        # A repeated request, for lack of an answer, may find that the backfill is stopped or
        # complete.
        assert isinstance(stack.answered, Job | NotFoundError)
        Flow.check(self, stack)
        assert stack.job().backfilling is None
