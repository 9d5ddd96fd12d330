"""What the API answers, and what it is sent, with types.

An answer is a view of its JSON document: `job.next_fire_at` is the document's `nextFireAt`, as an
aware instant. A field is read when it is asked for, so an answer of a newer API, which says more
or leaves something out, breaks no call; `document` is all of it, as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from pydantic import Field, JsonValue, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from nextfire.domain.backfill import Order
from nextfire.domain.job import (
    Backoff,
    JobDefinition,
    JobState,
    MisfirePolicy,
    Overlap,
    Priority,
    RetryJitter,
    WhenDocument,
)
from nextfire.domain.keys import KeyState, Scope
from nextfire.domain.run import AttemptOutcome, RunState, Trigger
from nextfire.domain.schedule import Dst, ScheduleType

UNREADABLE = "UNREADABLE"
"""The state of what is stored and does not decode: else there are only an id and a `reason`."""

T = TypeVar("T")
OrNew = Annotated[T | str, Field(union_mode="left_to_right")]
"""One of these values, or a text that this client does not know yet."""


class Answer:
    """A JSON document that the API returned. `document`: the whole of it. `etag`: of a single job,
    for `if_match`.

    A field that the API omitted is None if its type allows that, else an AttributeError.
    """

    def __init__(self, document: Mapping[str, Any], etag: str | None = None) -> None:
        self.document = dict(document)
        self.etag = etag

    if not TYPE_CHECKING:  # else every name would be one of a field

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — each field has its own
            kind = fields(type(self)).get(name)
            if kind is None or name.startswith("__"):
                raise AttributeError(f"{type(self).__name__} has no field {name!r}")
            alias = written(name)
            if alias not in self.document and not kind.optional:
                raise AttributeError(f"this {type(self).__name__} came without {alias!r}: {self!r}")
            value = kind.read(self.document.get(alias))
            self.__dict__[name] = value
            return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.document!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls)


class Kind:
    """Of a field: how its JSON is read, and whether it may be absent."""

    def __init__(self, annotation: Any) -> None:  # noqa: ANN401 — any type
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        self.optional = type(None) in getattr(annotation, "__args__", ())

    def read(self, value: object) -> object:
        return self._adapter.validate_python(value)


_FIELDS: dict[type[Answer], dict[str, Kind]] = {}


def fields(model: type[Answer]) -> dict[str, Kind]:
    """The fields of an answer, by their names in Python."""
    if model not in _FIELDS:
        hints = get_type_hints(model, include_extras=True)
        _FIELDS[model] = {name: Kind(hint) for name, hint in hints.items()}
    return _FIELDS[model]


def written(name: str) -> str:
    """A field's name as the API writes it."""
    return to_camel(name.removesuffix("_"))


class Health(Answer):
    """The API is there. `time`: by its clock."""

    status: str
    time: datetime


class SecretReference(Answer):
    """A variable that is a secret of Secrets Manager."""

    secret: str
    key: str | None


class ParameterReference(Answer):
    """A variable that is a parameter of the SSM Parameter Store."""

    parameter: str


class Target(Answer):
    """What a run carries out. `env`: its variables, as the job has them."""

    pool: str
    handler: str | None
    script: str | None
    env: dict[str, Any]


class RetryOn(Answer):
    """After which attempts another is made."""

    states: list[OrNew[AttemptOutcome]]
    exit_codes: list[int] | None


class RetryPolicy(Answer):
    """What follows an attempt that failed, timed out or lost its worker."""

    max_attempts: int
    backoff: OrNew[Backoff]
    initial_delay_ms: int
    max_delay_ms: int
    jitter: OrNew[RetryJitter]
    retry_on: RetryOn


class Misfire(Answer):
    """What becomes of occurrences that come late."""

    policy: OrNew[MisfirePolicy]
    relevancy_window_sec: int | None


class Backfill(Answer):
    """Occurrences of the past that are to run: `count` of them, from `first` to `last`; those that
    are on record already are passed over.
    """

    backfill_id: str
    job_id: str
    first: datetime
    last: datetime
    count: int
    order: OrNew[Order]
    asked_at: datetime
    reason: str | None


