"""What the API answers: its documents, and how they are made. Unset fields are left out.

The models describe what the functions below make; an answer is not validated a second time. That
they say the same is tested with every answer of every test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field, JsonValue

from nextfire.domain.backfill import Backfill, Order
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Document, Job, JobDefinition, JobState
from nextfire.domain.keys import ApiKey, KeyState, Minted, Scope
from nextfire.domain.log import LogLine
from nextfire.domain.ports import Unreadable
from nextfire.domain.run import Attempt, AttemptOutcome, Run, RunState, Trigger
from nextfire.domain.schedule import Upcoming
from nextfire.domain.script import ScriptVersion, StoredScript, Upload
from nextfire.usecases.manage_runs import Redriven, Waiting
from nextfire.usecases.read_logs import LogPage, has_parts
from nextfire.usecases.read_quotas import Standing

NEXT = 5
"""Occurrences that a job by itself is shown with."""
DRAINING = "DRAINING"
"""The state that a PAUSED job is shown in while it drains. It is reckoned, and not stored."""
UNREADABLE = "UNREADABLE"
"""The state of what is stored and does not decode. No other state is known of it."""
_MOST_OF_A_PROBLEM = 300
_WALL = len("2026-05-24T10:00:00")


class Answer(Document):
    """Describes what is answered. Only the description of the API needs its schema."""

    model_config = ConfigDict(defer_build=True)


class Health(Answer):
    """The API is there."""

    status: Literal["ok"]
    time: datetime


class BackfillAnswer(Answer):
    """Occurrences of the past that are to run: `count` of them, from `first` to `last`; those that
    are on record already are passed over.
    """

    backfill_id: str
    job_id: str
    first: datetime
    last: datetime
    count: int
    order: Order
    asked_at: datetime
    reason: str | None = None


class JobAnswer(JobDefinition):
    """A job: its definition with every default, and what the system keeps beside it."""

    model_config = ConfigDict(defer_build=True)

    job_id: str
    state: JobState | Literal["DRAINING"] = Field(
        description="DRAINING: it is PAUSED, and what was under way when it was asked to drain has "
        "not ended; a listing says PAUSED."
    )
    revision: int = Field(description="Counts every change of the job.")
    next_fire_at: datetime | None = Field(
        default=None, description="The next occurrence; absent where none is to come."
    )
    skips: list[datetime] | None = Field(
        default=None, description="Occurrences to come that will not run, by request."
    )
    paused_at: datetime | None = Field(default=None, description="Nothing due later runs.")
    pause_reason: str | None = None
    resumes_at: datetime | None = Field(default=None, description="When the pause ends by itself.")
    drain_asked_at: datetime | None = Field(
        default=None, description="While it is PAUSED: when it was asked to drain."
    )
    backfill: BackfillAnswer | None = Field(
        default=None, description="The backfill that goes on; absent where none does."
    )
    created_at: datetime
    updated_at: datetime


class UpcomingAnswer(Answer):
    """An occurrence: `at` in UTC, `local` with `offset` as its zone's clock shows it. `dueAt`: with
    jitter. `executionId`: of a job's, the id that its execution will have.
    """

    execution_id: str | None = None
    at: datetime
    local: str
    offset: str
    due_at: datetime | None = None
    skipped: bool | None = Field(
        default=None, description="True where it will not run, by request; absent else."
    )
    note: str | None = None


class LastRun(Answer):
    """A job's newest execution, in short."""

    execution_id: str
    state: RunState
    scheduled_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None


class JobDetail(JobAnswer):
    """A job, with its newest execution, if it had one, and its next occurrences."""

    last_run: LastRun | None = None
    upcoming_: list[UpcomingAnswer] = Field(alias="upcoming")


class UnreadableJob(Answer):
    """A stored job that does not decode."""

    job_id: str
    state: Literal["UNREADABLE"]
    reason: str


class JobPage(Answer):
    """Jobs by id. A page may hold fewer than asked for, and none, though others follow: there are
    more where `cursor` is.
    """

    items: list[JobAnswer | UnreadableJob]
    cursor: str | None = None


class Fault(Answer):
    """One offending field: what was given, what is wrong with it, and what to do."""

    field: str
    value: str
    problem: str
    remedy: str


