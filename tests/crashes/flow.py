"""A flow whose processes are killed at each call, and steps that flows share.

Each flow begins where its `prepare` has brought the system, on the day of `builders.NOON`. After
`act`, `Stack.settle` lets the system continue.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.quotas import NO_QUOTAS, Quotas, TenantQuotas
from nextfire.domain.run import RunState
from nextfire.targets.http.messages import Request, Response
from tests.builders import at, job_key
from tests.callbacks import response
from tests.crashes.names import POOL
from tests.crashes.processes import Api
from tests.crashes.stack import Stack
from tests.fakes import Killed, Script

SECOND = timedelta(seconds=1)
ONE_ATTEMPT = {"maxAttempts": 1}
EVERY_TEN = {"schedule": "*/10 * * * *"}
ONCE = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
LARGE = b'"' + 9000 * b"x" + b'"'
"""JSON that is too large for a record."""
ONE_JOB = TenantQuotas(default=Quotas(jobs=1))
HOURLY = {"type": "CRON", "schedule": "0 * * * *", "target": {"handler": "report"}}


class Flow:
    """One path through the system. `until`: the system runs at least to this time after it."""

    name = ""
    until = "12:00:10"
    job_role = False
    """Whether executors have a role for their scripts."""
    pool = POOL
    """The pool of the executors."""
    quotas = NO_QUOTAS
    """The quotas of the tenants."""
    allow_late_starts = False
    """See `assert_all_accounted_for`."""
    no_occurrences: frozenset[str] = frozenset()
    """Times with records that no longer match an occurrence."""
    lives = 3
    """After the death of this number of workers, the run has no attempt left."""

    def prepare(self, stack: Stack) -> None:
        """Bring the system to where the flow begins; processes do not die here."""

    def act(self, stack: Stack) -> None:
        """The flow itself: each of its calls is a crash point."""
        raise NotImplementedError

    def repeat(self, stack: Stack) -> None:
        """What a caller without an answer does; called a few times. No-op after an answer."""

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002 — for flows that use it
        """The behaviour of a script."""
        return Script()

    def respond(self, request: Request, number: int) -> Response:  # noqa: ARG002
        """The response to the request *number*, from 1, of a callback; see `Stack.respond`."""
        return response()

    def check(self, stack: Stack) -> None:
        """Check what is specific to this flow at rest; `Stack.assert_sound` checks what holds for
        all flows.
        """
        run = stack.run()
        lost = run.state is RunState.DEAD and stack.cloud.died["worker"] >= self.lives
        assert lost or run.state is RunState.SUCCEEDED, f"{run.state}: {run.reason}"


class RequestFlow(Flow):
    """A flow of an API request that the caller repeats until there is an answer."""

    def ask(self, api: Api, stack: Stack) -> object:
        raise NotImplementedError

    def act(self, stack: Stack) -> None:
        stack.ask(lambda api: self.ask(api, stack))

    def repeat(self, stack: Stack) -> None:
        if stack.answered is None:
            stack.ask(lambda api: self.ask(api, stack))


class WorkerFlow(Flow):
    """A flow of a worker, which processes what is in the queue."""

    def act(self, stack: Stack) -> None:
        stack.worker().work()


class WatcherFlow(Flow):
    """A flow of a watcher, which lives for a second."""

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)


def dates(*times: str) -> dict[str, Any]:
    """The schedule of a job that is due at *times*."""
    return {"type": "DATES", "schedule": [f"2026-05-24T{time}:00Z" for time in times]}


def attempt(call: ScriptCall) -> int:
    return int(call.environment["NEXTFIRE_ATTEMPT"])


def die() -> None:
    raise Killed


def dispatch(stack: Stack, time: str = "12:00", **job: Any) -> Job:
    """Register a job and send its occurrence at *time* to the queue."""
    registered = stack.register(**job)
    watch(stack, time)
    return registered


def watch(stack: Stack, time: str) -> None:
    """Run a watcher at *time* until nothing is due, then release its lease."""
    stack.at(time)
    watcher = stack.watcher()
    watcher.step()
    watcher.end()


def lose_worker(stack: Stack) -> None:
    """Let a worker die during the script; the flow's script raises `Killed`."""
    with suppress(Killed):
        stack.worker().work()


def run_key(time: str = "12:00", job_id: str = "report") -> RunKey:
    return RunKey(job_key(job_id), run_id(f"uid{job_id:0<6}", at(time)))
