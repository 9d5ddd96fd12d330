"""What a request read before it changed it, and what it wrote: the stores, as the API has them,
note it by the way. It costs no read, and what no use case needs to read is not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.key_store import DynamoDbKeyStore
from nextfire.adapters.run_store import DynamoDbRunStore
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.keys import ApiKey
from nextfire.domain.run import Run

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Seen:
    """The latest reading of each thing by its id: a change that met another was made of the latest.
    `written`: the ids of the jobs that were.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)


_seen: ContextVar[Seen | None] = ContextVar("seen", default=None)


@contextmanager
def noting() -> Iterator[Seen]:
    """What is read within, as it comes."""
    found = Seen()
    before = _seen.set(found)
    try:
        yield found
    finally:
        _seen.reset(before)


class SideBySide(ThreadPoolExecutor):
    """What its threads read and write is of the request that has them do it."""

    def submit(self, call: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> Future[T]:
        context = copy_context()
        return super().submit(lambda: context.run(call, *given, **named))


class SeenJobs(DynamoDbJobStore):
    def get(self, key: JobKey) -> Job | None:
        job, seen = super().get(key), _seen.get()
        if seen is not None and job is not None:
            seen.jobs[key.job_id] = job
        return job

    def create(self, job: Job, *given: Any, **named: Any) -> Job | None:  # noqa: ANN401 — as is given
        there, seen = super().create(job, *given, **named), _seen.get()
        if seen is not None and (there is None or there.uid == job.uid):
            seen.written.add(job.key.job_id)
        return there

    def update(self, job: Job, *given: Any, **named: Any) -> bool:  # noqa: ANN401 — as is given
        done, seen = super().update(job, *given, **named), _seen.get()
        if seen is not None and done:
            seen.written.add(job.key.job_id)
        return done


class SeenRuns(DynamoDbRunStore):
    def get(self, key: RunKey) -> Run | None:
        run, seen = super().get(key), _seen.get()
        if seen is not None and run is not None:
            seen.runs[key.execution_id] = run
        return run


class SeenKeys(DynamoDbKeyStore):
    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        key, seen = super().get(tenant, key_id), _seen.get()
        if seen is not None and key is not None:
            seen.keys[key_id] = key
        return key
