"""Jobs: the definition by the user, and the state that the system keeps with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Annotated, Any, Literal, Self, TypeGuard

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from nextfire.domain.backfill import Backfill
from nextfire.domain.due import NORMAL_RANK, BackfillEntry, FireEntry, ResumeEntry, fire
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut, to_ms
from nextfire.domain.run import AttemptOutcome, Result
from nextfire.domain.schedule import (
    EXAMPLES,
    MAX_DATES,
    MAX_DELAY,
    MAX_JITTER,
    MAX_RUNS,
    Dst,
    Schedule,
    ScheduleType,
    Stretch,
    Upcoming,
    count_occurrences,
    jitter,
    next_instant,
    occurrences,
    parse_duration,
    spread,
    stretch,
    upcoming,
)

MAX_PAYLOAD_BYTES = 64 * 1024
MAX_LABELS = 32
"""With the limits of keys and values they stay far below what a DynamoDB item can hold."""
MAX_WINDOW_SEC = 30 * 86_400
MAX_ENV = 64
MAX_ENV_BYTES = 16 * 1024
_HANDLER = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?$"
"""A name, and perhaps the digest of the bytes to run."""
HANDLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_REFERENCE = r"^[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]*(/[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]*)*$"

MAX_EXPRESSION = 256
MAX_INSTANT = 64
InstantText = Annotated[str, Field(min_length=1, max_length=MAX_INSTANT)]
LabelKey = Annotated[str, Field(min_length=1, max_length=64)]
LabelValue = Annotated[str, Field(max_length=256)]


class Document(BaseModel):
    """A JSON document of the API: camelCase outside, strict about unknown fields, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        # Most are a part of another, which has a validator of its own for them.
        defer_build=True,
    )


class Priority(StrEnum):
    """Among runs that are due in the same second, the higher goes first."""

    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"

    @property
    def rank(self) -> int:
        """0 goes first."""
        return {Priority.HIGH: 0, Priority.NORMAL: NORMAL_RANK, Priority.LOW: 2}[self]


class MisfirePolicy(StrEnum):
    """What becomes of occurrences that were noticed too late. What does not run is on record."""

    RUN_ALL = "RUN_ALL"  # each runs, one after the other
    RUN_LATEST = "RUN_LATEST"  # the latest runs
    SKIP = "SKIP"  # none runs


class Misfire(Document):
    """What becomes of occurrences that come late. `relevancyWindowSec`: a run that would start
    later than this after it was due is skipped, whatever the policy.
    """

    policy: MisfirePolicy = MisfirePolicy.RUN_LATEST
    relevancy_window_sec: Annotated[int, Field(strict=True, ge=1, le=MAX_WINDOW_SEC)] | None = None

    @property
    def relevancy_window(self) -> timedelta | None:
        seconds = self.relevancy_window_sec
        return None if seconds is None else timedelta(seconds=seconds)


class Overlap(StrEnum):
    """What becomes of an occurrence that is due while an earlier run of its job has not ended."""

    ALLOW = "ALLOW"  # they run side by side
    QUEUE = "QUEUE"  # it waits for its turn
    SKIP = "SKIP"  # it is skipped
    REPLACE = "REPLACE"  # the earlier one is cancelled


class Backoff(StrEnum):
    """How the delay grows with the number *n* of attempts made (n ≥ 1), from `initial_delay_ms`."""

    FIXED = "FIXED"  # d
    LINEAR = "LINEAR"  # d · n
    EXPONENTIAL = "EXPONENTIAL"  # d · 2ⁿ⁻¹


class RetryJitter(StrEnum):
    """How a delay is spread, so that what failed together is not tried together."""

    NONE = "NONE"  # exactly the delay
    FULL = "FULL"  # between nothing and the delay, by a hash of the run and the attempt


RetriedOutcome = Literal[
    AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.WORKER_LOST
]
RETRIED: tuple[RetriedOutcome, ...] = (
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMED_OUT,
    AttemptOutcome.WORKER_LOST,
)
"""The outcomes of an attempt that another one may follow."""


