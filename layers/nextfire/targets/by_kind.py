"""Chooses the runner of a job's target."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.targets import AttemptResult, Hold, RunControl, TargetRunner
from nextfire.domain.run import Run
from nextfire.domain.target import TargetKind


class TargetsByKind:
    """`TargetRunner` of an executor. A target of another kind than *runners* fails: the job has
    moved, or was stored by a version without this check.
    """

    def __init__(self, runners: Mapping[TargetKind, TargetRunner]) -> None:
        self._runners = dict(runners)

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> Hold | None:
        runner = self._runners.get(job.definition.target.kind)
        return None if runner is None else runner.admit(job, run, now, first=first)

    def release(self, job: Job, run: RunKey) -> None:
        runner = self._runners.get(job.definition.target.kind)
        if runner is not None:
            runner.release(job, run)

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        target = job.definition.target
        runner = self._runners.get(target.kind)
        if runner is not None:
            return runner.attempt(job, run, supervisor, longest)
        kinds = " and ".join(sorted(kind.noun for kind in self._runners))
        reason = (
            f"the pool {target.pool} runs {kinds}, not {target.kind.noun}: "
            "change target.pool of the job, or `targets` of the pool"
        )
        return AttemptResult.failed(reason, permanent=True)
