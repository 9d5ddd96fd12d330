"""How long records of runs and ended jobs are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from nextfire.domain.document import StrictModel
from nextfire.domain.job import Job
from nextfire.domain.run import RunState, Trigger

RETENTION = timedelta(days=90)
"""How long a record is kept after its last change, unless a shorter time is allowed."""
MIN_RETENTION = timedelta(days=15)
"""Minimum retention: a queue holds a message for 14 days, and the record of an ended run keeps its
message from starting it again."""
MAX_RETENTION = timedelta(days=3_650)
_Kept = Annotated[timedelta, Field(ge=MIN_RETENTION, le=MAX_RETENTION)]


class RunRetention(StrictModel):
    """How long the records of ended runs are kept, by outcome."""

    # Attribute docstrings would do, but pydantic parses the file for them at each import.
    succeeded: _Kept = Field(default=timedelta(days=30), description="SUCCEEDED runs.")
    dead: _Kept = Field(default=RETENTION, description="DEAD runs.")

    def of(self, job: Job, state: RunState, trigger: Trigger = Trigger.SCHEDULE) -> timedelta:
        """How long the record of a run of *job* that ended in *state* is kept.

        At least `RETENTION` in a sequence, with `maxParallel`, and for runs of a backfill: what
        decides by these records may do so up to 80 days later.
        """
        kept = {RunState.SUCCEEDED: self.succeeded, RunState.DEAD: self.dead}.get(state, RETENTION)
        in_sequence = bool(job.children or job.definition.after)
        decides = in_sequence or job.definition.max_parallel is not None
        return max(kept, RETENTION) if decides or trigger is Trigger.BACKFILL else kept

    @property
    def longest(self) -> timedelta:
        """After this time, no run has a record."""
        return max(self.succeeded, self.dead, RETENTION)

    @property
    def shortest(self) -> timedelta:
        """After this time, a run without a record may have had one."""
        return min(self.succeeded, self.dead, RETENTION)


DEFAULT_RETENTION = RunRetention.model_construct()