class Job(Answer):
    """A job: its definition with all defaults, and the state that the system keeps. `state` is
    DRAINING for a PAUSED job with runs in progress. An UNREADABLE job has only `job_id` and
    `reason`.
    """

    job_id: str
    state: OrNew[JobState]
    reason: str | None
    revision: int
    next_fire_at: datetime | None
    skips: list[datetime] | None
    paused_at: datetime | None
    pause_reason: str | None
    drain_asked_at: datetime | None
    resumes_at: datetime | None
    backfill: Backfill | None
    created_at: datetime
    updated_at: datetime
    type: OrNew[ScheduleType]
    schedule: str | list[str] | None
    timezone: str
    start_at: str | None
    end_at: str | None
    dst: OrNew[Dst]
    max_runs: int | None
    jitter_sec: int
    name: str | None
    target: Target
    payload: JsonValue
    retry_policy: RetryPolicy
    timeout_sec: int
    priority: OrNew[Priority]
    misfire: Misfire
    overlap: OrNew[Overlap]
    labels: dict[str, str]


class Fault(Answer):
    """One offending field: what was given, what is wrong with it, and what to do."""

    field: str
    value: str
    problem: str
    remedy: str


class Problem(Answer):
    """What went wrong with one of many."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] | None
    quota: str | None


class BatchResult(Answer):
    """What became of one job of a batch: the job, or the problem that it is."""

    status: int
    job: Job | None
    problem: Problem | None


class Batch(Answer):
    """What became of each job of a batch, in their order."""

    results: list[BatchResult]


class NotChanged(Answer):
    """A job that was not changed, and why."""

    job_id: str
    problem: Problem


class Many(Answer):
    """The outcome of a bulk operation. `progress_token`: continues it in the next call."""

    matched: int
    changed: int
    failed: list[NotChanged]
    progress_token: str | None


class Script(Answer):
    """A script. `handler`: what jobs call it; `url`: where it lies; `size`: bytes."""

    pool: str
    handler: str
    url: str
    size: int
    modified_at: datetime


class ScriptPage(Answer):
    """Scripts by pool and name. There are more where `cursor` is."""

    items: list[Script]
    cursor: str | None


class ScriptVersion(Answer):
    """A script as it was, or is, if `latest`. `size`: None where it was deleted."""

    version_id: str
    modified_at: datetime
    latest: bool
    size: int | None


class ScriptVersionPage(Answer):
    """Versions, the latest first. There are more where `cursor` is."""

    items: list[ScriptVersion]
    cursor: str | None


class Upload(Answer):
    """A URL for the PUT of a script, with exactly these headers. Anyone who has it can use it."""

    pool: str
    handler: str
    object_key: str
    size: int
    sha256: str
    signed: bool
    url: str
    method: str
    upload_url: str
    headers: dict[str, str]
    expires_at: datetime

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.document.items() if name != "uploadUrl"}
        return f"Upload({shown!r})"


class Upcoming(Answer):
    """An occurrence: `at` in UTC, `local` with `offset` as its zone's clock shows it. `due_at`:
    with jitter. `execution_id`: of a job's, the id that its execution will have.
    """

    execution_id: str | None
    at: datetime
    local: str
    offset: str
    due_at: datetime | None
    skipped: bool | None
    note: str | None


class LastRun(Answer):
    """A job's newest execution, in short."""

    execution_id: str
    state: OrNew[RunState]
    scheduled_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None


class JobDetail(Job):
    """A job, with its newest execution, if it had one, and its next occurrences."""

    last_run: LastRun | None
    upcoming: list[Upcoming]


class JobPage(Answer):
    """Jobs by id. A page may hold fewer than asked for, and none: there are more where `cursor`
    is.
    """

    items: list[Job]
    cursor: str | None


class UpcomingList(Answer):
    """Occurrences, the earliest first."""

    items: list[Upcoming]


class Covered(Answer):
    """The occurrences for which one record stands: the first, the last, and how many."""

    from_: datetime
    to: datetime
    count: int