class OwnQuotas(Answer):
    """What a tenant may have at most; absent: there is no such quota."""

    jobs: int | None = Field(default=None, description="That are ACTIVE or PAUSED.")
    runs_per_minute: int | None = Field(
        default=None,
        description="Sent within a minute of the clock, retries included; the others wait.",
    )
    concurrent_runs: int | None = Field(
        default=None, description="In work at a time, in each pool; the others wait."
    )
    payload_bytes: int | None = Field(default=None, description="Of a payload as JSON.")
    shortest_interval_sec: int | None = Field(
        default=None, description="At least so many between two occurrences of a job."
    )
    requests_per_second: int | None = Field(
        default=None, description="API requests of the tenant, on average."
    )
    request_burst: int | None = Field(
        default=None, description="API requests of the tenant at once; absent: those of 2 s."
    )
    key_requests_per_second: int | None = Field(
        default=None, description="API requests of each key, role or token subject, on average."
    )
    key_request_burst: int | None = Field(
        default=None, description="API requests of each of these at once; absent: those of 2 s."
    )


class UsedQuotas(Answer):
    """What counts toward a quota; absent where there is none."""

    jobs: int | None = Field(
        default=None,
        description="Those from before there was the quota count from their next change on.",
    )
    runs_per_minute: int | None = Field(
        default=None, description="In the minute that ends at `minuteEndsAt`."
    )


class QuotasAnswer(Answer):
    """What the caller's tenant may have at most, and what it uses of that."""

    quotas: OwnQuotas
    used: UsedQuotas
    minute_ends_at: datetime = Field(description="When `runsPerMinute` counts anew.")
    weight: int = Field(
        description="Turns that it has to one of others, where not all that is due can be sent."
    )


class Problem(Answer):
    """What went wrong, by RFC 9457."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str
    quota: (
        Literal[
            "jobs",
            "payloadBytes",
            "shortestIntervalSec",
            "requestsPerSecond",
            "keyRequestsPerSecond",
        ]
        | None
    ) = None
    errors: list[Fault] | None = None


class BatchResult(Answer):
    """What became of one job of a batch: the job, or the problem that it is."""

    status: int = Field(description="As it would be for this one alone: 201, or the problem's.")
    job: JobAnswer | None = None
    problem: Problem | None = None


class BatchAnswer(Answer):
    """What became of each job of a batch, in their order."""

    results: list[BatchResult]


class NotChanged(Answer):
    """A job that was not changed, and why."""

    job_id: str
    problem: Problem


class ManyAnswer(Answer):
    """What was done to the jobs with some labels. `progressToken`: where the next call goes on;
    absent where all is done.
    """

    matched: int
    changed: int
    failed: list[NotChanged]
    progress_token: str | None = None


class KeyAnswer(Answer):
    """An API key, as anybody may know it."""

    key_id: str
    name: str = Field(description="Who or what has it.")
    scopes: list[Scope]
    state: KeyState
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    last_used_on: date | None = Field(
        default=None, description="The UTC day; absent where the key was not used yet."
    )
    cidrs: list[str] | None = Field(
        default=None, description="The networks it may be used from; absent: all."
    )
    labels: dict[str, str] | None = Field(
        default=None, description="The labels that a job must have; absent: it reaches all jobs."
    )


class NewKeyAnswer(KeyAnswer):
    """An API key, with its text."""

    key: str | None = Field(
        default=None,
        description="The text that callers send. It is told once, and kept nowhere: absent where "
        "an earlier answer told it.",
    )


class RotatedAnswer(Answer):
    """The key that was made, and the one that it replaces."""

    new: NewKeyAnswer
    old: KeyAnswer


class UnreadableKey(Answer):
    """A stored key that does not decode; it opens nothing."""

    key_id: str
    state: Literal["UNREADABLE"]
    reason: str


class KeyPage(Answer):
    """API keys by id, those that are good no more included. There are more where `cursor` is."""

    items: list[KeyAnswer | UnreadableKey]
    cursor: str | None = None


class ScriptAnswer(Answer):
    """A script. `handler`: what jobs call it; `url`: where it lies."""

    pool: str
    handler: str
    url: str
    size: int = Field(description="Bytes.")
    modified_at: datetime


class ScriptPage(Answer):
    """Scripts by pool and name. A page may hold fewer than asked for: there are more where `cursor`
    is.
    """

    items: list[ScriptAnswer]
    cursor: str | None = None


class ScriptVersionAnswer(Answer):
    """A script as it was, or is, if `latest`. `size`, in bytes: absent where it was deleted."""

    version_id: str
    modified_at: datetime
    latest: bool
    size: int | None = None


class ScriptVersionPage(Answer):
    """Versions, the latest first. There are more where `cursor` is."""

    items: list[ScriptVersionAnswer]
    cursor: str | None = None


class UploadAnswer(Answer):
    """Where a script is to be PUT, with just these headers. `url`: where it will be stored,
    `object_key`: the same within the bucket; `signed`: whether a signature is stored with it, which
    executors verify.
    """

    pool: str
    handler: str
    object_key: str
    size: int
    sha256: str
    signed: bool
    url: str
    method: Literal["PUT"]
    upload_url: str
    headers: dict[str, str]
    expires_at: datetime


class Covered(Answer):
    """The occurrences for which one record stands: the first, the last, and how many."""

    from_: datetime = Field(alias="from")
    to: datetime
    count: int


class AttemptAnswer(Answer):
    """One attempt. `script_sha256`: the digest of the script that was fetched for it. `logs`: where
    to read what it printed, if that is not all on the record.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    exit_code: int | None = None
    reason: str | None = None
    script_sha256: str | None = None
    logs: str | None = None


