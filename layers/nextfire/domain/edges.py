"""The edges of a sequence: which runs of other jobs a run waits for."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, StrictBool, model_validator

from nextfire.domain.document import Document, document_error
from nextfire.domain.ids import JOB_ID
from nextfire.domain.schedule import MAX_DELAY

MAX_PARENTS = 1_000
"""Maximum number of parents of a job."""
MAX_TIMED_PARENTS = 100
"""Maximum number of parents of a job with a schedule: an executor reads the runs of all of them
when one of them has ended."""
MAX_JOIN_TIMEOUT_SEC = 30 * 86_400
_DAY_SEC = 86_400


class Which(StrEnum):
    """Which run of the parent an edge waits for."""

    SAME = "same"  # the one with the same logical time
    LATEST = "latest"  # the latest that succeeded
    ALL = "all"  # all of the interval since the child's previous occurrence


class TriggerRule(StrEnum):
    """When a run starts, given the states of its parents' runs; see `trigger_rules`."""

    ALL_SUCCEEDED = "ALL_SUCCEEDED"
    ALL_DONE = "ALL_DONE"
    ANY_FAILED = "ANY_FAILED"
    ANY_SUCCEEDED = "ANY_SUCCEEDED"
    NONE_FAILED = "NONE_FAILED"


class Edge(Document):
    """An edge from a parent to the job that has it: `job` is the id of the parent."""

    job: Annotated[str, Field(pattern=f"^{JOB_ID.pattern}$")] = Field(
        description="Id of the parent, a job of the same tenant.", examples=["extract"]
    )
    which: Which = Field(
        default=Which.SAME,
        description="Which run of the parent it waits for. `same`: the one with the same logical "
        "time. For a job with a schedule also `latest`: one that succeeded, and ended `withinSec` "
        "before the occurrence or later; `all`: each run since the job's previous occurrence.",
    )
    within_sec: Annotated[int, Field(strict=True, ge=1, le=MAX_DELAY // timedelta(seconds=1))] | (
        None
    ) = Field(
        default=None,
        description="For `latest`, which needs it: how long before the occurrence the parent's run "
        "may have ended, in seconds.",
    )
    delay_sec: Annotated[int, Field(strict=True, ge=0, le=MAX_DELAY // timedelta(seconds=1))] = (
        Field(
            default=0, description="Start this long after the parent's run has ended, in seconds."
        )
    )

    setup: StrictBool = Field(
        default=False,
        description="The job cleans up what this parent set up: whatever `triggerRule` says, it is "
        "SKIPPED unless the parent's run succeeded. `triggerRule` is about the other parents.",
    )

    @model_validator(mode="after")
    def _check_within(self) -> Self:
        if (self.which is Which.LATEST) == (self.within_sec is not None):
            return self
        problem = (
            f"withinSec is only for `latest`, and `which` is `{self.which}`"
            if self.within_sec is not None
            else "`latest` needs withinSec"
        )
        remedy = 'For example `{"job": "extract", "which": "latest", "withinSec": 3600}`.'
        raise document_error("edge", problem, remedy, field="withinSec")

    @property
    def within(self) -> timedelta:
        """How long before the occurrence a run may have ended, for `latest`."""
        return timedelta(seconds=self.within_sec or 0)

    @property
    def delay(self) -> timedelta:
        return timedelta(seconds=self.delay_sec)


Edges = Annotated[tuple[Edge, ...], Field(max_length=MAX_PARENTS)]
JoinTimeoutSec = Annotated[int, Field(strict=True, ge=1, le=MAX_JOIN_TIMEOUT_SEC)]
DeadlineSec = Annotated[int, Field(strict=True, ge=1, le=MAX_JOIN_TIMEOUT_SEC)]
MAX_PARALLEL = 100
"""Maximum of `maxParallel`: executors read the sequences that are under way."""
MaxParallel = Annotated[int, Field(strict=True, ge=1, le=MAX_PARALLEL)]
USUAL_JOIN_TIMEOUT_SEC = _DAY_SEC
