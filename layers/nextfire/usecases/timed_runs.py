"""Runs of jobs that have a schedule and parents.

Such a run needs its time to come and its parents' runs. Its watcher sends the time as a message;
the executor that receives it notes the time in the join of the run, then reads the records of the
parents. An executor that ends the run of a parent writes that record, then reads whether the time
has come. So of these executors the last one sees everything, and decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.audit import GRACE
from nextfire.domain.awaited import (
    ParentRun,
    left_mark,
    logical_times,
    longest_wait,
    occurrence_fed,
    ready_at,
    recent_occurrences,
    run_at,
    run_left,
    states_of,
    time_mark,
    time_of,
)
from nextfire.domain.deadlines import limits, no_later
from nextfire.domain.decisions import decide_covered, is_last
from nextfire.domain.edges import Edge, Which
from nextfire.domain.ids import RunKey, first_run_id
from nextfire.domain.instants import CLOCKS_DIFFER, MOMENT, cut
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from nextfire.domain.trigger_rules import (
    ParentState,
    RuleAction,
    RuleDecision,
    decide_start,
    missing,
)
from nextfire.usecases.awaits_again import awaits_again
from nextfire.usecases.earlier_runs import earlier_runs
from nextfire.usecases.read_parents import (
    one_by_one,
    read_above,
    read_parents,
    records_near,
)
from nextfire.usecases.start_child import JoinEnd, StartChild

JOIN_END_DISPATCH = 1_000_000
"""Number of the dispatch that ends a join. No other dispatch of a run reaches it, so the queue does
not merge their messages, and the executor that receives it never takes it for a run's start."""
MAX_WAITING = 100
"""Maximum number of a job's latest occurrences that a success of a `latest` parent starts at once.
Earlier ones are decided when their joins end."""


