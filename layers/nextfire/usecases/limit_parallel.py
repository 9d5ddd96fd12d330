"""Limit how many sequences of a job are under way at once: `maxParallel`.

The sequences under way are noted under their job, by the executors of their first runs. An executor
that finds no room looks which of them have ended, and removes these; nothing has to be written when
a sequence ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, field
from nextfire.domain.audit import GRACE
from nextfire.domain.decisions import range_over
from nextfire.domain.edges import Which
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import MOST_WAITS, JobKey, RunKey
from nextfire.domain.instants import isoformat
from nextfire.domain.jitter import spread
from nextfire.domain.job import Job
from nextfire.domain.joins import groups
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.targets import Hold
from nextfire.domain.retention import RETENTION
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import ScheduleType
from nextfire.usecases.earlier_runs import earlier_runs

LOOK_EVERY = timedelta(seconds=5)
"""How often a run that waits for room looks again, at first."""
LOOK_AT_LEAST_EVERY = timedelta(seconds=30)
_LONGER = 1.1  # factor from one look to the next
_SPREAD = 5  # runs that wait together look within this part of the interval
_NAMED = 3  # sequences that a reason names
_REMEMBERED = 1_000  # sequences
_FRESH = timedelta(seconds=1)
"""For this time a process does not look again at a sequence that is under way: many runs can wait,
and each look at a sequence reads the table."""
_Above = list[tuple[datetime, timedelta]]


@dataclass(frozen=True, slots=True)
class LimitParallel:
    """Decides whether the first run of a sequence must wait for others. For each sequence under
    way, by its first run: `left`, the child whose run had not ended at the last look of this
    process; `looked`: when that was.
    """

    jobs: JobStore
    runs: RunStore
    joins: JoinStore
    left: dict[RunKey, tuple[Job, _Above]] = field(default_factory=dict)
    looked: dict[RunKey, datetime] = field(default_factory=dict)

    def hold(self, job: Job, key: RunKey, now: datetime, *, dispatch: int = 1) -> Hold | None:
        """Return until when the run *key* of *job* must wait, and why; None if it may start, or if
        an executor has it already. Idempotent: a run that may start keeps its place.

        A run looks more seldom with each *dispatch*: all looks of a job write one item, and many of
        its runs can wait.

        Raises:
            UndecodableError: The run *key* does not decode.
            UnavailableError: A store did not answer.
        """
        most = job.definition.max_parallel
        if most is None or self.joins.begin_sequence(key, most, now):
            return None
        run = self.runs.get(key)
        if run is not None and run.state is not RunState.PENDING:
            return None  # a redelivered message
        begun = sorted(self.joins.begun_sequences(job.key))
        for first in begun:
            if self._has_ended(job, first, now):
                self.joins.end_sequences(job.key, [first])
                if self.joins.begin_sequence(key, most, now):
                    return None
        return Hold(now + _look_in(key, dispatch), why_held(job, begun))

    def _has_ended(self, job: Job, first: str, now: datetime) -> bool:
        """Whether no run of the sequence is left, as far as that decodes."""
        key = RunKey(job.key, first)
        looked = self.looked.get(key)
        if looked is not None and timedelta() <= now - looked < _FRESH:
            return False
        try:
            if not self._is_under_way(job, first, now):
                return True
        except UndecodableError:
            pass  # it keeps its place; the others are not affected
        if len(self.looked) >= _REMEMBERED:
            self.looked.clear()
        self.looked[key] = now
        return False

    def _is_under_way(self, job: Job, first: str, now: datetime) -> bool:
        """Whether a run of the sequence that *first* began has not ended."""
        key = RunKey(job.key, first)
        if key.uid != job.uid:
            return False  # the job was deleted and created again
        if self._is_still_left(key, now):
            return True
        root = self.runs.get(key)
        if root is None:
            return self._may_begin(key, now)
        if not root.state.ended:
            return True
        ended, level = {job.key.job_id: root}, [job]
        while level:
            below: list[Job] = []
            for child, above in self._children(level, ended):
                run = self.runs.get(_run_of(child, key))
                if self._is_left(child, run, key, above, now):
                    self._remember(key, child, above)
                    return True
                if run is not None:
                    ended[child.key.job_id] = run
                    below.append(child)
            level = below
        return False

    def _is_still_left(self, first: RunKey, now: datetime) -> bool:
        """Whether the run that was left of the sequence at the last look is still left. It saves
        reading the whole sequence. If the job of that run has changed, it may have no link to it.
        """
        left = self.left.get(first)
        if left is None:
            return False
        child, above = left
        current = self.jobs.get(child.key)
        if current is not None and current.version == child.version:
            return self._is_left(child, self.runs.get(_run_of(child, first)), first, above, now)
        return False

    def _remember(self, first: RunKey, child: Job, above: _Above) -> None:
        if len(self.left) >= _REMEMBERED:
            self.left.clear()
        self.left[first] = (child, above)

    def _is_left(
        self, child: Job, run: Run | None, first: RunKey, above: _Above, now: datetime
    ) -> bool:
        """Whether *run*, the one of *child*, has not ended. It may have no record."""
        if run is None:
            return self._may_start(child, _run_of(child, first), above, now)
        return not run.state.ended

    def _may_begin(self, key: RunKey, now: datetime) -> bool:
        """Whether an executor can be about to claim the run *key*, which has no record. Not if a
        range covers it: the executor that took the place died before the claim. Not if the record
        can have expired.
        """
        is_recent = key.scheduled_at > now - RETENTION
        return is_recent and range_over(key, earlier_runs(self.runs, key)) is None

    def _children(self, level: list[Job], ended: dict[str, Run]) -> Iterator[tuple[Job, _Above]]:
        """The children of the jobs *level* that have a run at this logical time and are not among
        *ended*; and when each of their parents' runs ended, with the delay of the edge.
        """
        names = dict.fromkeys(name for job in level for name in job.children if name not in ended)
        tenant = level[0].key.tenant
        # They are handed over in this order, so the last one tends to end last.
        keys = [JobKey(tenant, name) for name in reversed(names)]
        for child in (self.jobs.get(key) for key in keys):
            if child is None or child.state is JobState.CANCELLED:
                continue
            runs = [
                (edge.delay, ended[edge.job].finished_at)
                for edge in child.definition.after
                if edge.which is Which.SAME and edge.job in ended
            ]
            above = [(at, delay) for delay, at in runs if at is not None and at >= child.created_at]
            if child.definition.type is ScheduleType.AFTER and above:
                yield child, above

    def _may_start(self, child: Job, key: RunKey, above: _Above, now: datetime) -> bool:
        """Whether the run *key* of *child*, which has no record, can start or be skipped. If the
        child was changed after its parents' runs ended, they may not have been handed over to it:
        then for a short time only, unless its join has begun.
        """
        ready = max(at + delay for at, delay in above)
        if now >= ready + child.definition.join_timeout:
            return False
        if now < ready + GRACE or any(at >= child.updated_at for at, _ in above):
            return True
        return bool(self.joins.read(key, groups(child.definition.after)))


def _run_of(child: Job, first: RunKey) -> RunKey:
    return child.run_key(first.scheduled_at)


def why_held(job: Job, begun: Collection[str]) -> str:
    """Why a run of *job* waits while the sequences with the first runs *begun* are under way."""
    left = [isoformat(RunKey(job.key, first).scheduled_at) for first in sorted(begun)]
    more = f" and {len(left) - _NAMED} more" if left[_NAMED:] else ""
    names = ", ".join(left[:_NAMED]) + more
    return f"maxParallel is {job.definition.max_parallel}; under way: {names}"


def _look_in(key: RunKey, dispatch: int) -> timedelta:
    looks = (
        dispatch % MOST_WAITS - 1
    )  # since its last redrive; other reasons can count up dispatches
    longer = _LONGER ** min(looks, 100)
    interval = min(LOOK_EVERY * longer, LOOK_AT_LEAST_EVERY)
    return interval + spread(f"{key.run_id}#{dispatch}", interval / _SPREAD)
