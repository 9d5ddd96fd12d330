"""What a request read before it changed it: the stores, as the API has them, note it by the way. It
costs no read, and what no use case needs to read is not noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.key_store import DynamoDbKeyStore
from nextfire.adapters.run_store import DynamoDbRunStore
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.keys import ApiKey
from nextfire.domain.run import Run


@dataclass
class Seen:
    """The latest reading of each thing by its id. A change that met another was made of the latest.

    Only what the thread of the request itself read: what is read side by side is many things, of
    which no event tells what they were.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)


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


class SeenJobs(DynamoDbJobStore):
    def get(self, key: JobKey) -> Job | None:
        job, seen = super().get(key), _seen.get()
        if seen is not None and job is not None:
            seen.jobs[key.job_id] = job
        return job


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
