"""Builds the JSON documents of API responses. Unset fields are omitted.

`answer_models` describes these documents. Responses are not validated at run time: the tests
compare every response with its model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nextfire.domain.backfill import Backfill
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job, JobState
from nextfire.domain.keys import ApiKey, Minted, Scope
from nextfire.domain.log import LogLine
from nextfire.domain.ports import Unreadable
from nextfire.domain.run import Attempt, Run, RunState
from nextfire.domain.schedule import Upcoming
from nextfire.domain.script import ScriptVersion, StoredScript, Upload
from nextfire.usecases.manage_runs import PendingOccurrence, Redriven
from nextfire.usecases.read_logs import LogPage, has_parts
from nextfire.usecases.read_quotas import QuotaUsage

NEXT = 5
"""Number of next occurrences in the details of a job."""
DRAINING = "DRAINING"
"""State shown for a PAUSED job while it drains. It is derived, not stored."""
UNREADABLE = "UNREADABLE"
"""State of a stored item that cannot be decoded. Its real state is unknown."""
_MOST_OF_A_PROBLEM = 300
_WALL = len("2026-05-24T10:00:00")


def job_document(job: Job, now: datetime, *, draining: bool = False) -> dict[str, Any]:
    """The job and its definition in one document. `pausedAt`: occurrences due later do not run.
    *draining*: the job is PAUSED and earlier runs are still in flight.
    """
    paused = job.state is JobState.PAUSED
    own = _present(
        {
            "jobId": job.key.job_id,
            "state": DRAINING if draining else job.state.value,
            "pauseReason": job.pause_reason if paused else None,
            "pausedAt": _at(job.effective_from) if paused else None,
            "resumesAt": _at(job.resumes_at) if paused else None,
            "drainAskedAt": _at(job.drain_asked_at) if paused else None,
            "revision": job.revision,
            "nextFireAt": _at(_next(job, now)),
            "skips": [isoformat(at) for at in job.skips if at > now] or None,
            "backfill": job.backfilling and backfill_document(job, job.backfilling),
            "createdAt": _at(job.created_at),
            "updatedAt": _at(job.updated_at),
        }
    )
    return own | job.definition.document()


def backfill_document(job: Job, asked: Backfill) -> dict[str, Any]:
    """A backfill of *job*."""
    return _present(
        {
            "backfillId": asked.backfill_id,
            "jobId": job.key.job_id,
            "first": _at(asked.first),
            "last": _at(asked.last),
            "count": asked.count,
            "order": asked.order.value,
            "askedAt": _at(asked.asked_at),
            "reason": asked.reason,
        }
    )


def job_detail(
    job: Job, last: Run | None, now: datetime, *, draining: bool = False
) -> dict[str, Any]:
    """The details of a job: the job, its newest run and its next occurrences."""
    try:
        found = job.upcoming(now, NEXT)
    except InvalidInputError:
        found = []  # the time zone no longer exists
    jittered = job.definition.jitter_sec > 0
    shown: dict[str, Any] = {
        "upcoming": [upcoming_document(each, jittered=jittered, job=job) for each in found],
    }
    if last is not None:
        shown["lastRun"] = _present(
            {
                "executionId": last.key.execution_id,
                "state": last.state.value,
                "scheduledAt": _at(last.key.scheduled_at),
                "startedAt": _at(last.started_at),
                "finishedAt": _at(last.finished_at),
                "reason": last.reason,
            }
        )
    return job_document(job, now, draining=draining) | shown


def execution_document(run: Run, result: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The run. `startedAt` and `exitCode` belong to its latest attempt. `range`: the first, the
    last and the number of occurrences, if the record covers several. *result*: contains the
    ``result`` field, which may be null, or is empty.
    """
    covered = {
        "from": _at(run.key.scheduled_at),
        "to": _at(run.covered_to),
        "count": run.covered,
    }
    under_way = run.state is RunState.RUNNING
    document = _present(
        {
            "executionId": run.key.execution_id,
            "jobId": run.key.job.job_id,
            "state": run.state.value,
            "trigger": run.trigger.value,
            "requestReason": run.request_reason,
            "scheduledAt": _at(run.key.scheduled_at),
            "range": covered if run.covered_to else None,
            "dispatchedAt": _at(run.dispatched_at),
            "dispatchReason": run.dispatch_reason,
            "startedAt": _at(run.started_at),
            "finishedAt": _at(run.finished_at),
            "retryAt": _at(run.not_before),
            "pool": run.pool,
            "dispatch": run.dispatch,
            "attempt": run.attempt,
            "attemptsBeforeRedrive": run.attempt_base or None,
            "worker": run.worker,
            "jobRevision": run.job_revision,
            "exitCode": run.exit_code,
            "reason": run.reason,
            "cancelRequested": True if under_way and run.cancel_requested else None,
            "cancelReason": run.cancel_reason if under_way else None,
            "stdout": run.stdout,
            "stderr": run.stderr,
            "resultBytes": run.result and run.result.size,
            "checkpointBytes": run.checkpoint and run.checkpoint.size,
            "attempts": [_attempt(run, attempt) for attempt in run.attempts],
        }
    )
    payload = {} if run.payload is None else {"payload": json.loads(run.payload)}
    return {**document, **payload, **(result or {})}


