"""Records the items that a request read and wrote, for the audit event. The stores of the API
record them without extra reads: an item that no use case reads is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from nextfire.dataclass import dataclass, field
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.keys import ApiKey
from nextfire.domain.ports.access import KeyStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Page
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class RequestRecord:
    """The latest version read of each item, by id: after a lost race, a change uses the
    latest. `written`: ids of the jobs that were written.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)


_seen: ContextVar[RequestRecord | None] = ContextVar("seen", default=None)


@contextmanager
def noting() -> Iterator[RequestRecord]:
    """Record what is read and written in this context."""
    found = RequestRecord()
    before = _seen.set(found)
    try:
        yield found
    finally:
        _seen.reset(before)


class RequestThreadPool(ThreadPoolExecutor):
    """A thread pool whose calls run in the context of the request that submits them."""

    def submit(self, call: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> Future[T]:
        context = copy_context()
        return super().submit(lambda: context.run(call, *given, **named))


class _Wrapper:
    """Passes everything on to a store, except for the methods that a subclass defines."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401 — the port of the subclass
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — as above
        return getattr(self._store, name)


class RecordingJobStore(_Wrapper):
    """Wraps a `JobStore`."""

    _store: JobStore

    def get(self, key: JobKey) -> Job | None:
        job, seen = self._store.get(key), _seen.get()
        if seen is not None and job is not None:
            seen.jobs[key.job_id] = job
        return job

    def create(self, job: Job, *given: Any, **named: Any) -> Job | None:  # noqa: ANN401 — as is given
        existing, seen = self._store.create(job, *given, **named), _seen.get()
        if seen is not None and (existing is None or existing.uid == job.uid):
            seen.written.add(job.key.job_id)
        return existing

    def update(self, job: Job, *given: Any, **named: Any) -> bool:  # noqa: ANN401 — as is given
        done, seen = self._store.update(job, *given, **named), _seen.get()
        if seen is not None and done:
            seen.written.add(job.key.job_id)
        return done


class RecordingRunStore(_Wrapper):
    """Wraps a `RunStore`."""

    _store: RunStore

    def get(self, key: RunKey) -> Run | None:
        run, seen = self._store.get(key), _seen.get()
        if seen is not None and run is not None:
            seen.runs[key.execution_id] = run
        return run

    def find(self, keys: Sequence[RunKey], *, consistent: bool = False) -> Page[Run]:
        page, seen = self._store.find(keys, consistent=consistent), _seen.get()
        if seen is not None:
            seen.runs |= {run.key.execution_id: run for run in page.items}
        return page


class RecordingKeyStore(_Wrapper):
    """Wraps a `KeyStore`."""

    _store: KeyStore

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        key, seen = self._store.get(tenant, key_id), _seen.get()
        if seen is not None and key is not None:
            seen.keys[key_id] = key
        return key
