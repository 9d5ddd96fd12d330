"""Whether a run has to wait for parents that started again, or are about to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from nextfire.dataclass import dataclass, field
from nextfire.domain.awaited import run_at
from nextfire.domain.edges import Which
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import CLOCKS_DIFFER
from nextfire.domain.job import Job
from nextfire.domain.joins import ALONE
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start
from nextfire.usecases.read_parents import records_near

_MAY_CHANGE = frozenset({ParentState.FAILED, ParentState.SKIPPED})
"""A success is final. So a join of many parents that all succeed reads none of them."""


def awaits_again(
    jobs: JobStore,
    runs: RunStore,
    child: Job,
    key: RunKey,
    states: Mapping[str, ParentState],
    setups: Collection[str],
) -> bool:
    """Whether the rule of *child*, which decided RUN, needs a parent that has not ended again, for
    its run *key*. *states*: how the parents ended last, as far as the join knows, also if they have
    started since, by the names that *setups* has too. Raises as the stores do.

    A parent writes its record before it is handed over and the others are read here. So of parents
    that end at the same time, the last one sees that all have ended.
    """
    above, known = _Above(jobs, runs, key.scheduled_at), {**states}
    for edge in reversed(child.definition.after):  # the last ones often end last
        if edge.which is not Which.SAME or known.get(edge.job) not in _MAY_CHANGE:
            continue
        state = above.state(JobKey(child.key.tenant, edge.job))
        if state is None:
            continue
        known[edge.job] = state
        decision = decide_start(child.definition.trigger_rule, known, setups)
        if decision.action is not RuleAction.RUN:
            return True  # the others need not be read: this one looks again when it ends
    return False


def first_start_waits(
    jobs: JobStore, runs: RunStore, child: Job, key: RunKey, states: Mapping[str, ParentState]
) -> bool:
    """As `awaits_again`, for a run without a record. Only with as few parents as one item of a join
    has, so that the end of a wide one does not read all of them.
    """
    edges, setups = child.definition.after, child.definition.setups
    return 1 < len(edges) <= ALONE and awaits_again(jobs, runs, child, key, states, setups)


def ended_since(run: Run, ended: Run, ended_at: datetime) -> bool:
    """Whether *run* was skipped before its parent *ended* at *ended_at*; or a redrive made it await
    that parent, which was then skipped again.
    """
    before = run.finished_at is not None and run.finished_at < ended_at + CLOCKS_DIFFER
    return before or (run.restarted and ended.skipped_by_parents)


@dataclass(frozen=True, slots=True)
class _Above:
    """The runs above a run, at its logical time *at*. Each is read once."""

    jobs: JobStore
    runs: RunStore
    at: datetime
    found: dict[JobKey, Run | None] = field(default_factory=dict)

    def state(self, key: JobKey) -> ParentState | None:
        """The state of the run of *key*: WAITING if it will be handed over later. None: it has no
        record.
        """
        run = self._run(key)
        if run is None:
            return None
        if run.skipped_by_parents and self._ends_later(key, run):
            return ParentState.WAITING
        return ParentState.of(run.state)

    def _ends_later(self, key: JobKey, run: Run) -> bool:
        """Whether *run*, the one of *key*, which was SKIPPED because of its parents, will be handed
        over later: a run above it has not ended; or one of them, or *run*, is about to be reopened.
        """
        level, seen = [(key, run)], {key}
        while level:
            key, run = level.pop()
            job = self.jobs.get(key)
            if job is None:
                continue
            names = [edge.job for edge in job.definition.after if edge.which is Which.SAME]
            parents = {name: self._run(JobKey(key.tenant, name)) for name in names}
            ended = {name: each for name, each in parents.items() if each is not None}
            if any(not each.state.ended for each in ended.values()):
                return True
            if _is_reopened(job, run, ended):
                return True
            for name, each in ended.items():
                parent = JobKey(key.tenant, name)
                if each.skipped_by_parents and parent not in seen:
                    seen.add(parent)
                    level.append((parent, each))
        return False

    def _run(self, key: JobKey) -> Run | None:
        if key not in self.found:
            self.found[key] = run_at([*records_near(self.runs, key, self.at)], self.at)
        return self.found[key]


def _is_reopened(job: Job, skipped: Run, ended: Mapping[str, Run]) -> bool:
    """Whether *skipped*, a run of *job*, starts when the runs of its parents that *ended* have been
    handed over to it: its rule decides RUN now, and not because it was changed since they ended. If
    the rule needs runs with other logical times, it waits for those.
    """
    if job.state in {JobState.PAUSED, JobState.CANCELLED} or not _is_older(job, skipped, ended):
        return False
    states = dict.fromkeys((edge.job for edge in job.definition.after), ParentState.WAITING)
    states |= {name: ParentState.of(run.state) for name, run in ended.items()}
    rule, setups = job.definition.trigger_rule, job.definition.setups
    return decide_start(rule, states, setups).action is RuleAction.RUN


def _is_older(job: Job, skipped: Run, ended: Mapping[str, Run]) -> bool:
    """Whether the rule of *job* is older than the last end among *ended*: a new rule starts nothing
    by itself. The record of a run that is skipped again is as old as before.
    """
    if skipped.restarted and any(run.skipped_by_parents for run in ended.values()):
        return True
    ends = (run.finished_at for run in ended.values() if run.finished_at is not None)
    return any(end >= job.updated_at for end in ends)
