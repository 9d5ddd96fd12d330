"""Hand over: start, or skip, the runs of the children of a run that has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, replace
from nextfire.domain.awaited import time_of
from nextfire.domain.deadlines import limits, no_later
from nextfire.domain.definition import JobDefinition
from nextfire.domain.edges import Edge
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import CLOCKS_DIFFER, cut
from nextfire.domain.job import Job
from nextfire.domain.joins import (
    EVERY_GROUP,
    group_of,
    groups,
    has_second_end,
    is_complete,
    mark,
    ready_at,
)
from nextfire.domain.message import HAND_OVER_DISPATCH, RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.quotas import TenantQuotas
from nextfire.domain.run import Run
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start, missing
from nextfire.usecases.awaits_again import awaits_again, ended_since, first_start_waits
from nextfire.usecases.join_states import join_states, with_earlier_ends
from nextfire.usecases.start_child import JoinEnd, StartChild
from nextfire.usecases.timed_runs import JOIN_END_DISPATCH, TimedRuns

_MAX_SKIPPED = 100
"""Maximum number of runs that one call skips. It leaves the children of the others to executors,
through the due table."""
_ROUNDS, _ROUND_EVERY = 10, timedelta(seconds=1)
"""How often a hand-over is tried for the children for which a store did not answer."""
_REFUSED_AT_MOST = 16
"""A round ends early if refused calls outnumber the others by more than this, as in an outage."""
_PAUSED = "its job was paused"
MAX_SENT = 10
"""Maximum number of children whose runs the executor of their parent sends. Those of more children
pass the watcher, which keeps the bound of the queue and the shares of its tenants."""
AGAIN_AFTER, AGAIN_AT_MOST = timedelta(minutes=15), timedelta(hours=1)
"""Bounds of the delay before a hand-over to children that do not decode is repeated. The delay is
the time since the run ended."""
_LATE_JOINS_LAST = AGAIN_AT_MOST + timedelta(minutes=1)
"""Minimum remaining duration of a join after a late hand-over: in that time the hand-overs of the
other parents that have ended are repeated."""

_Served = dict[JobKey, Sequence[tuple[Job, Run] | UndecodableError]]


@dataclass(frozen=True, slots=True)
class _Ends:
    """How the runs of the parents of a run ended. `ready_at`: when it may start. `again`: whether
    one of them ended twice, in different states, because it was redriven.
    """

    states: Mapping[str, ParentState]
    ready_at: datetime
    again: bool = False


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hands the run of a parent over to the runs of its children, with the same logical time.

    Every call is idempotent: a child has one run for each logical time, because its run id is
    derived from it. If the caller dies, the message of the parent is redelivered and the call is
    repeated. `quotas`: each tenant's maximums; None: unknown, so only watchers send. `executor`:
    serves several children concurrently.
    """

    jobs: JobStore
    runs: RunStore
    due: DueStore
    joins: JoinStore
    queue: RunQueue
    clock: Clock
    quotas: TenantQuotas | None
    executor: Executor

    @property
    def _starting(self) -> StartChild:
        return StartChild(self.runs, self.due, self.queue, self.clock, self.quotas)

    @property
    def _timed(self) -> TimedRuns:
        return TimedRuns(self.jobs, self.runs, self.joins, self._starting)

    def follow(self, job: Job, run: Run) -> str:
        """Hand over *run* of *job*, which has ended. Does nothing for a range of occurrences.

        Returns:
            What of its children does not decode; usually empty. The others have been handed over;
            for these a later dispatch repeats the hand-over until they decode.

        Raises:
            UnavailableError: A store did not answer. Repeat the call.
        """
        if not job.children or run.covered > 1 or not run.state.ended:
            return ""
        work, seen, problem, again = deque([(job, run)]), {run.key}, "", run.attempt_base > 0
        while work:
            parent, ended = work.popleft()
            found = self._hand_to_all(parent, ended, again=again)
            unreadable = [each for each in found if isinstance(each, UndecodableError)]
            if unreadable:
                problem = f"not handed over: {unreadable[0]}"
                self._repeat_later(parent, ended)
            for skipped in (each for each in found if not isinstance(each, UndecodableError)):
                if skipped[1].key in seen:
                    continue
                seen.add(skipped[1].key)
                if len(seen) <= _MAX_SKIPPED:
                    work.append(skipped)
                elif skipped[0].children:
                    # An executor finds that the run has ended, and hands it over.
                    now = self.clock.now()
                    self._starting.dispatch_later(skipped[0], skipped[1].key, now, 1)
        return problem

    def begin_timed(self, job: Job, message: RunMessage) -> JoinEnd:
        """Handle the *message* that the time of a run has come, whose job has, or had, parents."""
        run = self.runs.get(message.key)
        if run is None:
            return self._timed.begin(job, message)
        if run.skipped_by_parents and run.dispatched_at == cut(message.dispatched_at):
            run = self._timed.look_again(job, run)  # a repeated call
        return JoinEnd(f"is {run.state}", run)

    def end_join(self, job: Job, message: RunMessage) -> JoinEnd:
        """Handle the *message* of the end of a join: skip the run if parents are missing. Parents
        that end later do not start it. If the run can start, its dispatch is repeated.
        """
        key, definition = message.key, job.definition
        run = self.runs.get(key)
        if run is not None:
            if run.skipped_by_parents and run.dispatched_at == cut(message.dispatched_at):
                run = self._look_again(job, run)  # a repeated call
            # Another message hands over a run that had an attempt: to the children of that time.
            return JoinEnd(f"is {run.state}", run if run.ended_without_executor else None)
        if definition.is_timed_join:
            return self._timed.end(job, message)
        edges, marks = definition.after, self.joins.read(key, EVERY_GROUP)
        marks = with_earlier_ends(self.runs, job, key, marks)
        states = join_states(self.runs, key, edges, marks)
        decision = decide_start(definition.trigger_rule, states, definition.setups)
        match decision.action:
            case RuleAction.RUN if job.state is JobState.PAUSED:
                return JoinEnd(_PAUSED, self._skip_paused(job, key), skipped=True)
            case RuleAction.RUN:
                # Its first dispatch may be later, because of a delay; or it was never sent, because
                # the edge to the last missing parent was removed.
                self._starting.start(
                    job, key, None, ready_at(marks) or self.clock.now(), decision.reason
                )
                return JoinEnd(decision.reason)
            case RuleAction.SKIP:
                run = self._starting.skip(key, decision.reason, at=message.dispatched_at)
                return JoinEnd(decision.reason, self._look_again(job, run), skipped=True)
            case RuleAction.WAIT if len(edges) <= 1 and time_of(marks) is None:
                return JoinEnd("is not a join any more: its only parent starts it")
        reason = f"{limits(definition)}; missing: {missing(states)}"
        # With a pool, so that no parent that ends later reopens it.
        pool, at = definition.target.pool, message.dispatched_at
        return JoinEnd(reason, self._starting.skip(key, reason, pool=pool, at=at), skipped=True)

    def _hand_to_all(
        self, parent: Job, ended: Run, *, again: bool
    ) -> list[tuple[Job, Run] | UndecodableError]:
        """Hand *ended* over to all children of *parent*. Returns the runs that are skipped, and
        what does not decode, or cannot be decided by this process. The children for which a store
        did not answer are tried again, as long as this succeeds for some of them.

        Raises:
            UnavailableError: A store did not answer. Repeat the call.
        """
        left = [JobKey(parent.key.tenant, child) for child in parent.children]
        found: list[tuple[Job, Run] | UndecodableError] = []
        refused: Sequence[UnavailableError] = ()
        for _ in range(_ROUNDS):
            served, refused = self._hand_to_some(left, parent, ended, again=again)
            found += [each for done in served.values() for each in done]
            left = [key for key in left if key not in served]
            if not left:
                return found
            if not served:
                break
            self.clock.sleep(_ROUND_EVERY)
        raise refused[0]

    def _hand_to_some(
        self, keys: Sequence[JobKey], parent: Job, ended: Run, *, again: bool
    ) -> tuple[_Served, Sequence[UnavailableError]]:
        """Hand *ended* over to the children *keys*, until a store refuses too many calls. Returns
        what was found for those that are handed over, and the refusals.
        """
        served: _Served = {}
        refused: list[UnavailableError] = []
        few = len(parent.children) <= MAX_SENT
        hand_to_child = (self if few else replace(self, quotas=None)).hand_to_child

        def hand_to(key: JobKey) -> None:
            if len(refused) > len(served) + _REFUSED_AT_MOST:
                return
            try:
                served[key] = hand_to_child(key, parent, ended, again=again)
            except UnavailableError as error:
                refused.append(error)
            except UndecodableError as error:
                served[key] = [error]
            except InvalidInputError as error:  # it decodes, but for example its zone is unknown
                served[key] = [UndecodableError(f"{key.job_id}: {error}")]

        each = self.executor.map if len(keys) > 1 else map
        deque(each(hand_to, keys), maxlen=0)
        return {key: served[key] for key in keys if key in served}, refused

    def _repeat_later(self, parent: Job, ended: Run) -> None:
        now = self.clock.now()
        wait = now - (ended.finished_at or now)
        at = now + min(max(wait, AGAIN_AFTER), AGAIN_AT_MOST)
        self._starting.dispatch_later(parent, ended.key, at, HAND_OVER_DISPATCH)

    def hand_to_child(
        self, key: JobKey, parent: Job, ended: Run, *, again: bool = False
    ) -> list[tuple[Job, Run]]:
        """Hand *ended* over to the child *key*. *again*: a redriven run caused it. Returns its job
        and its runs that are skipped. Raises as `follow` does; and if the child does not decode, or
        cannot be decided here.
        """
        child = self.jobs.get(key)
        edge = None if child is None else child.definition.edge_from(parent.key.job_id)
        if child is None or edge is None or child.state is JobState.CANCELLED:
            return []
        ended_at = ended.finished_at or self.clock.now()
        if child.created_at > ended_at:
            return []  # a repeated call: the job did not exist when the run ended
        if child.definition.is_timed_join:
            return [(child, skipped) for skipped in self._timed.parent_ended(child, edge, ended)]
        run = child.run_key(ended.key.scheduled_at)
        ends = self._ends(child, edge, run, ParentState.of(ended.state), ended_at)
        rule, setups = child.definition.trigger_rule, child.definition.setups
        decision = decide_start(rule, ends.states, setups)
        if decision.action is RuleAction.WAIT:
            return []
        stored = self.runs.get(run)
        if decision.action is RuleAction.RUN and child.state is not JobState.PAUSED:
            again = again or ends.again or ended.attempt_base > 0
            late = self.clock.now() > ended_at + AGAIN_AFTER and child.updated_at > ended_at
            if (
                stored
                and stored.skipped_by_parents
                # A late hand-over is a repeated one: a new rule starts nothing.
                and (again or (ended_since(stored, ended, ended_at) and not late))
                and not awaits_again(self.jobs, self.runs, child, run, ends.states, setups)
            ):
                stored = self._starting.reopen(child, stored, ends.ready_at, decision.reason)
            elif stored or not first_start_waits(self.jobs, self.runs, child, run, ends.states):
                self._starting.start(child, run, stored, ends.ready_at, decision.reason)
        elif stored is None and decision.action is RuleAction.RUN:
            stored = self._skip_paused(child, run)
        elif stored is None:
            stored = self._look_again(child, self._starting.skip(run, decision.reason), ended)
        # No message of a skipped run exists that would hand it over.
        return [(child, stored)] if stored is not None and stored.ended_without_executor else []

    def _skip_paused(self, job: Job, key: RunKey) -> Run:
        # With a pool, so that no parent that ends later reopens it.
        return self._starting.skip(key, _PAUSED, pool=job.definition.target.pool)

    def _ends(
        self, child: Job, edge: Edge, run: RunKey, state: ParentState, ended_at: datetime
    ) -> _Ends:
        """Record that the parent of *edge* ended, and return what is known about all parents."""
        edges = child.definition.after
        if len(edges) == 1:
            return _Ends({edge.job: state}, ended_at + edge.delay)
        group = group_of(edges, edge.job)
        if not self.joins.read(run, [group]):
            # Before the first mark: an executor that dies in between repeats this.
            until = _join_ends(child.definition, run, ended_at, self.clock.now())
            self._starting.dispatch_later(child, run, until, JOIN_END_DISPATCH)
        marks = self.joins.add(run, group, mark(edge, state, ended_at), self.clock.now())
        if is_complete(edges, marks, group):
            # Of concurrent callers that complete a group, the last one sees all groups complete.
            others = [each for each in groups(edges) if each != group]
            marks = [*marks, *self.joins.read(run, others)]
        marks = with_earlier_ends(self.runs, child, run, marks, under_way=True)
        states = join_states(self.runs, run, edges, marks)
        return _Ends(states, ready_at(marks) or ended_at, has_second_end(marks))

    def _look_again(self, child: Job, skipped: Run, ended: Run | None = None) -> Run:
        """Reopen the run that was *skipped* just now, if its rule decides RUN by now, without those
        parents that end again later. *ended*: the run of its only parent, as it was handed over.

        A parent that was redriven meanwhile may have found no record of this run, and have sent it.
        Its executor stores the end of the parent before it reads the record, and this one stores
        the record before it reads the ends: so at least one of the two sees the other's.
        """
        edges, now = child.definition.after, self.clock.now()
        if not skipped.skipped_by_parents:
            return skipped
        if child.definition.is_timed_join:
            return self._timed.look_again(child, skipped)
        if len(edges) > 1:
            marks = self.joins.read(skipped.key, groups(edges))
            marks = with_earlier_ends(self.runs, child, skipped.key, marks)
            states = join_states(self.runs, skipped.key, edges, marks)
            ends = _Ends(states, ready_at(marks) or now)
        elif ended is None:
            return skipped
        else:
            latest = self.runs.get(ended.key) or ended
            state = ParentState.of(latest.state)
            ends = _Ends({edges[0].job: state}, (latest.finished_at or now) + edges[0].delay)
        setups = child.definition.setups
        decision = decide_start(child.definition.trigger_rule, ends.states, setups)
        seen = child, skipped.key, ends.states, setups
        if decision.action is not RuleAction.RUN or awaits_again(self.jobs, self.runs, *seen):
            return skipped
        return self._starting.reopen(child, skipped, ends.ready_at, decision.reason)


def _join_ends(
    definition: JobDefinition, run: RunKey, ended_at: datetime, now: datetime
) -> datetime:
    """When the join of *run* ends, whose first parent ended at *ended_at*."""
    # With the longest delay: so it is never before the start of a complete join.
    latest = ended_at + definition.join_timeout + max(each.delay for each in definition.after)
    until = no_later(latest, definition.deadline(run.scheduled_at), ended_at)
    if now < ended_at + AGAIN_AFTER - CLOCKS_DIFFER:
        return until
    # The hand-over is late: those of other parents that ended in time may be as well.
    return max(until, now + _LATE_JOINS_LAST)