class Attempt(Answer):
    """One attempt. `script_sha256`: the digest of the script that was fetched for it. `logs`: where
    to read what it printed, if that is not all on the record.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None
    outcome: OrNew[AttemptOutcome] | None
    exit_code: int | None
    reason: str | None
    script_sha256: str | None
    logs: str | None


class Execution(Answer):
    """A run; `started_at` and `exit_code` are its latest attempt's. Of one whose `state` is
    UNREADABLE there are only its ids and a `reason`.
    """

    execution_id: str
    job_id: str
    state: OrNew[RunState]
    trigger: OrNew[Trigger] | None
    request_reason: str | None
    payload: JsonValue | None
    scheduled_at: datetime
    range: Covered | None
    dispatched_at: datetime | None
    dispatch_reason: str | None
    started_at: datetime | None
    finished_at: datetime | None
    retry_at: datetime | None
    pool: str | None
    dispatch: int | None
    attempt: int | None
    attempts_before_redrive: int | None
    worker: str | None
    job_revision: int | None
    exit_code: int | None
    reason: str | None
    cancel_requested: bool | None
    cancel_reason: str | None
    stdout: str | None
    stderr: str | None
    result_bytes: int | None
    checkpoint_bytes: int | None
    attempts: list[Attempt] | None
    result: JsonValue | None


class ExecutionPage(Answer):
    """Executions. A page may hold fewer than asked for: there are more where `cursor` is."""

    items: list[Execution]
    cursor: str | None


class LogLine(Answer):
    """A line that an attempt printed."""

    attempt: int
    at: datetime | None
    stream: str
    text: str


class Log(Answer):
    """Lines of a log. `ended`: nothing will follow."""

    items: list[LogLine]
    cursor: str | None
    ended: bool


class NotRedriven(Answer):
    """A run that was not redriven, and why."""

    execution_id: str
    reason: str


class Redriven(Answer):
    """What became of dead runs. `more`: others may be left, from `cursor` on."""

    redriven: list[str]
    skipped: list[NotRedriven]
    more: bool
    cursor: str | None


class Key(Answer):
    """An API key, as anybody may know it. Of one whose `state` is UNREADABLE there are only
    `key_id` and `reason`.
    """

    key_id: str
    name: str
    scopes: list[OrNew[Scope]]
    state: OrNew[KeyState]
    reason: str | None
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    last_used_on: date | None
    cidrs: list[str] | None
    labels: dict[str, str] | None


class NewKey(Key):
    """An API key with its text as `key`; None if an earlier response contained it."""

    key: str | None

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.document.items() if name != "key"}
        return f"NewKey({shown!r})"


class Rotated(Answer):
    """The key that was made, and the one that it replaces."""

    new: NewKey
    old: Key

    def __repr__(self) -> str:
        return f"Rotated(new={self.new!r}, old={self.old!r})"


class KeyPage(Answer):
    """API keys by id, those that are good no more included. There are more where `cursor` is."""

    items: list[Key]
    cursor: str | None


class OwnQuotas(Answer):
    """The quotas of a tenant. None: not limited."""

    jobs: int | None
    runs_per_minute: int | None
    concurrent_runs: int | None
    payload_bytes: int | None
    shortest_interval_sec: int | None
    requests_per_second: int | None
    request_burst: int | None
    key_requests_per_second: int | None
    key_request_burst: int | None


class UsedQuotas(Answer):
    """The usage of a tenant's quotas. None: not limited. `runs_per_minute`: in this minute."""

    jobs: int | None
    runs_per_minute: int | None


class Quotas(Answer):
    """The caller's quotas and their usage. `weight` (≥ 1): the tenant's share when tenants take
    turns. `minute_ends_at`: when the count of runs per minute is reset.
    """

    quotas: OwnQuotas
    used: UsedQuotas
    minute_ends_at: datetime
    weight: int


class JobRequest(JobDefinition):
    """A job as it is to be: what `create_job` and `put_job` take. Its fields are checked when it is
    made, as the API checks them.
    """

    job_id: str | None = None


class PreviewRequest(WhenDocument):
    """The part of a job that says when, as if it were stored at `after` (default: now)."""

    count: int = 10
    after: str | None = None


def sent(given: WhenDocument | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON document of what is sent: a model's fields as they were set, or *given* itself."""
    if not isinstance(given, WhenDocument):
        return dict(given)
    document = given.model_dump(mode="json", by_alias=True, exclude_unset=True)
    # A payload may be null; any other field that is None is unset.
    return {n: value for n, value in document.items() if value is not None or n == "payload"}


def given(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return *fields* without those that are None, with instants as text.

    Raises:
        ValueError: An instant is naive.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError(f"{name}: {value} has no time zone; give an aware instant")
            found[name] = value.isoformat()
        elif value is not None:
            found[name] = value
    return found