class ExecutionAnswer(Answer):
    """A run; `startedAt` and `exitCode` are its latest attempt's. Of an occurrence that waits and
    has no record yet there is little to say.
    """

    execution_id: str
    job_id: str
    state: RunState
    trigger: Trigger | None = Field(
        default=None, description="What made it; absent where there is no record yet."
    )
    request_reason: str | None = Field(default=None, description="Why somebody asked for it.")
    payload: JsonValue | None = Field(default=None, description="In place of its job's.")
    scheduled_at: datetime
    range: Covered | None = None
    dispatched_at: datetime | None = None
    dispatch_reason: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retry_at: datetime | None = None
    pool: str | None = None
    dispatch: int | None = None
    attempt: int | None = None
    attempts_before_redrive: int | None = None
    worker: str | None = None
    job_revision: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    cancel_requested: bool | None = None
    cancel_reason: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    result_bytes: int | None = None
    checkpoint_bytes: int | None = None
    attempts: list[AttemptAnswer] | None = None
    result: JsonValue | None = None


class UnreadableExecution(Answer):
    """A stored execution that does not decode."""

    execution_id: str
    job_id: str
    state: Literal["UNREADABLE"]
    reason: str


class ExecutionPage(Answer):
    """Executions. A page may hold fewer than asked for: there are more where `cursor` is."""

    items: list[ExecutionAnswer | UnreadableExecution]
    cursor: str | None = None


class UpcomingList(Answer):
    """Occurrences, the earliest first."""

    items: list[UpcomingAnswer]


class LogLineAnswer(Answer):
    """A line that an attempt printed."""

    attempt: int
    at: datetime | None = None
    stream: str
    text: str


class LogAnswer(Answer):
    """Lines of a log. `ended`: nothing will follow."""

    items: list[LogLineAnswer]
    cursor: str | None = None
    ended: bool


class NotRedriven(Answer):
    """A run that was not redriven, and why."""

    execution_id: str
    reason: str


class RedrivenAnswer(Answer):
    """What became of dead runs. `more`: others may be left, from `cursor` on."""

    redriven: list[str]
    skipped: list[NotRedriven]
    more: bool
    cursor: str | None = None


def job_document(job: Job, now: datetime, *, draining: bool = False) -> dict[str, Any]:
    """The job with its definition's fields beside its own. `pausedAt`: nothing due later runs.
    *draining*: it is PAUSED, and something of before goes on.
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
    """The job by itself, beside its newest run."""
    try:
        found = job.upcoming(now, NEXT)
    except InvalidInputError:
        found = []  # as above: a zone that is no longer known
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
    """The run; `startedAt` and `exitCode` are its latest attempt's. `range`, of a record that
    stands for several occurrences: the first, the last, and how many. *result*: its ``result``,
    which may be null, if it has one.
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


def waiting_document(found: Waiting) -> dict[str, Any]:
    """An occurrence that is due and has no record yet. Nothing of this is stored."""
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
    """What became of dead runs. `more`: others may be left, from `cursor` on."""
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
    """A job of a listing that does not decode."""
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


def quotas_document(standing: Standing) -> dict[str, Any]:
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
    """A key of a listing that does not decode."""
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
    """An execution of a listing that does not decode."""
    return {
        "executionId": execution_id,
        "jobId": execution_id.partition(".")[0],
        "state": UNREADABLE,
        "reason": told(found.problem),
    }


def told(problem: str) -> str:
    """*problem* on one line, and not too much of it."""
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
        return None  # a zone that is no longer known: the job can still be read, and mended


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else isoformat(instant)


def _present(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}