def waiting_document(found: PendingOccurrence) -> dict[str, Any]:
    """A due occurrence that has no record yet. This document is derived, not stored."""
    return {
        "executionId": found.key.execution_id,
        "jobId": found.key.job.job_id,
        "state": RunState.PENDING.value,
        "scheduledAt": _at(found.key.scheduled_at),
        "reason": found.reason,
    }


def log_document(page: LogPage) -> dict[str, Any]:
    """Lines of a log."""
    return _present(
        {
            "items": [_log_line(attempt, line) for attempt, line in page.lines],
            "cursor": page.cursor,
            "ended": page.ended,
        }
    )


def redriven_document(done: Redriven) -> dict[str, Any]:
    """Result of redriving dead runs. `more`: others may be left; continue from `cursor`."""
    skipped = [
        {"executionId": key.execution_id, "reason": told(reason)} for key, reason in done.skipped
    ]
    skipped += [
        {"executionId": found.identity, "reason": told(found.problem)} for found in done.unreadable
    ]
    return _present(
        {
            "redriven": [key.execution_id for key in done.redriven],
            "skipped": skipped,
            "more": done.cursor is not None,
            "cursor": done.cursor,
        }
    )


def unreadable_job(found: Unreadable) -> dict[str, Any]:
    """A listed job that cannot be decoded."""
    return {"jobId": found.identity, "state": UNREADABLE, "reason": told(found.problem)}


def key_document(key: ApiKey, now: datetime) -> dict[str, Any]:
    return _present(
        {
            "keyId": key.key_id,
            "name": key.name,
            "scopes": [scope.value for scope in Scope if scope in key.scopes],
            "state": key.state(now).value,
            "createdAt": isoformat(key.created_at),
            "expiresAt": isoformat(key.expires_at),
            "revokedAt": key.revoked_at and isoformat(key.revoked_at),
            "lastUsedOn": key.last_used_on and key.last_used_on.isoformat(),
            "cidrs": list(key.restriction.cidrs) or None,
            "labels": dict(key.restriction.labels) or None,
        }
    )


def quotas_document(standing: QuotaUsage) -> dict[str, Any]:
    used = {"jobs": standing.jobs, "runsPerMinute": standing.runs}
    return {
        "quotas": standing.quotas.model_dump(by_alias=True, exclude_none=True),
        "used": {name: count for name, count in used.items() if count is not None},
        "minuteEndsAt": isoformat(standing.minute_ends_at),
        "weight": standing.weight,
    }


def new_key_document(made: Minted | ApiKey, now: datetime) -> dict[str, Any]:
    """A key that was just made: with its text, unless an earlier answer had it."""
    if isinstance(made, ApiKey):
        return key_document(made, now)
    return key_document(made.key, now) | {"key": made.text}


