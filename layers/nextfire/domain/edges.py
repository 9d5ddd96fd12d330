"""The edges of a sequence: which runs of other jobs a run waits for."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from nextfire.domain.document import Document
from nextfire.domain.ids import JOB_ID
from nextfire.domain.schedule import MAX_DELAY

MAX_PARENTS = 1_000
"""Maximum number of parents of a job."""
MAX_JOIN_TIMEOUT_SEC = 30 * 86_400
_DAY_SEC = 86_400


class Which(StrEnum):
    """Which run of the parent an edge waits for."""

    SAME = "same"  # the one with the same logical time


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
        description="Id of the parent, a job of the same tenant."
    )
    which: Which = Field(
        default=Which.SAME,
        description="Which run of the parent it waits for. `same`: the one with the same logical "
        "time.",
    )
    delay_sec: Annotated[int, Field(strict=True, ge=0, le=MAX_DELAY // timedelta(seconds=1))] = (
        Field(
            default=0, description="Start this long after the parent's run has ended, in seconds."
        )
    )

    @property
    def delay(self) -> timedelta:
        return timedelta(seconds=self.delay_sec)


Edges = Annotated[tuple[Edge, ...], Field(max_length=MAX_PARENTS)]
JoinTimeoutSec = Annotated[int, Field(strict=True, ge=1, le=MAX_JOIN_TIMEOUT_SEC)]
USUAL_JOIN_TIMEOUT_SEC = _DAY_SEC
