"""Identifiers. They are deterministic, so writes are idempotent.

Every id in a shared resource (queue, table) contains or hashes the tenant and the `uid` of the job.
So ids never collide across tenants, or between a job and a deleted job with the same id.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from nextfire.dataclass import dataclass
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut

JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
TENANT = re.compile(r"[^/#]{1,64}")
UID = re.compile(r"[a-z0-9]{8,32}")
RUN_ID = re.compile(rf"([0-9]{{8}}T[0-9]{{9}})Z-({UID.pattern})")
"""Groups: the scheduled instant to the millisecond, and the job's uid."""
AFTER_ALL_RUNS = "9"
"""Sorts after all run ids."""


class JobKey(NamedTuple):
    """Identifies a job. `tenant` never contains a slash; `job_id` matches `JOB_ID`."""

    tenant: str
    job_id: str

    def shard(self, shards: int) -> int:
        """The shard for the due entries of this job, 0 ≤ n < *shards*. Must never change."""
        digest = hashlib.blake2s(f"{self.tenant}/{self.job_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % shards


@dataclass(frozen=True, slots=True)
class RunKey:
    """Identifies a run. `run_id` starts with the scheduled instant: a job's runs sort by time."""

    job: JobKey
    run_id: str

    @property
    def execution_id(self) -> str:
        """The public id, e.g. ``job_a93f2.20260524T100000000Z-k3x9m2ab``."""
        return f"{self.job.job_id}.{self.run_id}"

    @property
    def scheduled_at(self) -> datetime:
        """The scheduled instant, parsed from the id."""
        return _instant(_parts(self.run_id)[0])

    @property
    def uid(self) -> str:
        """The `uid` of the job, parsed from the id."""
        return _parts(self.run_id)[1]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of the attempts of a run in one pool. `pool`: None for files that a version without
    separate pools wrote.
    """

    key: RunKey
    pool: str | None


def run_id(uid: str, scheduled_at: datetime) -> str:
    """The id of the run for the occurrence at *scheduled_at*. Deterministic."""
    return f"{first_run_id(scheduled_at)}-{uid}"


@lru_cache(maxsize=4096)
def first_run_id(at: datetime) -> str:
    """A sort key bound: sorts before the ids of runs scheduled at *at* or later, and after the ids
    of earlier runs.
    """
    at = cut(at)
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"


def parse_execution_id(tenant: str, text: str) -> RunKey:
    """Parse the public execution id *text*. The run always belongs to *tenant*.

    Raises:
        InvalidInputError: *text* is not in the format of an execution id.
    """
    job_id, _, rest = text.partition(".")
    if not JOB_ID.fullmatch(job_id) or not RUN_ID.fullmatch(rest):
        raise InvalidInputError(
            "executionId",
            text,
            "not an execution id",
            "Use an id from the list of executions of the job.",
        )
    return RunKey(JobKey(tenant, job_id), rest)


def dedup_id(key: RunKey, dispatch: int, resumed_as: int | None = None) -> str:
    """The FIFO deduplication id of a dispatch, 64 characters. Resending a dispatch keeps its id,
    unless its job was resumed in between: *resumed_as* is the schedule version since then.
    """
    again = () if resumed_as is None else (str(resumed_as),)
    return _digest(key.job.tenant, key.job.job_id, key.run_id, str(dispatch), *again)


def unsent_dispatch(latest: int) -> int:
    """A number of a dispatch that was not sent before, of a run whose record has *latest*: the
    queue drops a number that was sent in the last 5 minutes. Numbers after *latest* were sent
    before if the run waited, or if a worker died before it recorded a retry.
    """
    number = latest + MOST_WAITS
    return _AFTER_SIGNALS if number <= SIGNALS[-1] < number + MOST_WAITS else number


SIGNALS = range(1_000_000, 1_000_003)
"""Numbers of dispatches that say something else about a run and never start it."""
MOST_WAITS = 10_000
"""More waits than a run has in three days. Each has a dispatch, which its record does not count."""
_AFTER_SIGNALS = 2_000_000


def group_id(key: RunKey, *, exclusive: bool = False, max_concurrent: int | None = None) -> str:
    """The FIFO message group of a run, 64 characters.

    By default each run has its own group, so runs do not wait for each other. *exclusive*: all runs
    of the job share a group, so they run one after the other. *max_concurrent*: all runs
    of the tenant are distributed across this number of groups, which limits the concurrent runs;
    the runs of an exclusive job still share one group.
    """
    alone = _digest(key.job.tenant, key.job.job_id, key.uid if exclusive else key.run_id)
    if max_concurrent is None:
        return alone
    return _digest(key.job.tenant, "", str(int(alone, 16) % max_concurrent))


def content_id(text: str) -> str:
    """An id derived from *text* alone, 64 characters."""
    return _digest(text)


def _digest(*parts: str) -> str:
    # No part can contain a unit separator, so the joined text is unambiguous.
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _instant(stamp: str) -> datetime:
    # On the hot path: strptime takes twenty times as long.
    return datetime.fromisoformat(f"{stamp[:15]}.{stamp[15:]}").replace(tzinfo=UTC)


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[str, str]:
    """The digits of the scheduled instant, which may not be a date, and the uid."""
    match = RUN_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a run id")
    stamp, uid = match.groups()
    return stamp, uid
