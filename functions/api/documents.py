"""What the API answers: jobs and executions as JSON documents. Unset fields are left out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job, JobState
from nextfire.domain.run import Attempt, Run


def job_document(job: Job, now: datetime) -> dict[str, Any]:
    """The job with its definition's fields beside its own."""
    own = _present(
        {
            "jobId": job.key.job_id,
            "state": job.state.value,
            "revision": job.revision,
            "nextFireAt": _at(_next(job, now)),
            "createdAt": _at(job.created_at),
            "updatedAt": _at(job.updated_at),
        }
    )
    return own | job.definition.document()


def execution_document(run: Run) -> dict[str, Any]:
    """The run; `startedAt` and `exitCode` are its latest attempt's."""
    return _present(
        {
            "executionId": run.key.execution_id,
            "jobId": run.key.job.job_id,
            "state": run.state.value,
            "scheduledAt": _at(run.key.scheduled_at),
            "dispatchedAt": _at(run.dispatched_at),
            "startedAt": _at(run.started_at),
            "finishedAt": _at(run.finished_at),
            "retryAt": _at(run.not_before),
            "pool": run.pool,
            "dispatch": run.dispatch,
            "attempt": run.attempt,
            "worker": run.worker,
            "jobRevision": run.job_revision,
            "exitCode": run.exit_code,
            "reason": run.reason,
            "stdout": run.stdout,
            "stderr": run.stderr,
            "attempts": [_attempt(attempt) for attempt in run.attempts],
        }
    )


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return _present(
        {
            "number": attempt.number,
            "worker": attempt.worker,
            "startedAt": _at(attempt.started_at),
            "finishedAt": _at(attempt.finished_at),
            "outcome": attempt.outcome and attempt.outcome.value,
            "exitCode": attempt.exit_code,
            "reason": attempt.reason,
        }
    )


def _next(job: Job, now: datetime) -> datetime | None:
    if job.state is not JobState.ACTIVE:
        return None
    try:
        return job.next_after(now)
    except InvalidInputError:
        return None  # a zone that is no longer known: the job can still be read, and mended


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else isoformat(instant)


def _present(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}
