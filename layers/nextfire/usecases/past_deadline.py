"""Whether a run is picked up after the deadline of its job."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.awaited import run_at
from nextfire.domain.deadlines import late_on_purpose, named
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import in_seconds
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.schedule import ScheduleType
from nextfire.usecases.read_parents import records_near


def past_deadline(
    jobs: JobStore, runs: RunStore, job: Job, key: RunKey, now: datetime
) -> str | None:
    """Return why the run *key* of *job* must not start at *now*, if its deadline is over. Reads its
    parents' runs only then.

    Raises:
        UndecodableError: A parent, or its record, does not decode.
        UnavailableError: The store did not answer.
    """
    at = key.scheduled_at
    deadline = job.definition.deadline(at)
    if deadline is None or now <= deadline:
        return None
    if job.definition.type is ScheduleType.AFTER:
        for edge in job.definition.after:
            above = JobKey(key.job.tenant, edge.job)
            run, parent = run_at([*records_near(runs, above, at)], at), jobs.get(above)
            if run is not None and parent is not None and late_on_purpose(parent, run, deadline):
                return None
    return f"picked up {in_seconds(now - at)} after its logical time; {named(job.definition)}"
