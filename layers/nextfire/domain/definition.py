"""The definition of a job, as its owner writes it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Self, TypeGuard

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from nextfire.domain.document import MAX_PAYLOAD_BYTES, Document, document_error, is_same_json
from nextfire.domain.edges import (
    MAX_TIMED_PARENTS,
    USUAL_JOIN_TIMEOUT_SEC,
    DeadlineSec,
    Edge,
    Edges,
    JoinTimeoutSec,
    MaxParallel,
    TriggerRule,
    Which,
)
from nextfire.domain.json_text import json_size
from nextfire.domain.policies import Misfire, Overlap, Priority, RetryPolicy
from nextfire.domain.preview import upcoming
from nextfire.domain.schedule import (
    EXAMPLES,
    MAX_DATES,
    MAX_DELAY,
    MAX_JITTER,
    MAX_RUNS,
    UNTIMED,
    Dst,
    Schedule,
    ScheduleType,
    Upcoming,
)
from nextfire.domain.target import Target

MAX_TIMEOUT_SEC = 11 * 3_600
MAX_LABELS = 32
"""With the limits of keys and values, labels stay well below the size of a DynamoDB item."""

MAX_EXPRESSION = 256
MAX_INSTANT = 64
InstantText = Annotated[str, Field(min_length=1, max_length=MAX_INSTANT)]
LabelKey = Annotated[str, Field(min_length=1, max_length=64)]
LabelValue = Annotated[str, Field(max_length=256)]
_ScheduleForm = (
    Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION)]
    | Annotated[list[InstantText], Field(min_length=1, max_length=MAX_DATES)]
    | None
)
"""For the JSON schema. `WhenDocument` checks the form by type."""


class WhenDocument(Document):
    """The schedule of a job document. `schedule`: a string; for DATES a list of strings; absent for
    MANUAL and AFTER.

    Checks types and lengths. `Schedule` parses the values.
    """

    type: ScheduleType = Field(description="How `schedule` is interpreted.")
    schedule: str | tuple[str, ...] | None = Field(
        default=None,
        validate_default=True,
        description="ONCE: a future ISO 8601 instant; without an offset it is in `timezone`. "
        f"DELAY: an ISO 8601 duration from now, at most {MAX_DELAY.days:,} days. CRON: minute, "
        "hour, day of month, month, day of week, or a macro such as `@daily`. INTERVAL: an "
        "ISO 8601 duration of a second or more. DATES: a list of instants. MANUAL, AFTER: "
        "absent; all other types require it.",
    )
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default="UTC", description="IANA time zone, e.g. Europe/Berlin."
    )
    start_at: InstantText | None = Field(
        default=None,
        description="First instant at which it may run; INTERVAL counts from it. ISO 8601; "
        "without an offset it is in `timezone`.",
    )
    end_at: InstantText | None = Field(
        default=None,
        description="Last instant at which it may run. ISO 8601; without an offset it is in "
        "`timezone`.",
    )
    dst: Dst = Field(
        default=Dst.ONCE,
        description="How often CRON and DATES run at a local time that a clock change repeats.",
    )
    max_runs: Annotated[int, Field(strict=True, ge=1, le=MAX_RUNS)] | None = Field(
        default=None,
        description="Maximum number of runs, counted from the last change of the schedule.",
    )
    jitter_sec: Annotated[int, Field(strict=True, ge=0, le=MAX_JITTER // timedelta(seconds=1))] = (
        Field(default=0, description="Each run is delayed by a random time below this, in seconds.")
    )

    @field_validator("schedule", mode="plain", json_schema_input_type=_ScheduleForm)
    @classmethod
    def _check_form(cls, value: object, info: ValidationInfo) -> str | tuple[str, ...] | None:
        kind = info.data.get("type")
        if value is None and kind in UNTIMED:
            return None
        if isinstance(value, list | tuple) and kind in {None, ScheduleType.DATES}:
            texts = tuple(each for each in value if _is_text(each, MAX_INSTANT))
            if 1 <= len(value) == len(texts) <= MAX_DATES:
                return texts
        if kind not in {ScheduleType.DATES, *UNTIMED} and _is_text(value, MAX_EXPRESSION):
            return value
        raise document_error("schedule_form", *_form(kind, is_absent=value is None))

    @field_serializer("schedule")
    def _as_json(self, expression: str | tuple[str, ...] | None) -> str | list[str] | None:
        return [*expression] if isinstance(expression, tuple) else expression

    @property
    def jitter_width(self) -> timedelta:
        return timedelta(seconds=self.jitter_sec)

    def schedule_from(self, effective_from: datetime) -> Schedule:
        """Return the schedule, counted from *effective_from*."""
        return Schedule(
            self.type,
            self.schedule,
            self.timezone,
            effective_from,
            start_at=self.start_at,
            end_at=self.end_at,
            dst=self.dst,
        )

    def next_occurrences(self, since: datetime, after: datetime, count: int) -> list[datetime]:
        """Return the instants of the next *count* occurrences after *after*, within `max_runs`
        counted from *since*. Raises as `upcoming` does.
        """
        found = upcoming(self.schedule_from(since), after, count, max_runs=self.max_runs)
        return [each.occurrence.at for each in found]

    def upcoming(self, since: datetime, after: datetime, count: int, *, uid: str) -> list[Upcoming]:
        """Return the next *count* occurrences due after *after*, within `max_runs` counted from
        *since*, with the jitter of the job *uid*.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        return upcoming(
            self.schedule_from(since),
            after,
            count,
            max_runs=self.max_runs,
            jitter_key=uid,
            jitter_width=self.jitter_width,
        )


