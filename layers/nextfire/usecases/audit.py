"""The audit: visit every job, detect lost runs and due entries, and repair them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from typing import TypeVar

from nextfire.domain.audit import is_done
from nextfire.domain.audit_pass import Audit, next_audit
from nextfire.domain.audit_repairs import ChainEntry, next_entry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.schedule import UNTIMED
from nextfire.usecases.audit_parts import PART, AuditParts, up_to
from nextfire.usecases.audit_report import AuditReport, Visits, label
from nextfire.usecases.audit_snapshot import SnapshotReader
from nextfire.usecases.audit_visit import JobVisits, is_chained
from nextfire.usecases.forget_children import forget_children, may_forget
from nextfire.usecases.remove_ended import RemoveEnded

PAGE = 100
"""Jobs visited together: the maximum number of keys of one BatchGetItem."""
RECHECK_AFTER = timedelta(seconds=5)
"""Delay of the second check of apparent losses."""
T = TypeVar("T")


class AuditJobs:
    """The auditor. In a healthy system it finds nothing and writes only its own position. It also
    removes ended jobs, and ids of deleted children from their parents.

    A job costs a share of a Scan, one key of a BatchGetItem (the slot where its next FIRE entry
    must be) and one Query of its runs since the last audit, plus a day. Only suspects are checked a
    second time, `RECHECK_AFTER` later, in the direction in which a run moves: job, due table,
    queue, records. So whatever moved in the meantime is found further along. For suspects that make
    calls or have `maxParallel`, the next hour of their shard of the due table is read as well:
    their runs may wait there for an endpoint or a place. Jobs with a backfill in progress are
    always suspects: where the entry of their backfill is, only the due table shows.

    Every repair is idempotent, also across concurrent auditors: it writes due entries, which the
    watcher sends, and records where they are missing.
    """

    def __init__(
        self,
        *,
        jobs: JobStore,
        due: DueStore,
        runs: RunStore,
        queue: RunQueue,
        control: ControlStore,
        joins: JoinStore,
        clock: Clock,
        executor: Executor,
        pools: Collection[str],
        write_shards: int,
        read_shards: int,
        every: timedelta,
        job_retention: timedelta | None = None,
    ) -> None:
        self._jobs = jobs
        self._due = due
        self._control = control
        self._clock = clock
        self._executor = executor
        self._every = every
        self._snapshots = SnapshotReader(
            due, queue, control, clock, executor, pools, write_shards, read_shards
        )
        self._visits = JobVisits(jobs=jobs, due=due, runs=runs, joins=joins, clock=clock)
        self._ended = RemoveEnded(jobs, runs, self._snapshots, clock, retention=job_retention)

    def in_segments(self, segments: int, *, part: int = PART) -> AuditParts:
        """The audit, divided among *segments* (≥ 2) auditors, into parts of *part* jobs."""
        jobs, control, clock = self._jobs, self._control, self._clock
        return AuditParts(self, jobs, control, clock, segments=segments, part=part)

    def continue_audit(self, until: datetime, *, restart: bool = False) -> Iterator[AuditReport]:
        """Continue the audit, or begin one if it is time (with *restart*: always), until its end
        or *until*. Visits in progress at *until* are completed.

        Yields:
            What was done, page by page. It stops after a page in which a store did not answer; the
            next call continues there.
        """
        report = AuditReport()
        audit = self.begin(report, restart=restart)
        if audit is None:
            yield report
            return
        yield from self.proceed(audit, until)

    def proceed(
        self, audit: Audit, until: datetime, part: int | None = None
    ) -> Iterator[AuditReport]:
        """Continue *audit*, or its *part*, as `continue_audit`."""
        going: Audit | None = audit
        while going is not None:
            report = AuditReport()
            going = self._step(going, until, report, part)
            yield report

    def begin(self, report: AuditReport, *, restart: bool) -> Audit | None:
        """Return the audit to continue; None: none is due, or another auditor has begun it."""
        try:
            was = self._control.audit()
            audit = next_audit(was, self._clock.now(), self._every, restart=restart)
            if audit is None:
                report.done = True
            elif audit != was and not self._control.replace_audit(was, audit):
                report.notes.append("another auditor has begun this audit")
                return None
        except UnavailableError as error:
            report.notes.append(str(error))
            return None
        return audit

    def _step(
        self, audit: Audit, until: datetime, report: AuditReport, part: int | None
    ) -> Audit | None:
        """Process a page. Returns the audit to continue; None: nothing is left for now."""
        report.overdue = audit.is_overdue(self._clock.now(), self._every)
        try:
            reached = self._page(audit, until, report)
            if reached == audit:
                return None
            if not self._control.replace_audit(audit, reached, part):
                report.notes.append("another auditor is running")
                return None
        except UnavailableError as error:
            report.notes.append(str(error))
            return None
        report.done = reached.done
        report.overdue = reached.is_overdue(self._clock.now(), self._every)
        return None if reached.done or self._clock.now() >= until else reached

    def _page(self, audit: Audit, until: datetime, report: AuditReport) -> Audit:
        """Visit some jobs. Returns the audit, advanced past them."""
        scan = up_to(audit.end, self._jobs.scan(audit.after, limit=PAGE))
        for key, problem in scan.unreadable:
            report.quarantined += 1
            report.notes.append(f"{label(key)}: {problem}")
        now = self._clock.now()
        visited = Visits(scan.jobs, report)
        # Not the last job of the part: by its key others know where the part ends.
        ended = [job for job in scan.jobs if job.key != audit.end]
        expired = [job for job in ended if self._ended.is_expired(job, now)]
        if expired:
            self._ended.remove(expired, until, report)
        parents = [job for job in scan.jobs if may_forget(job, now)]
        visited.of(self._submit_all(lambda job: forget_children(self._jobs, job, now), parents))
        looks_back_to = {job.key: audit.looks_back_to(now, job) for job in scan.jobs}
        audited = [job for job in scan.jobs if looks_back_to[job.key] <= now]
        sound = self._look(audited, looks_back_to, now, until, visited)
        visited.unfinished.update(key for key, is_sound in sound.items() if is_sound is None)
        suspects = [job for job in audited if sound.get(job.key) is False]
        if suspects:
            self._look_again(suspects, looks_back_to, visited)
        reached = audit.after
        for job in scan.jobs:
            if job.key in visited.unfinished:
                return audit.moved(reached) if reached else audit
            reached = job.key
            report.jobs += 1
        return audit.moved(scan.last)

    def _look(
        self,
        jobs: Sequence[Job],
        looks_back_to: Mapping[JobKey, datetime],
        now: datetime,
        until: datetime,
        visited: Visits,
    ) -> dict[JobKey, bool | None]:
        """Whether each of *jobs* looks sound; None: it was not looked at before *until*, which
        happens to any but the first.
        """
        following = visited.of(self._submit_all(lambda job: next_entry(job, now), jobs))
        slots = {key: self._snapshots.slot(entry, now) for key, entry in following.items() if entry}
        occupied = self._due.occupied(set(slots.values()))

        def looks_sound(job: Job) -> bool | None:
            if self._clock.now() >= until and job is not jobs[0]:
                return None
            if job.key in slots and slots[job.key] not in occupied:
                return False
            return self._looks_sound(job, following[job.key], looks_back_to[job.key], now)

        left = [job for job in jobs if job.key in following]
        return visited.of(self._submit_all(looks_sound, left))

    def _looks_sound(
        self, job: Job, entry: ChainEntry | None, since: datetime, now: datetime
    ) -> bool:
        """Whether nothing is missing of *job*, whose due table has *entry*."""
        if job.backfilling is not None:
            return False  # the place of its entry is known to the entry only
        # For a job that may be over, its last record decides, however old it is.
        scheduled = job.definition.type not in UNTIMED
        thorough = entry is None and job.state is JobState.ACTIVE and scheduled
        found = self._visits.compare(job, now, since, [entry] if entry else [], thorough=thorough)
        clean = found.clean and not any(self._visits.lost_hand_overs(job, since, now))
        return clean and not is_done(job, found, queue_is_empty=True)

    def _look_again(
        self, suspects: list[Job], looks_back_to: Mapping[JobKey, datetime], visited: Visits
    ) -> None:
        """Check *suspects* a second time, and repair what is still wrong."""
        found = len(suspects)
        suspects = [job for job in suspects if not self._rests(job)]
        visited.report.behind += found - len(suspects)
        if not suspects:
            return
        self._clock.sleep(RECHECK_AFTER)
        now = self._clock.now()
        read = visited.of(self._submit_all(lambda job: self._jobs.get(job.key), suspects))
        jobs = [job for job in read.values() if job is not None]
        table = self._snapshots.read(jobs, now)
        # An entry may have moved from a bucket before it was read to one that was read already.
        lost = [job for job in jobs if not is_chained(job, table) and not self._rests(job)]
        again = self._snapshots.read(lost, self._clock.now()) if lost else table
        tables = dict.fromkeys([job.key for job in lost], again)
        reports = {job.key: AuditReport() for job in jobs}

        def visit(job: Job) -> None:
            seen = tables.get(job.key, table)
            self._visits.visit(job, now, looks_back_to[job.key], seen, reports[job.key])

        visited.of(self._submit_all(visit, jobs))
        for done in reports.values():  # also of visits that failed: they may have repaired a part
            visited.report += done

    def _rests(self, job: Job) -> bool:
        return self._snapshots.rests(job, self._clock.now())

    def _submit_all(self, do: Callable[[Job], T], jobs: Iterable[Job]) -> dict[JobKey, Future[T]]:
        return {job.key: self._executor.submit(do, job) for job in jobs}
