"""Requests about runs that are repeated under an idempotency key, to the API's handler."""

from __future__ import annotations

from http import HTTPStatus

from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import RunState, Trigger
from tests.crashes.flow import ONE_ATTEMPT, SECOND, Flow, watch
from tests.crashes.repeated_requests import Sent
from tests.crashes.stack import Stack
from tests.fakes import Script


class RunNowAgain(Sent):
    name = "sent again: run now"
    path = "/v1/jobs/report/run"
    body = {"payload": 7}  # noqa: RUF012

    def check(self, stack: Stack) -> None:
        super().check(stack)
        runs = stack.snapshot().runs.all.values()
        [run] = [run for run in runs if run.trigger is Trigger.MANUAL]
        assert run.state is RunState.SUCCEEDED
        stack.assert_attempts(run, 1)
        assert {each["resource"]["executionId"] for each in stack.audited} == {run.key.execution_id}
        Flow.check(self, stack)


class RedriveAgain(Sent):
    """The run would die again before a second redrive."""

    name = "sent again: redrive"
    status = HTTPStatus.OK

    def prepare(self, stack: Stack) -> None:
        stack.register(retryPolicy=ONE_ATTEMPT)
        watch(stack, "12:00")
        stack.worker().work()
        self.path = f"/v1/executions/{stack.run().key.execution_id}/redrive"

    def repeat(self, stack: Stack) -> None:
        if len(stack.answers) < 2:
            stack.clock.advance(seconds=1)
            stack.watcher().live(SECOND)
            stack.worker().work()
            self.act(stack)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert {first.status, second.status} == {self.status}
        self.check_audit(stack)
        run = stack.run()
        assert run.state is RunState.DEAD
        stack.assert_attempts(run, 2)


class SkipNextAgain(Sent):
    """The request names no occurrence: whenever it arrives, another occurrence is the next."""

    name = "sent again: skip next"
    path = "/v1/jobs/report/skip-next"
    status = HTTPStatus.OK
    until = "12:02:10"

    def prepare(self, stack: Stack) -> None:
        stack.register(schedule="* * * * *")
        stack.at("11:59:52")

    def repeat(self, stack: Stack) -> None:
        if len(stack.answers) < 2:
            stack.clock.advance(minutes=1)
            self.act(stack)

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert {first.status, second.status} == {self.status}
        self.check_audit(stack)
        assert len(stack.job().skips) == 1


class BackfillAgain(Sent):
    name = "sent again: backfill"
    until = "12:00:30"
    path = "/v1/jobs/report/backfill"
    body = {"from": "2026-05-24T10:00:00Z", "to": "2026-05-24T12:00:00Z"}  # noqa: RUF012
    status = HTTPStatus.ACCEPTED

    def check(self, stack: Stack) -> None:
        super().check(stack)
        Flow.check(self, stack)
        for time in ("10:00", "11:00"):
            run = stack.run(time)
            assert (run.state, run.trigger) == (RunState.SUCCEEDED, Trigger.BACKFILL)
            stack.assert_attempts(run, 1)
        assert stack.job().backfill is None
        assert stack.job().revision == 3