def waits_for_parents(joins: JoinStore, key: RunKey, now: datetime) -> bool:
    """Whether the time of the run has come, and its join has not ended long before *now*."""
    ends_at = time_of(joins.read(key, [0]))
    return ends_at is not None and now < ends_at + GRACE


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """Decides on the runs of jobs with a schedule and parents. Every call is idempotent."""

    jobs: JobStore
    runs: RunStore
    joins: JoinStore
    start: StartChild

    def begin(self, job: Job, message: RunMessage) -> JoinEnd:
        """The time of the run of *message*, which has no record, has come."""
        key, now = message.key, self.start.clock.now()
        decided = self._decide(job, key)
        if decided.action is RuleAction.RUN:
            # It needs no end. With the mark, it can be redriven together with its parents.
            self.joins.add(key, 0, time_mark(now), now)
            return self._act(job, key, decided, message)
        ends_at = time_of(self.joins.read(key, [0]))
        if ends_at is None or ends_at <= now:
            deadline = job.definition.deadline(key.scheduled_at)
            ends_at = cut(no_later(now + longest_wait(job), deadline, now))
        # Before the mark: an executor that dies in between repeats this.
        self.start.dispatch_later(job, key, ends_at, JOIN_END_DISPATCH)
        self.joins.add(key, 0, time_mark(ends_at), now)
        return self._act(job, key, self._decide(job, key), message)

    def parent_ended(self, child: Job, edge: Edge, ended: Run) -> Iterator[Run]:
        """Decide again on the runs of *child* that wait for *ended*, a run of the parent of *edge*.
        Yields those that ended without an executor.
        """
        for at in self._fed(child, edge, ended):
            key = child.run_key(at)
            marks = self.joins.read(key, [0])
            if time_of(marks) is None:
                continue  # its message reads the record of this parent
            if self._another_is_left(child, edge, ended, marks):
                continue  # the executor of that run decides
            done = self._act(child, key, self._decide(child, key))
            if done.run is not None and done.run.ended_without_executor:
                if done.skipped and child.state is JobState.ACTIVE and is_last(child, done.run):
                    self.jobs.complete(child, self.start.clock.now())
                yield done.run

    def end(self, job: Job, message: RunMessage) -> JoinEnd:
        """The join of the run of *message*, which has no record, ends."""
        key, now = message.key, self.start.clock.now()
        if time_of(self.joins.read(key, [0])) is None:
            # The executor that received the time died before it noted it. Without the note, the
            # executor of a parent that is redriven later would not look at this run.
            self.joins.add(key, 0, time_mark(now), now)
        decided = self._decide(job, message.key)
        if decided.action is not RuleAction.WAIT:
            return self._act(job, message.key, decided, message)
        reason = f"{limits(job.definition)}; missing: {missing(states_of(decided.parents))}"
        covered = self._covered(job, message.key)
        if covered is not None:
            return JoinEnd(covered.reason or "", covered)
        # With a pool, so that no parent that ends later reopens it.
        pool, at = job.definition.target.pool, message.dispatched_at
        return JoinEnd(reason, self.start.skip(message.key, reason, pool=pool, at=at), skipped=True)

    def look_again(self, job: Job, skipped: Run) -> Run:
        """Reopen the run that was *skipped* because of its parents, if its rule decides RUN by now,
        without those parents that end again later.

        A parent that was redriven meanwhile may have found no record of this run, and have sent it.
        """
        decided = self._decide(job, skipped.key)
        if decided.action is not RuleAction.RUN or not skipped.skipped_by_parents:
            return skipped
        if awaits_again(self.jobs, self.runs, job, skipped.key, *_seen(decided.parents)):
            return skipped
        at = ready_at(decided.parents, self.start.clock.now())
        return self.start.reopen(job, skipped, at, decided.reason)

    def _fed(self, child: Job, edge: Edge, ended: Run) -> list[datetime]:
        """The occurrences of *child* that may wait for *ended*."""
        if edge.which is not Which.LATEST:
            at = occurrence_fed(child, edge, ended.key.scheduled_at)
            return [] if at is None else [at]
        if ended.state is not RunState.SUCCEEDED:
            return []
        # The executor that noted a time may be ahead.
        until = self.start.clock.now() + CLOCKS_DIFFER
        recent = recent_occurrences(child, until, limit=MAX_WAITING)
        if not recent:
            return []
        first, last = first_run_id(recent[0]), first_run_id(recent[-1] + MOMENT)
        decided = {
            run.key.scheduled_at
            for run in self.runs.between(child.key, first, last, lenient=True)
            if run.key.uid == child.uid and not run.skipped_by_parents
        }
        return [at for at in recent if at not in decided]

    def _another_is_left(self, child: Job, edge: Edge, ended: Run, marks: Collection[str]) -> bool:
        """Whether a run that the join with *marks* names has not ended, so that the end of *ended*
        decides nothing. It saves reading all awaited runs: of thousands that catch up after an
        outage, each end would read all.

        If that run ends at the same time, its executor reads the mark after it wrote the record, so
        it decides.
        """
        left = run_left(child, marks)
        if left is None or left == (edge, ended.key.scheduled_at):
            return False
        other, at = left
        alone = {"this": ParentState.of(ended.state), "other": ParentState.WAITING}
        if decide_start(child.definition.trigger_rule, alone).action is not RuleAction.WAIT:
            return False
        above = read_above(one_by_one(self.jobs), child.key.tenant, [other.job])
        parent = above.get(other.job)
        if parent is None or at not in logical_times(parent, above, at - MOMENT, at):
            return False  # its job was paused, or changed
        run = run_at([*records_near(self.runs, parent.key, at)], at)
        return run is None or not run.state.ended

    def _decide(self, job: Job, key: RunKey) -> _Decision:
        parents = read_parents(self.jobs, self.runs, job, key.scheduled_at)
        rule, (states, setups) = job.definition.trigger_rule, _seen(parents)
        return _Decision(decide_start(rule, states, setups), parents)

    def _act(
        self, job: Job, key: RunKey, decided: _Decision, message: RunMessage | None = None
    ) -> JoinEnd:
        """Start or skip the run, or leave it as it is. *message*: of its time or its end."""
        if decided.action is RuleAction.WAIT:
            if left := left_mark(job, decided.parents):
                self.joins.add(key, 0, left, self.start.clock.now())
            return JoinEnd(f"waits for {decided.reason}")
        stored = self.runs.get(key)
        if decided.action is RuleAction.RUN and job.state is not JobState.PAUSED:
            at = ready_at(decided.parents, self.start.clock.now())
            if stored is not None and stored.skipped_by_parents:
                if awaits_again(self.jobs, self.runs, job, key, *_seen(decided.parents)):
                    return JoinEnd(f"is {stored.state}", stored)
                return JoinEnd(decided.reason, self.start.reopen(job, stored, at, decided.reason))
            self.start.start(job, key, stored, at, decided.reason)
            return JoinEnd(decided.reason, stored)
        stored = stored or self._covered(job, key)
        if stored is not None:
            return JoinEnd(f"is {stored.state}", stored)
        if decided.action is RuleAction.RUN:
            # With a pool, so that no parent that ends later reopens it.
            pool, reason = job.definition.target.pool, "its job was paused"
            return JoinEnd(reason, self.start.skip(key, reason, pool=pool), skipped=True)
        sent_at = None if message is None else message.dispatched_at
        skipped = self.look_again(job, self.start.skip(key, decided.reason, at=sent_at))
        return JoinEnd(decided.reason, skipped, skipped=True)

    def _covered(self, job: Job, key: RunKey) -> Run | None:
        """The record of missed occurrences that covers the run, by a watcher that found it late."""
        now = self.start.clock.now()
        return decide_covered(job, key, now, lambda: earlier_runs(self.runs, key))


def _seen(parents: Collection[ParentRun]) -> tuple[dict[str, ParentState], set[str]]:
    """The states of *parents* by name, and the names of those that are setups."""
    return states_of(parents), {each.name for each in parents if each.edge.setup}


@dataclass(frozen=True, slots=True)
class _Decision:
    """A decision, and the runs that it is based on."""

    decision: RuleDecision
    parents: list[ParentRun]

    @property
    def action(self) -> RuleAction:
        return self.decision.action

    @property
    def reason(self) -> str:
        return self.decision.reason
