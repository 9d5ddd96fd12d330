"""Whether a SKIPPED run that may start after all has to wait for parents that started again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from nextfire.domain.awaited import run_at
from nextfire.domain.edges import Which
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start
from nextfire.usecases.read_parents import records_near

_MAY_CHANGE = frozenset({ParentState.FAILED, ParentState.SKIPPED})
"""A success is final. So a join of many parents that all succeed reads none of them."""


def awaits_again(
    jobs: JobStore,
    runs: RunStore,
    child: Job,
    skipped: Run,
    states: Mapping[str, ParentState],
    setups: Collection[str],
) -> bool:
    """Whether the rule of *child* needs a parent that has not ended again, for its run that was
    *skipped*. *states*: how the parents ended last, also if they have started since, by the names
    that *setups* has too. Raises as the stores do.

    A parent writes its record before it is handed over and the others are read here. So of parents
    that end at the same time, the last one sees that all have ended.
    """
    at, known = skipped.key.scheduled_at, {**states}
    for edge in reversed(child.definition.after):  # the last ones often end last
        key = JobKey(child.key.tenant, edge.job)
        may_change = edge.which is Which.SAME and known.get(edge.job) in _MAY_CHANGE
        if may_change and _ends_later(jobs, runs, key, at):
            known[edge.job] = ParentState.WAITING
            decision = decide_start(child.definition.trigger_rule, known, setups)
            if decision.action is not RuleAction.RUN:
                return True  # the others need not be read: this one looks again when it ends
    return False


def _ends_later(jobs: JobStore, runs: RunStore, key: JobKey, at: datetime) -> bool:
    """Whether the run of *key* at *at* will be handed over later: it has not ended; or it was
    SKIPPED because of its parents, and a run above it has not ended.
    """
    level, seen = [key], {key}
    while level:
        key = level.pop()
        run = run_at([*records_near(runs, key, at)], at)
        if run is not None and not run.state.ended:
            return True
        job = jobs.get(key) if run is not None and run.skipped_by_parents else None
        if job is not None and job.definition.type is ScheduleType.AFTER:
            above = {JobKey(key.tenant, edge.job) for edge in job.definition.after} - seen
            seen |= above
            level += sorted(above, key=lambda each: each.job_id)
    return False
