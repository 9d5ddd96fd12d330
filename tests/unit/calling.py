"""Runs of jobs that call a URL, and a runner of such calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.targets import AttemptResult, Hold, RunControl
from nextfire.domain.run import Run
from tests.builders import at
from tests.world import World

HTTP = {"pool": "default", "http": {"url": "https://api.example.com/hooks"}}
UNAVAILABLE = Result(
    AttemptOutcome.FAILED, "503 Service Unavailable", call='{"status":503}', unavailable=True
)
IN_A_MINUTE = {"misfire": {"relevancyWindowSec": 60}, "retryPolicy": {"initialDelayMs": 10_000}}
FAILED = Result(AttemptOutcome.FAILED, "500 Internal Server Error")
OK = Result(AttemptOutcome.SUCCEEDED, "200 OK", call='{"status":200}')


@dataclass
class Calls:
    """A `TargetRunner` that responds with each of *results* in turn, and then with the last one.
    *hold*: what `admit` returns.
    """

    results: list[Result] = field(default_factory=lambda: [OK])
    hold: Hold | None = None
    made: list[RunKey] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    released: list[RunKey] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> Hold | None:  # noqa: ARG002
        self.first.append(first)
        return self.hold

    def release(self, job: Job, run: RunKey) -> None:  # noqa: ARG002
        self.released.append(run)

    def attempt(
        self,
        job: Job,  # noqa: ARG002
        run: Run,
        supervisor: RunControl,  # noqa: ARG002
        longest: timedelta,  # noqa: ARG002
    ) -> AttemptResult:
        self.made.append(run.key)
        self.meanwhile()
        return AttemptResult(self.results[min(len(self.made), len(self.results)) - 1])


def dispatched(world: World, **fields: Any) -> Job:
    job = world.register(target=HTTP, **fields)
    world.tick_at("12:00")
    return job


def key(job: Job) -> RunKey:
    return job.run_key(at("12:00"))


def retries(world: World) -> list[DispatchEntry]:
    return [entry for entry in world.entries if isinstance(entry, DispatchEntry)]
