"""Runs of an executor: outcomes, retries, deaths, and runs that do not start."""

from __future__ import annotations

from datetime import timedelta

from nextfire.domain.ids import RunFolder
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import RunState
from tests.builders import RUN_ALL, job_key
from tests.crashes.flow import (
    LARGE,
    ONCE,
    ONE_ATTEMPT,
    SECOND,
    WorkerFlow,
    attempt,
    dates,
    die,
    dispatch,
    lose_worker,
    run_key,
    watch,
)
from tests.crashes.process import Process
from tests.crashes.stack import Stack
from tests.fakes import Script


class Succeed(WorkerFlow):
    name = "claim, finish: success"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)


class SucceedInLambda(Succeed):
    name = "claim, finish: on Lambda"

    def act(self, stack: Stack) -> None:
        stack.invoked().work()


class InTurn(SucceedInLambda):
    """Two runs of a job without overlap arrive at Lambda in one batch."""

    name = "claim, finish: in turn, on Lambda"
    until = "12:01:20"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **dates("12:00", "12:01"), overlap="QUEUE", misfire=RUN_ALL)
        watch(stack, "12:01")

    def check(self, stack: Stack) -> None:
        first, second = stack.run("12:00"), stack.run("12:01")
        assert {first.state, second.state} <= {RunState.SUCCEEDED, RunState.DEAD}
        if stack.cloud.died["worker"] < self.lives:
            assert first.state is second.state is RunState.SUCCEEDED


class SucceedWithSecrets(Succeed):
    """The script's environment refers to a secret and to a parameter; the script assumes a role."""

    name = "claim, finish: secrets and a role"
    job_role = True

    def prepare(self, stack: Stack) -> None:
        process = Process(stack.cloud, "test", counted=False)
        process.secrets.create_secret(Name="nextfire/pools/default/acme/db", SecretString="xyz")
        process.parameters.put_parameter(
            Name="/nextfire/pools/default/acme/url", Value="abc", Type="String"
        )
        env = {"A": {"secret": "db"}, "B": {"parameter": "url"}}
        dispatch(stack, target={"handler": "report", "env": env})


class Heartbeat(Succeed):
    """A long script that prints, saves a checkpoint and returns a result."""

    name = "heartbeat"

    def script(self, call: ScriptCall) -> Script:
        lasts = timedelta(seconds=25 if attempt(call) == 1 else 0)
        return Script(lasts=lasts, stdout="a line\n" * 500, saves=LARGE, result=LARGE)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        result = stack.run().result
        assert result is not None
        assert result.file is not None
        answer = stack.system.files.get(RunFolder(run_key(), "default"), result.file)
        assert answer == LARGE


class Retry(Succeed):
    name = "finish: failure, a retry"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 2_000})

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if attempt(call) == 1 else 0, stdout="a line\n")


class Death(Succeed):
    name = "finish: death"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy=ONE_ATTEMPT)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)

    def check(self, stack: Stack) -> None:
        # assert_sound checks that the death was published
        assert stack.run().state is RunState.DEAD


class Settle(Succeed):
    name = "settle: the last run"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.job().state is JobState.COMPLETED


class SettleDeath(Death):
    name = "settle: the last run dies"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE, retryPolicy=ONE_ATTEMPT)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.job().state is JobState.COMPLETED


class OverlapSkip(WorkerFlow):
    """The previous run had not ended when this one was due."""

    name = "overlap SKIP"
    until = "12:01:40"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **dates("12:00", "12:01"), overlap="SKIP")

        def meanwhile() -> None:
            watch(stack, "12:01")
            stack.clock.advance(seconds=1)

        stack.meanwhile = meanwhile
        stack.worker().work(most=1)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(lasts=30 * SECOND)

    def check(self, stack: Stack) -> None:
        assert stack.run("12:00").state is RunState.SUCCEEDED
        assert stack.run("12:01").state is RunState.SKIPPED
        assert stack.job().state is JobState.COMPLETED


class TooLate(WorkerFlow):
    """The message waited longer than the run's relevancy window."""

    name = "skip: too late"
    until = "12:01:10"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE, misfire={"policy": "SKIP", "relevancyWindowSec": 30})
        stack.at("12:01")

    def check(self, stack: Stack) -> None:
        assert stack.run().state is RunState.SKIPPED
        assert stack.job().state is JobState.COMPLETED
        assert not stack.starts


class JobDeleted(WorkerFlow):
    """A worker vanished, and then the job was deleted."""

    name = "claim: the job was deleted"
    until = "12:01:20"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)
        lose_worker(stack)
        stack.api().jobs.delete(job_key(), now=stack.now)
        stack.at("12:01:01")

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(meanwhile=die)

    def check(self, stack: Stack) -> None:
        assert stack.run().state is RunState.CANCELLED
        assert stack.starts.total() == 0


class Undecodable(WorkerFlow):
    name = "a message does not decode"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)
        stack.system.send("rubbish", group="a", dedup="a")

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert "rubbish" in stack.letters
        assert "Message Undecodable" in stack.published
