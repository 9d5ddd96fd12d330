"""Models of the API responses. Only the OpenAPI description imports them: building the classes is
a measurable part of a cold start, and responses are not validated a second time.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from nextfire.domain.backfill import Order
from nextfire.domain.job import Document, JobDefinition, JobState
from nextfire.domain.keys import KeyState, Scope
from nextfire.domain.run import AttemptOutcome, RunState, Trigger


class Answer(Document):
    """Base class of the response models. Only the OpenAPI description needs their schemas."""

    model_config = ConfigDict(defer_build=True)


class Health(Answer):
    """The API is up."""

    status: Literal["ok"]
    time: datetime


class BackfillAnswer(Answer):
    """A backfill: it runs the `count` past occurrences from `first` to `last`. Occurrences that
    already have an execution record are skipped.
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
    """A job: its definition with all defaults, and its current state."""

    model_config = ConfigDict(defer_build=True)

    job_id: str
    state: JobState | Literal["DRAINING"] = Field(
        description="DRAINING: the job is PAUSED, and executions that were in flight when the "
        "drain was requested have not ended. Listings show PAUSED."
    )
    revision: int = Field(description="Incremented by every change to the job.")
    next_fire_at: datetime | None = Field(
        default=None, description="The next occurrence. Absent if there are no more."
    )
    skips: list[datetime] | None = Field(
        default=None, description="Future occurrences that are skipped on request."
    )
    paused_at: datetime | None = Field(
        default=None, description="Occurrences due after this instant do not run."
    )
    pause_reason: str | None = None
    resumes_at: datetime | None = Field(
        default=None, description="When the pause ends automatically."
    )
    drain_asked_at: datetime | None = Field(
        default=None,
        description="When a drain was requested. Present only while the job is PAUSED.",
    )
    backfill: BackfillAnswer | None = Field(
        default=None, description="The backfill in progress. Absent if there is none."
    )
    created_at: datetime
    updated_at: datetime


class UpcomingAnswer(Answer):
    """An occurrence. `at`: in UTC. `local` and `offset`: local time in the schedule's time zone.
    `dueAt`: the instant including jitter. `executionId`: id of the future execution, if the
    occurrence belongs to a job.
    """

    execution_id: str | None = None
    at: datetime
    local: str
    offset: str
    due_at: datetime | None = None
    skipped: bool | None = Field(
        default=None, description="True if the occurrence is skipped on request, absent otherwise."
    )
    note: str | None = None


class LastRun(Answer):
    """Summary of the newest execution of a job."""

    execution_id: str
    state: RunState
    scheduled_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None


class JobDetail(JobAnswer):
    """A job with its newest execution, if any, and its next occurrences."""

    last_run: LastRun | None = None
    upcoming_: list[UpcomingAnswer] = Field(alias="upcoming")


class UnreadableJob(Answer):
    """A stored job that cannot be decoded."""

    job_id: str
    state: Literal["UNREADABLE"]
    reason: str


class JobPage(Answer):
    """Jobs, ordered by id. A page may hold fewer items than `limit`, or none, although more
    follow: if `cursor` is present, there are more.
    """

    items: list[JobAnswer | UnreadableJob]
    cursor: str | None = None


class Fault(Answer):
    """An invalid field: its value, the problem, and how to fix it."""

    field: str
    value: str
    problem: str
    remedy: str


class OwnQuotas(Answer):
    """Quotas of a tenant. An absent field means no limit."""

    jobs: int | None = Field(default=None, description="Maximum number of ACTIVE and PAUSED jobs.")
    runs_per_minute: int | None = Field(
        default=None,
        description="Runs dispatched per clock minute, including retries. Further runs wait.",
    )
    concurrent_runs: int | None = Field(
        default=None, description="Concurrent runs in each pool. Further runs wait."
    )
    payload_bytes: int | None = Field(
        default=None, description="Maximum size of a payload as JSON, in bytes."
    )
    shortest_interval_sec: int | None = Field(
        default=None, description="Minimum seconds between two occurrences of a job."
    )
    requests_per_second: int | None = Field(
        default=None, description="Average rate of API requests of the tenant."
    )
    request_burst: int | None = Field(
        default=None,
        description="Burst of API requests of the tenant. Default: 2 seconds of the rate.",
    )
    key_requests_per_second: int | None = Field(
        default=None, description="Average rate of API requests of each key, role or token subject."
    )
    key_request_burst: int | None = Field(
        default=None,
        description="Burst of API requests of each of these. Default: 2 seconds of the rate.",
    )


class UsedQuotas(Answer):
    """Usage of the quotas. A field is absent if there is no such quota."""

    jobs: int | None = Field(
        default=None,
        description="Jobs older than the quota are counted from their next change on.",
    )
    runs_per_minute: int | None = Field(
        default=None, description="Runs in the minute that ends at `minuteEndsAt`."
    )


class QuotasAnswer(Answer):
    """Quotas of the caller's tenant and their usage."""

    quotas: OwnQuotas
    used: UsedQuotas
    minute_ends_at: datetime = Field(description="When the count of `runsPerMinute` resets.")
    weight: int = Field(
        description="Share of dispatches relative to a tenant of weight 1 when there is a backlog."
    )