def _is_text(value: object, longest: int) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= longest


def _form(kind: ScheduleType | None, *, is_absent: bool) -> tuple[str, str]:
    """Return the problem of a `schedule` that does not fit its type, and the remedy."""
    if kind in UNTIMED:
        return f"jobs of type {kind} have no schedule", "Omit it, or in a PATCH set it to null."
    if is_absent:
        what = "required field is missing"
    elif kind is ScheduleType.DATES:
        what = f"not a list of 1 to {MAX_DATES} texts, each an instant"
    else:
        what = f"not a text of 1 to {MAX_EXPRESSION} characters"
    what = what if kind is None or is_absent else f"{what}, as {kind} needs"
    return what, f"For example `{EXAMPLES[kind or ScheduleType.CRON]}`."


class JobDefinition(WhenDocument):
    """A job as its owner defined it, with defaults filled in."""

    model_config = ConfigDict(defer_build=False)  # threads read jobs concurrently

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Display name of the job."
    )
    target: Target
    payload: JsonValue = Field(
        default_factory=dict,
        description=f"Input of the script: any JSON value, at most {MAX_PAYLOAD_BYTES:,} bytes.",
    )
    retry_policy: RetryPolicy = RetryPolicy()
    timeout_sec: Annotated[int, Field(strict=True, ge=1, le=MAX_TIMEOUT_SEC)] = Field(
        default=300,
        description="Timeout of one attempt, in seconds. At most the pool's timeout less 60 s: "
        "840 s on Lambda by default.",
    )
    priority: Priority = Field(
        default=Priority.NORMAL,
        description="Runs that are due in the same second start in this order.",
    )
    misfire: Misfire = Misfire()
    overlap: Overlap = Field(
        default=Overlap.ALLOW,
        description="What to do if a run is due while an earlier one has not ended: run both, "
        "wait, skip it, or cancel the earlier one.",
    )
    after: Edges = Field(
        default=(),
        description="Parents. An AFTER job runs once for each logical time at which they run; a "
        "job with a schedule runs at each occurrence, after them.",
    )
    trigger_rule: TriggerRule = Field(
        default=TriggerRule.ALL_SUCCEEDED,
        description="When a run starts, given the states in which the runs of its parents ended.",
    )
    join_timeout_sec: JoinTimeoutSec = Field(
        default=USUAL_JOIN_TIMEOUT_SEC,
        description="How long a run waits for the other parents after the first one has ended, "
        "or, with a schedule, for all parents after it is due, in seconds. Then it is SKIPPED.",
    )
    max_parallel: MaxParallel | None = Field(
        default=None,
        description="For a job without parents: how many of its runs, with the sequences that they "
        "start, may be under way at once. Further runs wait.",
    )
    deadline_sec: DeadlineSec | None = Field(
        default=None,
        description="For a job with parents: how long after the logical time of its sequence a run "
        "may start, in seconds. After that it is SKIPPED, and not retried; and its join ends.",
    )
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_LABELS)] = Field(
        default_factory=dict,
        description="Texts by name, for listings, changes of many jobs and restricted API keys.",
    )

    @model_validator(mode="after")
    def _check_edges(self) -> Self:
        found = self._edge_fault()
        if found is not None:
            raise document_error("after", *found, field="after")
        return self

    def _edge_fault(self) -> tuple[str, str] | None:
        """The problem of the edges, and the remedy."""
        example = 'For example `"type": "AFTER", "after": [{"job": "extract"}]`.'
        names = [edge.job for edge in self.after]
        if not names:
            if self.type is ScheduleType.AFTER:
                return "an AFTER job needs parents", example
            changed = self.trigger_rule is not TriggerRule.ALL_SUCCEEDED
            if (
                changed
                or self.join_timeout_sec != USUAL_JOIN_TIMEOUT_SEC
                or self.deadline_sec is not None
            ):
                problem = "triggerRule, joinTimeoutSec and deadlineSec need parents"
                return problem, "Omit them, or add `after`."
            return None
        if self.max_parallel is not None:
            problem = "maxParallel is for the first job of a sequence, and this job has parents"
            return problem, "Set it at the first job. For this job alone, use `overlap`."
        if self.type is ScheduleType.MANUAL:
            return f"a job of type {self.type} has no parents", example
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            return f"{twice} is listed twice", "List each parent once."
        if all(edge.setup for edge in self.after):
            problem = "all parents are a setup: it would clean up before anything has run"
            return problem, "Add a parent without `setup`: the work between."
        return self._untimed_fault() if self.type is ScheduleType.AFTER else self._timed_fault()

    def _untimed_fault(self) -> tuple[str, str] | None:
        edge = next((edge for edge in self.after if edge.which is not Which.SAME), None)
        if edge is None:
            return None
        problem = f"`{edge.which}` of {edge.job} needs a schedule: an AFTER job has no occurrences"
        remedy = (
            'Use `"which": "same"`, or give the job a schedule. For example `"type": "CRON", '
            '"schedule": "0 3 * * *"`.'
        )
        return problem, remedy

    def _timed_fault(self) -> tuple[str, str] | None:
        if len(self.after) > MAX_TIMED_PARENTS:
            problem = f"a job with a schedule has at most {MAX_TIMED_PARENTS} parents"
            return problem, "Join the parents in a job of type AFTER, and make that the parent."
        fails = any(edge.which is not Which.LATEST for edge in self.after if not edge.setup)
        if self.trigger_rule is TriggerRule.ANY_FAILED and not fails:
            problem = "triggerRule ANY_FAILED never holds: a `latest` parent waits for a success"
            return problem, 'Use `"which": "all"` or `"same"`, or another rule.'
        return None

    def runs_like(self, other: JobDefinition) -> bool:
        """Whether an attempt does the same under *other*: target, payload, retry policy and
        timeout.
        """
        if (self.retry_policy, self.timeout_sec) != (other.retry_policy, other.timeout_sec):
            return False
        return is_same_json(self.payload, other.payload) and self.target.is_same(other.target)

    @property
    def is_timed_join(self) -> bool:
        """Whether it has a schedule and parents: a run needs its time to come and its parents."""
        return bool(self.after) and self.type is not ScheduleType.AFTER

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_sec)

    @property
    def join_timeout(self) -> timedelta:
        return timedelta(seconds=self.join_timeout_sec)

    @property
    def setups(self) -> frozenset[str]:
        """The parents whose run must have succeeded."""
        return frozenset(edge.job for edge in self.after if edge.setup)

    def deadline(self, at: datetime) -> datetime | None:
        """The latest start of the run with the logical time *at*; None: it has no deadline."""
        return None if self.deadline_sec is None else at + timedelta(seconds=self.deadline_sec)

    def edge_from(self, parent: str) -> Edge | None:
        """Return the edge from the job *parent*, or None."""
        return next((edge for edge in self.after if edge.job == parent), None)

    def document(self) -> dict[str, Any]:
        """Return the JSON document: camelCase, without unset fields."""
        # Only a payload can be null; any other field that is None is unset.
        document = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return document | {"payload": self.payload}

    def payload_bytes(self) -> int:
        return json_size(self.payload)


EDGE_FIELDS = frozenset({"after", "triggerRule", "joinTimeoutSec", "deadlineSec"})
"""Members of the document of a job that matter only for jobs with parents."""

SCHEDULE_FIELDS = frozenset(WhenDocument.model_fields)
"""Fields of a definition. A change of one of them creates a new `schedule_version`."""
