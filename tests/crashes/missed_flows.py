"""Occurrences that are skipped as missed, or replaced by a later one."""

from __future__ import annotations

from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import RunState
from tests.accounting import covered, ran
from tests.builders import RUN_LATEST, SKIP
from tests.crashes.flow import ONCE, SECOND, WatcherFlow, dates, die, dispatch, lose_worker, watch
from tests.crashes.stack import Stack
from tests.fakes import Script


class CoverLatest(WatcherFlow):
    name = "cover missed: RUN_LATEST"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:57")
        stack.register(**dates("11:58", "11:59", "12:00", "12:01"), misfire=RUN_LATEST)
        stack.at("12:01:50")

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        assert covered(books, job) == ["11:58-12:00 (3)"]
        assert ran(books, job) == ["12:01"]


class SendLatest(CoverLatest):
    """The watcher sends the latest run with the list of missed ones; a worker records these, then
    runs it.
    """

    name = "send with missed: RUN_LATEST"

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)
        stack.worker().work()


class SendFresh(SendLatest):
    name = "send with missed: SKIP"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:57")
        stack.register(**dates("11:58", "11:59", "12:00", "12:01"), misfire=SKIP)
        stack.at("12:01:05")

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        if ran(books, job) == ["12:01"]:
            assert covered(books, job) == ["11:58-12:00 (3)"]
        else:  # it was late, too, by the time the dead were replaced
            assert stack.cloud.died["watcher"]
            assert "12:01" in covered(books, job)[-1]


class CoverBefore(CoverLatest):
    """A watcher stored a successor and vanished before it sent the first occurrence and deleted its
    entry. The first is missed now; its successor is not.
    """

    name = "cover missed: the successor is stored"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:57")
        stack.register(**dates("11:58", "11:59", "12:00"), misfire=RUN_LATEST)
        (first,) = stack.cloud.raw("due")
        watch(stack, "11:58")
        stack.system.database.put_item(TableName="due", Item=first)
        stack.purge()
        stack.at("11:59:30")

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        assert covered(books, job) == ["11:58-11:58 (1)"]
        assert ran(books, job) == ["11:59", "12:00"]


class CoverLast(CoverLatest):
    """The job has no further run: the watcher completes it."""

    name = "cover missed: SKIP, the last"

    def prepare(self, stack: Stack) -> None:
        stack.register(**ONCE, misfire=SKIP)
        stack.at("12:02")

    def check(self, stack: Stack) -> None:
        assert stack.run().state is RunState.SKIPPED
        assert stack.job().state is JobState.COMPLETED


class Replace(WatcherFlow):
    """The previous run has not ended when the next one is due; its worker vanished."""

    name = "overlap REPLACE: the previous run is running"
    until = "12:01:10"

    def prepare(self, stack: Stack) -> None:
        policy = {"maxAttempts": 3, "initialDelayMs": 600_000}
        dispatch(stack, **dates("12:00", "12:01"), overlap="REPLACE", retryPolicy=policy)
        lose_worker(stack)
        stack.at("12:01")

    def script(self, call: ScriptCall) -> Script:
        first = call.environment["NEXTFIRE_SCHEDULED_AT"] == "2026-05-24T12:00:00Z"
        return Script(meanwhile=die) if first else Script()

    def check(self, stack: Stack) -> None:
        assert stack.run("12:00").state is RunState.CANCELLED
        assert stack.run("12:01").state is RunState.SUCCEEDED
        assert stack.job().state is JobState.COMPLETED


class ReplaceWaiting(Replace):
    name = "overlap REPLACE: the previous run waits"

    def script(self, call: ScriptCall) -> Script:
        first = call.environment["NEXTFIRE_SCHEDULED_AT"] == "2026-05-24T12:00:00Z"
        return Script(exit_code=int(first))
