"""Identities: how they are formed, so that writing one thing twice is harmless.

Every id that reaches a shared resource (queue, table) contains or hashes the tenant and the job's
`uid`, so no two tenants share one and a job made again under its old id shares nothing with its
past.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut

JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
TENANT = re.compile(r"[^/#]{1,64}")
UID = re.compile(r"[a-z0-9]{8,32}")
_RUN_ID = re.compile(rf"([0-9]{{8}}T[0-9]{{9}})Z-({UID.pattern})")


class JobKey(NamedTuple):
    """Which job: `tenant` never holds a slash, `job_id` matches `JOB_ID`."""

    tenant: str
    job_id: str

    def shard(self, shards: int) -> int:
        """The shard, 0 ≤ n < *shards*, that this job's due entries are written to. Stable for
        ever.
        """
        digest = hashlib.blake2s(f"{self.tenant}/{self.job_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % shards


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run. `run_id` begins with the scheduled instant, so a job's runs sort by time."""

    job: JobKey
    run_id: str

    @property
    def execution_id(self) -> str:
        """The public id, e.g. ``job_a93f2.20260524T100000000Z-k3x9m2ab``."""
        return f"{self.job.job_id}.{self.run_id}"

    @property
    def scheduled_at(self) -> datetime:
        """The occurrence's instant, read from the id."""
        return _instant(_matched(self.run_id)[1])

    @property
    def uid(self) -> str:
        """The job's `uid`, read from the id."""
        return _matched(self.run_id)[2]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files that attempts of a run left in one pool. `pool` None: those of a version that did
    not separate pools.
    """

    key: RunKey
    pool: str | None


def run_id(uid: str, scheduled_at: datetime) -> str:
    """The id of the run for the occurrence at *scheduled_at*; the same whoever computes it."""
    return f"{runs_from(scheduled_at)}-{uid}"


@lru_cache(maxsize=4096)
def runs_from(at: datetime) -> str:
    """What sorts before the ids of all runs that are scheduled at *at* or later, and after those of
    all others.
    """
    at = cut(at)
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"


def parse_execution_id(tenant: str, text: str) -> RunKey:
    """The run that the public id *text* names, of *tenant* whatever the text says.

    Raises:
        InvalidInputError: *text* has not the form of an execution id.
    """
    job_id, _, rest = text.partition(".")
    if not JOB_ID.fullmatch(job_id) or not _RUN_ID.fullmatch(rest):
        raise InvalidInputError(
            "executionId",
            text,
            "not an execution id",
            "Take one from the job's list of executions.",
        )
    return RunKey(JobKey(tenant, job_id), rest)


def dedup_id(key: RunKey, dispatch: int) -> str:
    """The FIFO deduplication id of one dispatch: the same for each sending of it, 64 characters."""
    return _digest(key.job.tenant, key.job.job_id, key.run_id, str(dispatch))


def group_id(key: RunKey, *, exclusive: bool = False, abreast: int | None = None) -> str:
    """The FIFO message group of a run: its own, so that runs do not wait for each other;
    *exclusive*: its job's, so that they do. *abreast*: one of so many that all runs of its tenant
    share, so that so many are in work at a time; those of an exclusive job are of the same one. 64
    characters.
    """
    alone = _digest(key.job.tenant, key.job.job_id, key.uid if exclusive else key.run_id)
    if abreast is None:
        return alone
    return _digest(key.job.tenant, "", str(int(alone, 16) % abreast))


def content_id(text: str) -> str:
    """An id for *text* that depends on nothing else. 64 characters."""
    return _digest(text)


@lru_cache(maxsize=4096)
def _instant(stamp: str) -> datetime:
    # Read often; strptime would take twenty times as long.
    return datetime.fromisoformat(f"{stamp[:15]}.{stamp[15:]}").replace(tzinfo=UTC)


def _digest(*parts: str) -> str:
    # A unit separator cannot occur in any part, so no two lists of parts read the same.
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def _matched(text: str) -> re.Match[str]:
    match = _RUN_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no run id")
    return match
