"""Removes jobs that have been in a final state for longer than their retention."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.audit import RECORDS_AT_MOST
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import AFTER_ALL_RUNS, JobKey
from nextfire.domain.job import Job
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.usecases.audit_report import AuditReport, label
from nextfire.usecases.audit_snapshot import SnapshotReader


@dataclass(frozen=True, slots=True)
class RemoveEnded:
    """Removes COMPLETED and CANCELLED jobs that did not change for `retention`; None: never.

    A job stays as long as something needs it: an entry in the due table that is due or waits, a
    run that has not ended, or a parent or child that is not in a final state. Then a later audit
    removes it. The records of its runs stay. The removal is one write, conditional on the revision
    that was checked, so it may be repeated, or lost.
    """

    jobs: JobStore
    runs: RunStore
    snapshots: SnapshotReader
    clock: Clock
    retention: timedelta | None

    def is_expired(self, job: Job, now: datetime) -> bool:
        """Whether *job* has been in a final state for the retention."""
        if self.retention is None or not job.state.ended:
            return False
        return job.updated_at + self.retention <= now

    def remove(self, expired: Sequence[Job], until: datetime, report: AuditReport) -> None:
        """Remove those of *expired* that nothing needs, until *until*. A later audit removes the
        others.

        Raises:
            UnavailableError: A store did not answer. Some jobs may be removed.
        """
        now = self.clock.now()
        unlinked = self._without_living_neighbours(expired)
        if not unlinked:
            return
        table = self.snapshots.read(unlinked, now)
        for job in unlinked:
            if self.clock.now() >= until:
                return
            # What was due before the end of the job still needs its schedule.
            waits = table.may_hold(job)
            try:
                if not waits and not self._has_unfinished(job) and self.jobs.remove(job):
                    report.removed += 1
            except UnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                report.quarantined += 1
                report.notes.append(f"{label(job.key)}: {type(error).__name__}: {error}")

    def _without_living_neighbours(self, jobs: Sequence[Job]) -> list[Job]:
        """Those of *jobs* whose parents and children are all in a final state, or gone."""
        asked = {job.key: _neighbours(job) for job in jobs}
        found = self.jobs.get_many({key for keys in asked.values() for key in keys})

        def lives(neighbour: Job | Exception | None) -> bool:
            # One that does not decode may be alive.
            return neighbour is not None and not (
                isinstance(neighbour, Job) and neighbour.state.ended
            )

        return [job for job in jobs if not any(lives(found.get(key)) for key in asked[job.key])]

    def _has_unfinished(self, job: Job) -> bool:
        """Whether a run of *job* has not ended. A job with more records than a visit may read
        counts as one that has such a run, until records have expired.
        """
        records = self.runs.between(job.key, "0", AFTER_ALL_RUNS, page=1_000)
        return any(
            number >= RECORDS_AT_MOST or (run.key.uid == job.uid and not run.state.ended)
            for number, run in enumerate(records)
        )


def _neighbours(job: Job) -> set[JobKey]:
    names = {*job.children, *(edge.job for edge in job.definition.after)}
    return {JobKey(job.key.tenant, name) for name in names}