class RetryOn(Document):
    """After which attempts another is made. `exitCodes`: of those that FAILED, the exit codes; a
    signal's is negative. None: whatever it was.
    """

    states: Annotated[tuple[RetriedOutcome, ...], Field(max_length=len(RETRIED))] = RETRIED
    exit_codes: (
        Annotated[
            tuple[Annotated[int, Field(strict=True, ge=-64, le=255)], ...],
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = None

    def covers(self, result: Result) -> bool:
        """Whether another attempt may follow one that ended with *result*."""
        if result.outcome not in self.states:
            return False
        return (
            self.exit_codes is None
            or result.outcome is not AttemptOutcome.FAILED
            or result.exit_code in self.exit_codes
        )


MAX_RETRY_DELAY_MS = MAX_DELAY // timedelta(milliseconds=1)
_USUAL_MAX_DELAY_MS = 3_600_000


class RetryPolicy(Document):
    """What follows an attempt that failed, timed out or lost its worker."""

    max_attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 3
    backoff: Backoff = Backoff.EXPONENTIAL
    initial_delay_ms: Annotated[int, Field(strict=True, ge=0, le=MAX_RETRY_DELAY_MS)] = 10_000
    max_delay_ms: Annotated[int, Field(strict=True, ge=0, le=MAX_RETRY_DELAY_MS)] = (
        _USUAL_MAX_DELAY_MS
    )
    jitter: RetryJitter = RetryJitter.NONE
    retry_on: RetryOn = RetryOn()

    @model_validator(mode="before")
    @classmethod
    def _longest_is_not_below_the_first(cls, document: object) -> object:
        """Without `maxDelayMs`, a first delay beyond its default is not cut."""
        if isinstance(document, dict) and not document.keys() & {"maxDelayMs", "max_delay_ms"}:
            first = document.get("initialDelayMs", document.get("initial_delay_ms"))
            if isinstance(first, int) and _USUAL_MAX_DELAY_MS < first <= MAX_RETRY_DELAY_MS:
                return {**document, "maxDelayMs": first}
        return document

    @model_validator(mode="after")
    def _ends(self) -> Self:
        # Each delay in full: jitter only shortens.
        total = sum((self._backoff(n) for n in range(1, self.max_attempts)), timedelta())
        if total > MAX_DELAY:
            told = {
                "problem": f"its delays add up to {total.days} days, more than {MAX_DELAY.days}",
                "remedy": "Lower maxAttempts, initialDelayMs or maxDelayMs.",
            }
            raise PydanticCustomError("retry_total", "{problem}", told)
        return self

    def delay(self, attempt: int, seed: str = "") -> timedelta:
        """How long to wait after attempt number *attempt* (≥ 1) failed. *seed*: what tells this run
        from others, for the jitter.
        """
        delay = self._backoff(attempt)
        if self.jitter is RetryJitter.FULL:
            return spread(f"{seed}#{attempt}", delay)
        return delay

    def _backoff(self, attempt: int) -> timedelta:
        factor = {
            Backoff.FIXED: 1,
            Backoff.LINEAR: attempt,
            Backoff.EXPONENTIAL: 2 ** min(attempt - 1, 40),
        }[self.backoff]
        return timedelta(milliseconds=min(self.initial_delay_ms * factor, self.max_delay_ms))


class SecretReference(Document):
    """A secret of Secrets Manager, `nextfire/pools/<pool>/<tenant>/<secret>`. `key`: one value of
    a secret that is a JSON object.
    """

    secret: Annotated[str, Field(pattern=_REFERENCE, max_length=256)]
    key: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class ParameterReference(Document):
    """A parameter of the SSM Parameter Store, `/nextfire/pools/<pool>/<tenant>/<parameter>`."""

    parameter: Annotated[str, Field(pattern=_REFERENCE, max_length=256)]


EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
EnvValue = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]
_RESERVED = re.compile(r"NEXTFIRE_.*|AWS_CONTAINER_.*|HOME|TMPDIR|PYTHONPATH")


class Target(Document):
    """What a run carries out: a script of the pool by name (`report`, or `report.zip`), or by
    its S3 URL. With `@sha256:` and a digest behind it, either is pinned to those bytes. `env`: what
    it finds in its environment; references are resolved when it starts, and recorded nowhere.
    """

    pool: Annotated[str, Field(min_length=1, max_length=64)] = "default"
    handler: Annotated[str, Field(pattern=_HANDLER)] | None = None
    script: Annotated[str, Field(pattern=r"^s3://", max_length=1024)] | None = None
    env: Annotated[
        dict[EnvName, EnvValue | SecretReference | ParameterReference], Field(max_length=MAX_ENV)
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.handler is None) == (self.script is None):
            raise ValueError("give either handler (a script's name) or script (its s3:// URL)")
        return self

    @field_validator("env")
    @classmethod
    def _leaves_ours_alone(
        cls, env: dict[str, str | SecretReference | ParameterReference]
    ) -> dict[str, str | SecretReference | ParameterReference]:
        reserved = [name for name in env if _RESERVED.fullmatch(name)]
        size = sum(len(v.encode()) for v in env.values() if isinstance(v, str))
        if reserved:
            told = {
                "problem": f"{reserved[0]} is set by the executor",
                "remedy": "Choose another name.",
            }
            raise PydanticCustomError("env_reserved", "{problem}", told)
        if size > MAX_ENV_BYTES:
            told = {
                "problem": f"its values have {size} bytes, more than {MAX_ENV_BYTES}",
                "remedy": "Put large values into the payload or into S3.",
            }
            raise PydanticCustomError("env_size", "{problem}", told)
        return env


class WhenDocument(Document):
    """The part of a job document that says when. `schedule`: a text; of DATES a list of texts; of
    MANUAL absent.

    What these say is read by `Schedule`; here stands what form they have.
    """

    type: ScheduleType
    schedule: Annotated[str | tuple[str, ...] | None, Field(validate_default=True)] = None
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    start_at: InstantText | None = None
    end_at: InstantText | None = None
    dst: Dst = Dst.ONCE
    max_runs: Annotated[int, Field(strict=True, ge=1, le=MAX_RUNS)] | None = None
    jitter_sec: Annotated[int, Field(strict=True, ge=0, le=MAX_JITTER // timedelta(seconds=1))] = 0

    @field_validator("schedule", mode="plain")
    @classmethod
    def _of_the_types_form(
        cls, value: object, info: ValidationInfo
    ) -> str | tuple[str, ...] | None:
        kind = info.data.get("type")
        if value is None and kind is ScheduleType.MANUAL:
            return None
        if isinstance(value, list | tuple) and kind in {None, ScheduleType.DATES}:
            texts = tuple(each for each in value if _is_text(each, MAX_INSTANT))
            if 1 <= len(value) == len(texts) <= MAX_DATES:
                return texts
        if kind not in {ScheduleType.DATES, ScheduleType.MANUAL} and _is_text(
            value, MAX_EXPRESSION
        ):
            return value
        problem, remedy = _form(kind)
        told = {"problem": problem, "remedy": remedy}
        raise PydanticCustomError("schedule_form", "{problem}", told)

    @field_serializer("schedule")
    def _as_json(self, expression: str | tuple[str, ...] | None) -> str | list[str] | None:
        return [*expression] if isinstance(expression, tuple) else expression

    @property
    def jitter_width(self) -> timedelta:
        return timedelta(seconds=self.jitter_sec)

    def schedule_from(self, effective_from: datetime) -> Schedule:
        """When, counted from *effective_from*."""
        return Schedule(
            self.type,
            self.schedule,
            self.timezone,
            effective_from,
            start_at=self.start_at,
            end_at=self.end_at,
            dst=self.dst,
        )

    def upcoming(
        self, effective_from: datetime, after: datetime, count: int, *, uid: str
    ) -> list[Upcoming]:
        """The next *count* occurrences due after *after*, within `max_runs` since
        *effective_from*, with the jitter of the job *uid*.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        return upcoming(
            self.schedule_from(effective_from),
            after,
            count,
            max_runs=self.max_runs,
            jitter_key=uid,
            jitter_width=self.jitter_width,
        )


def _is_text(value: object, longest: int) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= longest


def _form(kind: ScheduleType | None) -> tuple[str, str]:
    """What is wrong with a `schedule` that does not fit its type, and what to do."""
    if kind is ScheduleType.MANUAL:
        return "a MANUAL job has no schedule", "Leave it out, or in a PATCH set it to null."
    if kind is ScheduleType.DATES:
        what = f"not a list of 1 to {MAX_DATES} texts, each an instant"
    else:
        what = f"not a text of 1 to {MAX_EXPRESSION} characters"
    what = what if kind is None else f"{what}, as {kind} needs"
    return what, f"For example `{EXAMPLES[kind or ScheduleType.CRON]}`."


class JobDefinition(WhenDocument):
    """A job as its owner wrote it, defaults filled in."""

    model_config = ConfigDict(defer_build=False)  # threads read jobs side by side

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    target: Target
    payload: JsonValue = Field(default_factory=dict)
    retry_policy: RetryPolicy = RetryPolicy()
    timeout_sec: Annotated[int, Field(strict=True, ge=1, le=39_600)] = 300
    priority: Priority = Priority.NORMAL
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap.ALLOW
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_LABELS)] = Field(
        default_factory=dict
    )

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_sec)

    def document(self) -> dict[str, Any]:
        """The JSON document, camelCase, without fields that are unset."""
        # A payload may be null; any other field that is None is unset.
        document = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return document | {"payload": self.payload}

    def payload_bytes(self) -> int:
        return len(json.dumps(self.payload, ensure_ascii=False, separators=(",", ":")).encode())


SCHEDULE_FIELDS = frozenset(WhenDocument.model_fields)
"""The fields of a definition whose change makes a new `schedule_version`."""


class JobState(StrEnum):
    """ACTIVE has a FIRE entry; the others have none. COMPLETED: no occurrence is left."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self in {JobState.COMPLETED, JobState.CANCELLED}


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replaced schedule version. It owns its occurrences after `effective_from`, up to and
    including `until`, the instant of the change that replaced it. `paused`: the job was paused, so
    none of them runs.
    """

    version: int
    effective_from: datetime
    until: datetime
    when: WhenDocument
    counted_from: datetime | None = None
    resumed_at: datetime | None = None
    paused: bool = False


MAX_SKIPS = 8
MAX_REPLACED = 8
"""Number of replaced versions that a job keeps. It keeps more only while some have occurrences that
are not dispatched, which happens if the watcher is behind."""
MAX_REPLACED_BYTES = 64 * 1024
"""Maximum size of the replaced versions: they share the job's item, which is at most 400 KB."""
_ENVELOPE = 256  # bytes; maximum size of a replaced version without its schedule


def bytes_of(versions: Iterable[Replaced]) -> int:
    """Return an upper bound of the bytes that *versions* take in the job's item."""
    return sum(len(past.when.model_dump_json()) + _ENVELOPE for past in versions)


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job.

    - `uid`: different for each creation of a job with this id. `revision` (≥ 1): counts every
      change.
    - `schedule_version`: changes, and grows, if and only if *when* changes. A version owns the
      occurrences after `effective_from`, the instant of that change. For a job that was paused it
      is the start of the pause, because occurrences during the pause fall under the misfire policy
      at `resumed_at`.
    - `counted_from`: start of the count for DELAY, INTERVAL and `maxRuns`, if it differs from
      `effective_from`. Pauses do not change it.
    - `skips`: occurrences that a user asked to skip, the latest `MAX_SKIPS`. Each has a record.
    - `resumes_at`: when a PAUSED job is resumed automatically. `drain_asked_at`: when the user
      asked to drain a PAUSED job; its document then shows until when its runs continue.
    - `backfill`: the latest backfill that has not completed; see `backfilling`.
    - `counted`: the job counts toward its tenant's quota of jobs. Ended jobs do not.
    """

    key: JobKey
    uid: str
    revision: int
    schedule_version: int
    effective_from: datetime
    state: JobState
    definition: JobDefinition
    created_at: datetime
    updated_at: datetime
    replaced: tuple[Replaced, ...] = ()
    counted_from: datetime | None = None
    resumed_at: datetime | None = None
    pause_reason: str | None = None
    skips: tuple[datetime, ...] = ()
    resumes_at: datetime | None = None
    counted: bool = False
    drain_asked_at: datetime | None = None
    backfill: Backfill | None = None

    def with_new_version(self, now: datetime) -> Job:
        """Return the job with a new schedule version from *now* on. Version and `effective_from`
        only grow, whatever the clocks of the writers. All earlier versions are kept; `is_over`
        decides which can be dropped.
        """
        effective_from = max(cut(now), self.effective_from)
        when = self.definition.model_dump(include=set(WhenDocument.model_fields))
        past = Replaced(
            self.schedule_version,
            self.effective_from,
            effective_from,
            WhenDocument.model_validate(when),
            self.counted_from,
            self.resumed_at,
            self.state is JobState.PAUSED,
        )
        return replace(
            self,
            schedule_version=self._next_version(now),
            effective_from=effective_from,
            counted_from=None,
            resumed_at=None,
            replaced=(*self.replaced, past),
        )

    def paused(self, now: datetime, reason: str | None) -> Job:
        """Return the job paused: no occurrence after *now* is due until it is resumed."""
        paused = self.with_new_version(now)
        return replace(
            paused, state=JobState.PAUSED, counted_from=self._counted_from, pause_reason=reason
        )

    def resumed(self, now: datetime) -> Job:
        """Return the job resumed. Occurrences during the pause are now late."""
        return replace(
            self,
            state=JobState.ACTIVE,
            schedule_version=self._next_version(now),
            resumed_at=max(cut(now), self.effective_from),
            pause_reason=None,
            resumes_at=None,
            drain_asked_at=None,
        )

    def resumption(self, now: datetime) -> tuple[Job, FireEntry | None]:
        """Return the next revision of this PAUSED job, resumed at *now*, and its first due entry. A
        job without further occurrences becomes COMPLETED.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        resumed = replace(
            self.resumed(now), revision=self.revision + 1, updated_at=max(cut(now), self.updated_at)
        )
        first = resumed.first()
        if first is None and resumed.definition.type is not ScheduleType.MANUAL:
            return replace(resumed, state=JobState.COMPLETED, counted=False), None
        return resumed, first

    def resume_entry(self) -> ResumeEntry | None:
        """Return the due entry that ends the pause of this job; None if only a request ends it."""
        if self.state is not JobState.PAUSED or self.resumes_at is None:
            return None
        return ResumeEntry(self.key, self.uid, self.resumes_at)

    @property
    def backfilling(self) -> Backfill | None:
        """The backfill in progress, or None. A change of *when*, a pause and a deletion end it."""
        continues = self.backfill is not None and self.backfill.version == self.schedule_version
        return self.backfill if continues else None

    def backfill_entry(self, position: int) -> BackfillEntry | None:
        """Return the due entry that continues the backfill at its *position*-th occurrence (from
        1); None if no backfill is in progress.
        """
        asked = self.backfilling
        if asked is None:
            return None
        # Derived from the job, so that all writers write the same entry.
        return BackfillEntry(self.key, self.uid, asked.asked_at, asked.backfill_id, position)

    def past_schedule(self, first: datetime) -> Schedule:
        """Return the current schedule extended back to *first*. An INTERVAL keeps its phase; a
        DELAY keeps its start.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        counted_from, when = self._counted_from, self.definition
        if when.type is ScheduleType.DELAY or first > counted_from:
            return self.schedule
        if when.type is ScheduleType.INTERVAL and when.start_at is None:
            period = parse_duration(str(when.schedule), "schedule")
            return when.schedule_from(
                counted_from - ((counted_from - first) // period + 1) * period
            )
        return when.schedule_from(first - timedelta(milliseconds=1))

    def unpaused(self, now: datetime) -> FireEntry | None:
        """Return the due entry that records what was due in the pause of this PAUSED job, up to
        *now*, when a change ends its schedule version; None if nothing was due.
        """
        entry = self.first() if self.state is JobState.PAUSED else None
        return entry if entry is not None and entry.occurs_at <= now else None

    def as_of(self, past: Replaced) -> Job:
        """Return this job with the schedule of the version *past*."""
        when = {name: getattr(past.when, name) for name in WhenDocument.model_fields}
        return replace(
            self,
            schedule_version=past.version,
            effective_from=past.effective_from,
            counted_from=past.counted_from,
            resumed_at=past.resumed_at,
            state=JobState.PAUSED if past.paused else JobState.ACTIVE,
            definition=self.definition.model_copy(update=when),
        )

    def is_over(self, past: Replaced, unsent: Iterable[FireEntry], now: datetime) -> bool:
        """Whether all occurrences of the version *past* and earlier ones are dispatched by *now*.
        *unsent*: the FIRE entries of this job in the due table that were due by *now*.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        left = any(e.version <= past.version and e.occurs_at <= past.until for e in unsent)
        return not left and self.as_of(past).all_due_at(past.until) <= now

    def all_due_at(self, until: datetime) -> datetime:
        """Return when all occurrences up to *until* are due, jitter included.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        width = self.definition.jitter_width
        if not width:
            return until
        recent = occurrences(self.schedule, max(until - width, self.effective_from))
        of_it = takewhile(lambda occurrence: occurrence.at <= until, recent)
        return max((self.due_at(occurrence.at) for occurrence in of_it), default=until)

    def _next_version(self, now: datetime) -> int:
        return max(self.schedule_version + 1, to_ms(now))

    @property
    def version(self) -> str:
        """Identifies this state of the job among all that it ever had."""
        return f"{self.uid}-{self.revision}"

    @property
    def _counted_from(self) -> datetime:
        return self.counted_from or self.effective_from

    @property
    def schedule(self) -> Schedule:
        return self.definition.schedule_from(self._counted_from)

    @property
    def exclusive(self) -> bool:
        """Whether its runs exclude each other: they share a message group."""
        return self.definition.overlap is not Overlap.ALLOW

    def changed_after(self, at: datetime) -> bool:
        """Whether its document, and thus possibly its pool, changed at or after *at*."""
        return self.revision > 1 and self.updated_at >= at

    def next_after(self, after: datetime) -> datetime | None:
        """Return the next occurrence strictly after *after* and `effective_from`, in any state of
        the job.
        """
        return next_instant(self.schedule, max(after, self.effective_from))

    def first(self) -> FireEntry | None:
        """Return the due entry of this version's first occurrence, or None.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        return self.next_entry(self.effective_from)

    def next_entry(self, after: datetime) -> FireEntry | None:
        """Return the due entry of the first occurrence after *after*, in any state of the job; None
        after the last one, or the last one that `maxRuns` allows.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        at = self.next_after(after)
        if at is None:
            return None
        ordinal, most = self.ordinal(at), self.definition.max_runs
        return None if most is not None and ordinal > most else self.fire_entry(at, ordinal)

    def due_at(self, occurrence: datetime) -> datetime:
        """Return when the run of the occurrence at *occurrence* is due, jitter included."""
        return occurrence + jitter(self.uid, occurrence, self.definition.jitter_width)

    def fire_entry(self, occurrence: datetime, ordinal: int) -> FireEntry:
        """Return the due entry of the *ordinal*-th occurrence of this version, at *occurrence*."""
        width = self.definition.jitter_width
        return fire(
            self.key,
            self.uid,
            self.schedule_version,
            occurrence,
            put_off=jitter(self.uid, occurrence, width) if width else width,
            ordinal=ordinal,
            rank=self.definition.priority.rank,
        )

    def next_to_run(self, after: datetime) -> datetime | None:
        """Return the first occurrence after *after* that is not skipped, or None.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        entry = self.next_entry(after)
        while entry is not None and entry.occurs_at in self.skips:
            entry = self.next_entry(entry.occurs_at)
        return None if entry is None else entry.occurs_at

    def successor(self, entry: FireEntry) -> FireEntry | None:
        """Return the due entry after *entry*, an entry of this version; None after the last.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        return self.following(entry.occurs_at, entry.ordinal)

    def following(self, occurrence: datetime, ordinal: int) -> FireEntry | None:
        """Return the due entry after the *ordinal*-th occurrence; None after the last.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        most = self.definition.max_runs
        following = self.next_after(occurrence)
        if following is None or (most is not None and ordinal >= most):
            return None
        # Set only with `maxRuns`, to keep other entries small.
        return self.fire_entry(following, 1 if most is None else ordinal + 1)

    def stretch(self, entry: FireEntry, until: datetime) -> Stretch:
        """Return the occurrences from that of *entry* to *until*, within `maxRuns`; see
        `schedule.stretch`.
        """
        most = self.definition.max_runs
        left = MAX_RUNS**2 if most is None else max(most - entry.ordinal + 1, 1)
        return stretch(self.schedule, entry.occurs_at, until, at_most=left)

    def count_between(self, after: datetime, before: datetime, *, at_most: int) -> int:
        """Return the number of occurrences between *after* and *before*, both exclusive, within
        `maxRuns`; at most *at_most*.
        """
        first = self.next_after(after)
        if self.definition.max_runs is not None and first is not None and at_most:
            at_most = min(at_most, max(self.definition.max_runs - self.ordinal(first) + 1, 0))
        found = islice(occurrences(self.schedule, max(after, self.effective_from)), at_most)
        return sum(1 for _ in takewhile(lambda occurrence: occurrence.at < before, found))

    def ordinal(self, occurrence: datetime) -> int:
        """Return the position of the occurrence in this version, from 1. Computed only with
        `maxRuns`, up to `maxRuns` + 1; else 1.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        most = self.definition.max_runs
        if most is None:
            return 1
        return count_occurrences(self.schedule, occurrence, at_most=most + 1)

    def is_last(self, occurrence: datetime) -> bool:
        """Whether the occurrence at *occurrence* is the last one. False for a MANUAL job.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        if self.definition.type is ScheduleType.MANUAL:
            return False
        most = self.definition.max_runs
        return self.next_after(occurrence) is None or (
            most is not None and self.ordinal(occurrence) >= most
        )

    def upcoming(self, after: datetime, count: int) -> list[Upcoming]:
        """Return the next *count* occurrences due after *after*; empty if the job is not ACTIVE.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        if self.state is not JobState.ACTIVE:
            return []
        return self.definition.upcoming(self._counted_from, after, count, uid=self.uid)