class Problem(Answer):
    """An error, as problem details of RFC 9457."""

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
    """Result of one job of a batch: the created job or the problem."""

    status: int = Field(
        description="201, or the status of the problem, as if the job were created alone."
    )
    job: JobAnswer | None = None
    problem: Problem | None = None


class BatchAnswer(Answer):
    """Results of a batch, in the order of the request."""

    results: list[BatchResult]


class NotChanged(Answer):
    """A job that was not changed, and the reason."""

    job_id: str
    problem: Problem


class ManyAnswer(Answer):
    """Result of a bulk operation on labelled jobs. `progressToken`: send it with the next call to
    continue; absent when all jobs are done.
    """

    matched: int
    changed: int
    failed: list[NotChanged]
    progress_token: str | None = None


class KeyAnswer(Answer):
    """An API key without its secret text."""

    key_id: str
    name: str = Field(description="Who or what uses the key.")
    scopes: list[Scope]
    state: KeyState
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    last_used_on: date | None = Field(
        default=None, description="UTC date of the last use. Absent if the key has not been used."
    )
    cidrs: list[str] | None = Field(
        default=None, description="Networks that the key may be used from. Absent: all networks."
    )
    labels: dict[str, str] | None = Field(
        default=None, description="Labels that a job must have to be accessible. Absent: all jobs."
    )


class NewKeyAnswer(KeyAnswer):
    """An API key with its secret text."""

    key: str | None = Field(
        default=None,
        description="The text that callers send. It is returned once and never stored: absent if "
        "an earlier response returned it.",
    )


class RotatedAnswer(Answer):
    """The new key and the key that it replaces."""

    new: NewKeyAnswer
    old: KeyAnswer


class UnreadableKey(Answer):
    """A stored key that cannot be decoded. Requests with it are rejected."""

    key_id: str
    state: Literal["UNREADABLE"]
    reason: str


class KeyPage(Answer):
    """API keys, ordered by id, including expired and revoked keys. If `cursor` is present, there
    are more.
    """

    items: list[KeyAnswer | UnreadableKey]
    cursor: str | None = None


class ScriptAnswer(Answer):
    """A script. `handler`: the name that jobs use for it; `url`: where it is stored."""

    pool: str
    handler: str
    url: str
    size: int = Field(description="Bytes.")
    modified_at: datetime


class ScriptPage(Answer):
    """Scripts, ordered by pool and name. A page may hold fewer items than `limit`: if `cursor` is
    present, there are more.
    """

    items: list[ScriptAnswer]
    cursor: str | None = None


class ScriptVersionAnswer(Answer):
    """A version of a script; `latest`: the current one. `size`: in bytes, absent for a deletion."""

    version_id: str
    modified_at: datetime
    latest: bool
    size: int | None = None


class ScriptVersionPage(Answer):
    """Versions, newest first. If `cursor` is present, there are more."""

    items: list[ScriptVersionAnswer]
    cursor: str | None = None


class UploadAnswer(Answer):
    """A presigned upload of a script: PUT it to `uploadUrl` with exactly `headers`. `url`: where
    the script will be stored; `objectKey`: its key in the bucket; `signed`: whether a signature
    that executors verify is stored with it.
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
    """Range of occurrences that one record covers: the first, the last, and their number."""

    from_: datetime = Field(alias="from")
    to: datetime
    count: int


class AttemptAnswer(Answer):
    """An attempt. `scriptSha256`: digest of the script that was fetched. `logs`: where to read the
    full output, if the record does not hold all of it.
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
    """An execution. `startedAt` and `exitCode` belong to its latest attempt. A pending occurrence
    without a record has only a few of these fields.
    """

    execution_id: str
    job_id: str
    state: RunState
    trigger: Trigger | None = Field(
        default=None, description="What created the execution. Absent if there is no record yet."
    )
    request_reason: str | None = Field(default=None, description="Reason given in the request.")
    payload: JsonValue | None = Field(
        default=None, description="Payload that replaces that of the job."
    )
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
    """A stored execution that cannot be decoded."""

    execution_id: str
    job_id: str
    state: Literal["UNREADABLE"]
    reason: str


class ExecutionPage(Answer):
    """Executions. A page may hold fewer items than `limit`: if `cursor` is present, there are
    more.
    """

    items: list[ExecutionAnswer | UnreadableExecution]
    cursor: str | None = None


class UpcomingList(Answer):
    """Occurrences, earliest first."""

    items: list[UpcomingAnswer]


class LogLineAnswer(Answer):
    """A line that an attempt printed."""

    attempt: int
    at: datetime | None = None
    stream: str
    text: str


class LogAnswer(Answer):
    """Lines of a log. `ended`: no more lines will follow."""

    items: list[LogLineAnswer]
    cursor: str | None = None
    ended: bool


class NotRedriven(Answer):
    """An execution that was not redriven, and the reason."""

    execution_id: str
    reason: str


class RedrivenAnswer(Answer):
    """Result of redriving dead executions. `more`: others may be left; continue from `cursor`."""

    redriven: list[str]
    skipped: list[NotRedriven]
    more: bool
    cursor: str | None = None