def unreadable_key(found: Unreadable) -> dict[str, Any]:
    """A listed key that cannot be decoded."""
    return {"keyId": found.identity, "state": UNREADABLE, "reason": told(found.problem)}


def script_document(script: StoredScript, bucket: str) -> dict[str, Any]:
    return {
        "pool": script.key.pool,
        "handler": script.key.handler,
        "url": f"s3://{bucket}/{script.key.path}",
        "size": script.size,
        "modifiedAt": isoformat(script.modified_at),
    }


def version_document(version: ScriptVersion) -> dict[str, Any]:
    return _present(
        {
            "versionId": version.version_id,
            "modifiedAt": isoformat(version.modified_at),
            "latest": version.latest,
            "size": version.size,
        }
    )


def upload_document(
    upload: Upload, bucket: str, *, size: int, sha256: str, signed: bool
) -> dict[str, Any]:
    return {
        "pool": upload.key.pool,
        "handler": upload.key.handler,
        "objectKey": upload.key.path,
        "size": size,
        "sha256": sha256,
        "signed": signed,
        "url": f"s3://{bucket}/{upload.key.path}",
        "method": "PUT",
        "uploadUrl": upload.url,
        "headers": dict(upload.headers),
        "expiresAt": isoformat(upload.expires_at),
    }


def unreadable_execution(execution_id: str, found: Unreadable) -> dict[str, Any]:
    """A listed execution that cannot be decoded."""
    return {
        "executionId": execution_id,
        "jobId": execution_id.partition(".")[0],
        "state": UNREADABLE,
        "reason": told(found.problem),
    }


def told(problem: str) -> str:
    """*problem* on one line, truncated."""
    line = " ".join(problem.split())
    return line if len(line) <= _MOST_OF_A_PROBLEM else line[: _MOST_OF_A_PROBLEM - 1] + "…"


def upcoming_document(found: Upcoming, *, jittered: bool, job: Job | None = None) -> dict[str, Any]:
    """An occurrence: `at` in UTC, `local` with `offset` as its zone's clock shows it; of a *job*,
    the id that its execution will have.
    """
    local = found.occurrence.local
    key = RunKey(job.key, run_id(job.uid, found.occurrence.at)) if job else None
    return _present(
        {
            "executionId": key and key.execution_id,
            "at": _at(found.occurrence.at),
            "local": local.replace(tzinfo=None).isoformat(timespec=_precision(local)),
            "offset": local.isoformat(timespec="seconds")[_WALL:],
            "dueAt": _at(found.due_at) if jittered else None,
            "skipped": True if job is not None and found.occurrence.at in job.skips else None,
            "note": found.occurrence.note or None,
        }
    )


def _precision(local: datetime) -> str:
    return "milliseconds" if local.microsecond else "seconds"


def _log_line(attempt: int, line: LogLine) -> dict[str, Any]:
    return _present(
        {"attempt": attempt, "at": _at(line.at), "stream": line.stream, "text": line.text}
    )


def _attempt(run: Run, attempt: Attempt) -> dict[str, Any]:
    """`logs`: where to read what it printed, if that is not all on the record."""
    logs = f"/v1/executions/{run.key.execution_id}/logs?attempt={attempt.number}"
    return _present(
        {
            "number": attempt.number,
            "worker": attempt.worker,
            "startedAt": _at(attempt.started_at),
            "finishedAt": _at(attempt.finished_at),
            "outcome": attempt.outcome and attempt.outcome.value,
            "exitCode": attempt.exit_code,
            "reason": attempt.reason,
            "scriptSha256": attempt.script_sha256,
            "logs": logs if has_parts(attempt) else None,
        }
    )


def _next(job: Job, now: datetime) -> datetime | None:
    if job.state is not JobState.ACTIVE:
        return None
    try:
        return job.next_to_run(now)
    except InvalidInputError:
        return None  # the time zone no longer exists; the job can still be read and repaired


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else isoformat(instant)


def _present(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}
