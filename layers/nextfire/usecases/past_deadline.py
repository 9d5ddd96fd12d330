"""Whether a run is picked up after the deadline of its job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nextfire.domain.awaited import run_at
from nextfire.domain.deadlines import late_on_purpose, made_late, named
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import in_seconds
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.domain.schedule import ScheduleType
from nextfire.usecases.read_parents import records_near


def past_deadline(
    jobs: JobStore, runs: RunStore, job: Job, key: RunKey, now: datetime
) -> str | None:
    """Return why the run *key* of *job* must not start at *now*, if its deadline is over. Reads the
    runs above only then, and above those only what may have made them late.

    Raises:
        UndecodableError: A job above, or its record, does not decode.
        UnavailableError: The store did not answer.
    """
    at = key.scheduled_at
    deadline = job.definition.deadline(at)
    if deadline is None or now <= deadline:
        return None
    if any(late_on_purpose(run, deadline) for run in _runs_above(jobs, runs, job, at, deadline)):
        return None
    return f"picked up {in_seconds(now - at)} after its logical time; {named(job.definition)}"


def _runs_above(
    jobs: JobStore, runs: RunStore, job: Job, at: datetime, deadline: datetime
) -> Iterator[Run]:
    """The runs above *job*'s at the logical time *at*, the nearest first, up to jobs with a
    schedule, which start by their own times, and up to runs that were in time for *deadline*.
    """
    level, seen = [job], {job.key}
    while level:
        below, level = level, []
        for child in below:
            if child.definition.type is not ScheduleType.AFTER:
                continue
            for name in {edge.job for edge in child.definition.after}:
                key = JobKey(child.key.tenant, name)
                if key in seen:
                    continue
                seen.add(key)
                run = run_at([*records_near(runs, key, at)], at)
                if run is not None:
                    yield run
                if (run is None or made_late(run, deadline)) and (parent := jobs.get(key)):
                    level.append(parent)
