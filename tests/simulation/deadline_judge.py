"""Judges deadlines of runs in sequences, with none of the product's code for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState, Trigger
from tests.simulation.sequences import Seen, Sequences

if TYPE_CHECKING:
    from tests.evidence import Stored

CLOCKS = timedelta(seconds=4)
"""How much the clocks of processes may differ from true time."""
DECIDING = timedelta(seconds=60)
"""How long ago an executor that decides now may have read the job of a child."""
_SKIPPED = re.compile(r"picked up [\d.]+ s after its logical time; deadlineSec is (\d+) s")


@dataclass(frozen=True)
class DeadlineJudge:
    """`ever`: all stored versions of each job."""

    sequences: Sequences
    ever: Mapping[tuple[JobKey, str], list[Stored]]

    def started(self, key: RunKey, seen: Seen, in_force: Collection[Job]) -> Iterator[str]:
        """A run that is not redriven starts in time, unless one above it started after the deadline
        because it was redriven.
        """
        deadlines = [job.definition.deadline(key.scheduled_at) for job in in_force]
        if any(each is None or seen.at <= each + DECIDING for each in deadlines):
            return
        earliest = min(filter(None, deadlines)) - CLOCKS
        above = (each for run in self._above(key, seen.at) for each in run if each.at <= seen.at)
        if not any(_on_purpose(each.run) and each.at >= earliest for each in above):
            yield f"{key.execution_id} started after its deadline {deadlines}"

    def skipped(self, key: RunKey, seen: Seen, in_force: Collection[Job]) -> Iterator[str]:
        """A run is skipped for its deadline only if it is over, and no run above it is late on
        purpose.
        """
        by_deadline = _SKIPPED.fullmatch(seen.run.reason or "")
        if by_deadline is None:
            return
        late = [job for job in in_force if self.is_late(job, key, seen.at)]
        if by_deadline[1] not in {str(job.definition.deadline_sec) for job in late}:
            yield f"{key.execution_id}: {seen.run.reason}, but it was in time"
        elif self._is_excused(key, seen.at):
            yield f"{key.execution_id}: {seen.run.reason}, but one above it was redriven later"

    def is_late(self, job: Job, key: RunKey, at: datetime) -> bool:
        deadline = job.definition.deadline(key.scheduled_at)
        return deadline is not None and at >= deadline - CLOCKS

    def _is_excused(self, key: RunKey, at: datetime) -> bool:
        """Whether a run above it certainly was late on purpose when an executor decided by *at*,
        and made the runs between the two late.
        """
        deadline = self.ever[key.job, key.uid][0].job.definition.deadline(key.scheduled_at)
        if self.sequences.changes or deadline is None:
            return False

        def is_made_late(runs: Iterable[list[Seen]]) -> bool:
            return all(_began_after(run, deadline + CLOCKS, at) for run in runs)

        for run in self._above(key, at, is_made_late):
            starts = (each.at for each in run if each.at <= at and _on_purpose(each.run))
            since = min(starts, default=at)
            again = any(since < each.at <= at and each.run.state == "PENDING" for each in run)
            if deadline + CLOCKS < since < at - DECIDING and not again:
                return True
        return False

    def _above(
        self,
        key: RunKey,
        until: datetime,
        leads_on: Callable[[Iterable[list[Seen]]], bool] = lambda _: True,
    ) -> Iterator[list[Seen]]:
        """The runs above, by any versions of the jobs up to *until*; those above the runs of a job
        only if *leads_on* is true of these.
        """
        level, known = {key.job}, {key.job}
        while level:
            edges = {
                edge.job
                for (job, _), stored in self.ever.items()
                if job in level
                for each in stored
                if each.written_at <= until and each.job.definition.type == "AFTER"
                for edge in each.job.definition.after
            }
            level = {JobKey(key.job.tenant, name) for name in edges} - known
            known |= level
            runs = {job: self.sequences.seen[job][key.scheduled_at].values() for job in level}
            for of_job in runs.values():
                yield from of_job
            level = {job for job, of_job in runs.items() if leads_on(of_job)}


def _began_after(run: list[Seen], after: datetime, until: datetime) -> bool:
    """Whether the run began after *after*, or ended without an attempt, since it last became
    PENDING after its end; or had done neither by *until*.
    """
    since: list[Seen] = []
    for each in (each for each in run if each.at <= until):
        if each.run.state == "PENDING" and since and since[-1].run.state.ended:
            since = []
        since.append(each)
    done = (each.at for each in since if each.run.state == "RUNNING" or each.run.state.ended)
    return next(done, until) > after


def _on_purpose(run: Run) -> bool:
    """Whether it runs because it was redriven, or as part of a backfill."""
    asked_for = run.attempt_base > 0 or run.restarted or run.trigger is Trigger.BACKFILL
    return run.state is RunState.RUNNING and asked_for
