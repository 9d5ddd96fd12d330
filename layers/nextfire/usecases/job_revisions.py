"""Revisions of jobs, and the versions that callers expect."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import ChangedError, NotFoundError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore


def job_of(jobs: JobStore, key: JobKey) -> Job:
    """The job, also if it is CANCELLED.

    Raises:
        NotFoundError: The job never existed.
    """
    job = jobs.get(key)
    if job is None:
        raise NotFoundError("job", key.job_id)
    return job


def living_job(jobs: JobStore, key: JobKey) -> Job:
    """The job, if it is not CANCELLED.

    Raises:
        NotFoundError: The job does not exist, or it is CANCELLED.
    """
    job = job_of(jobs, key)
    if job.state is JobState.CANCELLED:
        raise NotFoundError("job", key.job_id, "It was deleted.")
    return job


def check_version(job: Job, expected: Collection[str] | None) -> None:
    """Check that *job* is in one of the versions *expected*; None accepts any version. It is empty
    if the caller named weak tags only.

    Raises:
        ChangedError: It is not.
    """
    if expected is not None and not expected:
        raise ChangedError(
            "The expected version is a weak tag, `W/…`, which never matches",
            f'Send the ETag without `W/`, which a proxy may have added: "{job.version}" is the'
            " current one.",
        )
    if expected is not None and job.version not in expected:
        raise ChangedError(
            f"Job {job.key.job_id!r} has changed: its version is {job.version}",
            "Read it again, then decide again.",
        )


def redefined(job: Job, now: datetime, definition: JobDefinition) -> Job:
    """The next revision of *job*, which gets *definition* at *now*."""
    revised = job.revised(now)
    same = definition.runs_like(job.definition)
    defined_in = job.defined_in if same else revised.revision
    return replace(revised, definition=definition, defined_in=defined_in)


def contended(key: JobKey) -> UnavailableError:
    """The error of a change that lost the race with other changes of the job several times."""
    return UnavailableError(f"Job {key.job_id!r} is being changed by other requests. Try again.")


def is_equal(one: JobDefinition, other: JobDefinition) -> bool:
    """Whether both definitions are the same document."""
    # As JSON: true is 1 in Python.
    texts = (json.dumps(each.document(), sort_keys=True) for each in (one, other))
    return len({*texts}) == 1
