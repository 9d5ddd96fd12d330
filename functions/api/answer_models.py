"""The models of what the API answers. Only its description imports them: building the classes is a
measurable part of a start, and answers are not validated a second time.
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
