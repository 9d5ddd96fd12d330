"""The definition of a job, as its owner writes it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from nextfire.domain.document import MAX_PAYLOAD_BYTES, document_error, is_same_json
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
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.target import Target
from nextfire.domain.when import WhenDocument

MAX_TIMEOUT_SEC = 11 * 3_600
MAX_LABELS = 32
"""With the limits of keys and values, labels stay well below the size of a DynamoDB item."""

LabelKey = Annotated[str, Field(min_length=1, max_length=64)]
LabelValue = Annotated[str, Field(max_length=256)]


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
