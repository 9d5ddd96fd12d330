"""Judges whether the ends of runs reached the runs of their children: none is missing, and none
stays SKIPPED although its rule decides otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.simulation.deadline_judge import CLOCKS, DECIDING
from tests.simulation.sequence_reasons import BY_WATCHERS
from tests.simulation.sequence_rules import ENDED, may_run
from tests.simulation.sequences import Sequences

if TYPE_CHECKING:
    from tests.evidence import Stored

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class HandedOver:
    """`ever`, `runs`, `marks`: as of `SequenceJudge`."""

    sequences: Sequences
    ever: Mapping[tuple[JobKey, str], list[Stored]]
    runs: Mapping[RunKey, Run]
    marks: Callable[[RunKey], Collection[str]]

    def unchanged(self) -> Iterator[Job]:
        """The jobs whose definitions never changed."""
        for stored in self._alone():
            if len({each.job.definition.model_dump_json() for each in stored}) == 1:
                yield stored[-1].job

    def wrong(self) -> Iterator[str]:
        """Every run that ended was handed over to every child that was one since before the last
        attempt of the run.
        """
        children = [stored for stored in self._alone() if all(map(_is_child, stored))]
        unchanged = {job.key for job in self.unchanged()}
        for parent, run in self.runs.items():
            if parent.job.tenant != self.sequences.tenant or not self._is_handed_over(run):
                continue
            for stored in children:
                child = stored[-1].job
                if run.finished_at is None or run.finished_at < child.created_at:
                    continue  # by the clock of a process that was behind
                if self._began_at(parent) < _child_since(stored, parent.job.job_id):
                    continue
                yield from self._missing(run, child, unchanged=child.key in unchanged)

    def _missing(self, run: Run, child: Job, *, unchanged: bool) -> Iterator[str]:
        parent = run.key
        at = self.sequences.seen[child.key][parent.scheduled_at]
        keys = [key for key in at if key.uid == child.uid]
        if not keys:
            yield f"{parent.execution_id} is {run.state}; {child.key.job_id} has no record"
        elif unchanged and len(child.definition.after) > 1:
            marks = {mark.split(":")[0] for mark in self.marks(keys[0])}
            if parent.job.job_id not in marks:
                yield f"{keys[0].execution_id}: its join has no mark of {parent.job.job_id}"

    def stays_skipped(self, run: Run) -> Iterator[str]:
        """The rule still decides to skip *run*: a parent that ended later reopens it, also by a
        rule or edges that are new since.
        """
        stored = self.ever[run.key.job, run.key.uid]
        if stored not in [*self._alone()] or not all(map(_is_child, stored)):
            return  # with a time, it may have been skipped before that was handed over
        if any(each.job.state is JobState.PAUSED for each in stored):
            return  # a paused job is not reopened
        job, since = stored[-1].job, _definition_since(stored)
        latest: dict[str, set[str]] = {}
        again = since == stored[0].written_at
        for edge in job.definition.after:
            parent = JobKey(run.key.job.tenant, edge.job)
            runs = self.sequences.seen[parent][run.key.scheduled_at]
            states = {ENDED.get(seen[-1].run.state, "") for seen in runs.values()}
            latest[edge.job] = states - {""}
            again |= any(self._ended_after(key, run, since) for key in runs)
        certain = all(len(states) == 1 for states in latest.values())
        rule, setups = job.definition.trigger_rule, job.definition.setups
        if again and certain and may_run(rule, latest, setups):
            yield f"{run.key.execution_id} is SKIPPED ({run.reason}), but they ended {latest}"

    def _ended_after(self, parent: RunKey, skipped: Run, since: datetime) -> bool:
        """Whether the run *parent* ended after *skipped*, in an attempt that began long enough
        after *since* to know the children of that time.
        """
        finished_at = self.runs[parent].finished_at
        assert skipped.finished_at is not None
        later = finished_at is not None and finished_at > skipped.finished_at + CLOCKS
        return later and self._began_at(parent) > since + DECIDING

    def _began_at(self, key: RunKey) -> datetime:
        """When the last attempt of the run *key* began, or when it ended without one."""
        seen = self.sequences.seen[key.job][key.scheduled_at][key]
        begun = [each.at for each in seen if each.run.state is RunState.RUNNING]
        return max(begun, default=seen[0].at)

    def _alone(self) -> Iterator[list[Stored]]:
        """The versions of each job of a sequence that was never deleted."""
        for (key, _), stored in self.ever.items():
            if key not in self.sequences.order or len(self._uids(key)) > 1:
                continue
            if all(each.job.state is not JobState.CANCELLED for each in stored):
                yield stored

    def _uids(self, key: JobKey) -> set[str]:
        return {uid for job, uid in self.ever if job == key}

    def _is_handed_over(self, run: Run) -> bool:
        """Whether an executor certainly received a message of the ended *run*."""
        stored = self.ever[run.key.job, run.key.uid]
        states = {each.job.state for each in stored}
        if not run.state.ended or JobState.CANCELLED in states:
            return False
        job = stored[-1].job
        if run.pool is None and BY_WATCHERS.search(run.reason or ""):
            return False
        if job.definition.is_timed_join and run.state is RunState.CANCELLED and not run.attempts:
            return False  # a watcher may have missed it then, and sent nothing
        is_due = run.key.scheduled_at < self.sequences.kernel.clock.now()
        if run.skip_requested and (JobState.PAUSED in states or not is_due):
            return False  # its time has not come, or was not sent
        # The executor of its parent skips its descendants, if the edge still exists.
        linked = bool(job.definition.after) and any(job == each for each in self.unchanged())
        return bool(run.attempts) or (linked and run.covered == 1)


def _is_child(stored: Stored) -> bool:
    definition = stored.job.definition
    return bool(definition.after) and not definition.is_timed_join


def _child_since(stored: list[Stored], parent: str) -> datetime:
    """Since when the job has had the edge from *parent* without a break, and executors know it."""
    since = _NEVER
    for each in reversed(stored):
        if each.job.definition.edge_from(parent) is None:
            break
        since = each.written_at
    return since if since in {stored[0].written_at, _NEVER} else since + DECIDING


def _definition_since(stored: list[Stored]) -> datetime:
    """Since when the job has had its last definition."""
    last, since = stored[-1].job.definition.model_dump_json(), stored[-1].written_at
    for each in reversed(stored):
        if each.job.definition.model_dump_json() != last:
            break
        since = each.written_at
    return since
