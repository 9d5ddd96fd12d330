"""The flows of runs that make HTTP callbacks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import PROBE_AFTER, EndpointKey, EndpointState
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.targets.http.messages import CallFailedError, Failure, Request, Response
from nextfire.usecases.breaker import Breaker
from tests.builders import at
from tests.callbacks import response
from tests.crashes.flow import Flow, WorkerFlow, dispatch
from tests.crashes.names import POOL
from tests.crashes.stack import Stack

CALL: dict[str, Any] = {
    "target": {"pool": POOL, "http": {"url": "https://api.example.com/hooks"}},
    "timeoutSec": 5,
}
ENDPOINT = EndpointKey(POOL, "acme", "api.example.com:443")


class Call(WorkerFlow):
    """One call. What the executor of a run sends again has the same idempotency key."""

    name = "call"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **CALL)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        run = stack.run()
        assert {each["Idempotency-Key"] for each in stack.sent} == {run.key.execution_id}
        assert len(stack.sent) <= 1 + stack.cloud.died["worker"]


class LostResponse(Call):
    """The receiver acted on the first request; its response was lost."""

    name = "call: the response is lost"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **CALL, retryPolicy={"maxAttempts": 4, "initialDelayMs": 2_000})

    def respond(self, request: Request, number: int) -> Response:  # noqa: ARG002
        if number == 1:
            raise CallFailedError(Failure.TIMEOUT, "no response", sent=True)
        return response()

    def check(self, stack: Stack) -> None:
        run = stack.run()
        assert run.state is RunState.SUCCEEDED, f"{run.state}: {run.reason}"
        assert {each["Idempotency-Key"] for each in stack.sent} == {run.key.execution_id}


class Deferred(Call):
    """The destination is not available at first: no attempt counts."""

    name = "call: deferred"
    until = "12:02"

    def respond(self, request: Request, number: int) -> Response:  # noqa: ARG002
        return response(503 if number == 1 else 200)

    def check(self, stack: Stack) -> None:
        run = stack.run()
        outcomes = [each.outcome for each in run.attempts]
        if not stack.cloud.died["worker"]:
            # The answer to a claim may be lost: then its lease has to end first.
            counted = [each for each in outcomes if each is not AttemptOutcome.WORKER_LOST]
            assert counted == [AttemptOutcome.DEFERRED, AttemptOutcome.SUCCEEDED]
        lost = run.state is RunState.DEAD and stack.cloud.died["worker"] >= self.lives
        assert lost or run.state is RunState.SUCCEEDED, f"{run.state}: {run.reason}"


class Gone(Call):
    """The receiver wants no more callbacks: the job is paused, and the run is DEAD."""

    name = "call: gone"

    def respond(self, request: Request, number: int) -> Response:  # noqa: ARG002
        return response(410)

    def check(self, stack: Stack) -> None:
        run, job = stack.run(), stack.job()
        assert run.state is RunState.DEAD
        if run.reason and run.reason.startswith("410"):
            assert job.state is JobState.PAUSED
            assert "410 Gone" in (job.pause_reason or "")


class Probe(Call):
    """The endpoint is down, and the run is its probe."""

    name = "call: a probe"
    until = "12:10"

    def prepare(self, stack: Stack) -> None:
        stack.clock.move_to(at("12:00") - PROBE_AFTER - timedelta(seconds=1))
        breaker = Breaker(stack.endpoints, POOL, stack.clock)
        for _ in range(5):
            breaker.report("acme", ENDPOINT.destination, "down")
        super().prepare(stack)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        endpoint = stack.endpoints.get(ENDPOINT)
        # A process that cannot read the endpoint calls it and leaves it as it is. If it cannot
        # close it, the next probe does.
        closed = endpoint is None or endpoint.state is EndpointState.CLOSED
        assert closed or _has_failed(stack, "get") or _has_failed(stack, "_replace")


class Limited(Call):
    """One call at a time: the place of a dead executor ends."""

    name = "call: limited"
    until = "12:10"

    def prepare(self, stack: Stack) -> None:
        stack.api().endpoints.limit(ENDPOINT, CallLimit(60, 1), stack.now)
        super().prepare(stack)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        flow = stack.endpoints.flow(ENDPOINT)
        assert flow is not None or _has_failed(stack, "get")
        assert flow is None or all(until <= stack.now for until in flow.places.values())


class Held(Call):
    """A user pauses the endpoint, and resumes it while the run waits."""

    name = "call: held"
    until = "12:20"

    def prepare(self, stack: Stack) -> None:
        stack.api().endpoints.pause(ENDPOINT, "maintenance", stack.now)
        super().prepare(stack)

    def act(self, stack: Stack) -> None:
        super().act(stack)
        self.repeat(stack)

    def repeat(self, stack: Stack) -> None:
        if stack.answered is None:
            stack.ask(lambda api: api.endpoints.resume(ENDPOINT, stack.now))

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.run().attempt <= 1 + stack.cloud.died["worker"]


def _has_failed(stack: Stack, operation: str) -> bool:
    """Whether a call of the endpoint store was not answered."""
    return f"endpoint_store.DynamoDbEndpointStore.{operation}" in stack.cloud.unanswered


CALL_FLOWS: list[Flow] = [
    *(Call(), LostResponse(), Deferred(), Gone(), Probe(), Limited(), Held()),
]
