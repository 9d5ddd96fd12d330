"""Workers that stop, or die with runs that others continue."""

from __future__ import annotations

from contextlib import suppress

from nextfire.adapters.worker.journal import HeldMessage
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import Run, RunState
from tests.builders import LEASE, at
from tests.crashes.executor_flows import Succeed
from tests.crashes.flow import ONE_ATTEMPT, Flow, attempt, die, dispatch, lose_worker, watch
from tests.crashes.stack import Stack
from tests.fakes import Killed, Script


class HandBack(Succeed):
    """The worker gets SIGTERM while its script runs."""

    name = "hand-back"

    def act(self, stack: Stack) -> None:
        worker = stack.worker()
        stack.meanwhile = worker.stop
        worker.work()


class TakeOver(Succeed):
    name = "takeover of a lost worker's run"
    lives = 2
    until = "12:01:20"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        lose_worker(stack)
        stack.at("12:01:01")

    def script(self, call: ScriptCall) -> Script:
        return Script(meanwhile=die) if attempt(call) == 1 else Script()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.run().attempt >= 2


class BuryLost(TakeOver):
    name = "death of a lost worker's run"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy=ONE_ATTEMPT)
        lose_worker(stack)
        stack.at("12:01:01")

    def check(self, stack: Stack) -> None:
        run = stack.run()
        assert (run.state, run.attempt) == (RunState.DEAD, 1)


class GiveBack(Flow):
    """The supervisor hands back what a dead worker held: a run, and a message without a claim."""

    name = "lost worker: hand back what it held"
    job_ids = ("first", "second")
    held: tuple[HeldMessage, ...] = ()
    loses = False

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id)
        watch(stack, "12:00")
        worker, self.loses = stack.worker(), True
        with suppress(Killed):
            worker.work(most=1)
        self.loses = False
        worker.receive()
        self.held = tuple(worker.journal.held())
        assert len(self.held) == len(self.job_ids)

    def act(self, stack: Stack) -> None:
        stack.supervisor(self.held)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(meanwhile=die) if self.loses else Script()

    def check(self, stack: Stack) -> None:
        runs = [stack.run(job_id=job_id) for job_id in self.job_ids]
        lost = stack.cloud.died["worker"] >= self.lives - 1
        assert lost or {run.state for run in runs} == {RunState.SUCCEEDED}
        more = stack.cloud.died["worker"]
        assert 3 <= sum(run.attempt for run in runs) <= 3 + more
        if not stack.cloud.died:
            assert_before_the_lease_ends(*runs)


class DieSupervised(Succeed):
    """The worker dies at any of its calls. What it held is retried before the lease ends."""

    name = "lost worker: its supervisor survives"
    held: tuple[HeldMessage, ...] | None = None

    def act(self, stack: Stack) -> None:
        self.held, worker = None, stack.worker()
        try:
            worker.work()
        except Killed:
            self.held = tuple(worker.journal.held())
            stack.supervisor(self.held)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        # A message is hidden until the lease ends if the worker never saw its receipt.
        if self.held and stack.cloud.died.total() == 1:
            assert_before_the_lease_ends(stack.run())


def assert_before_the_lease_ends(*runs: Run) -> None:
    for run in runs:
        assert run.finished_at is not None
        assert run.finished_at < at("12:00") + LEASE / 2, f"{run.key.run_id}: {run.finished_at}"
