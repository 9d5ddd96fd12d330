"""The audit: visit every job, detect lost runs and due entries, and repair them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Self, TypeVar

from nextfire.domain.audit import (
    GRACE,
    Audit,
    ChainEntry,
    Comparison,
    Missing,
    compare,
    first_of,
    is_done,
    longest_run,
    lost_part,
    next_audit,
    next_entry,
    restored,
    sending,
    spans,
)
from nextfire.domain.due import (
    PARKED_AT_MOST,
    BrokenEntry,
    DispatchEntry,
    DueEntry,
    FireEntry,
    ResumeEntry,
    Slot,
    bucket_name,
)
from nextfire.domain.due_decisions import Cover, decide_misfire, owned
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey, first_run_id, run_id
from nextfire.domain.instants import MINUTE, floor_minute, isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, Trigger, runs_of_uid
from nextfire.domain.schedule import ScheduleType
from nextfire.usecases.cover_missed import cover_missed
from nextfire.usecases.dispatch.reader import STRAGGLER_BUCKETS

PAGE = 100
"""Jobs visited together: the maximum number of keys of one BatchGetItem."""
RECHECK_AFTER = timedelta(seconds=5)
"""Time until the second look at whatever appears lost."""
BEHIND = timedelta(minutes=5)
"""A shard whose cursor is further behind is not judged: its watcher has yet to get there."""
AHEAD = 2 * MINUTE
"""How far ahead buckets are read whole; later buckets only for parked entries."""
SENT_AT_MOST = 1_000
"""Maximum number of runs of one job that one visit sends again."""
_BEFORE = 5  # records before the look-back that may be ranges that extend into it
_EVER = "9"  # sorts after all run ids

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class AuditReport:
    """What was done. Repairs: `restored` chains, `resent` runs that had no record, occurrences
    `covered` by a record of their skip, `revived` runs whose message was lost, and `completed` jobs
    whose last run had ended.

    `waiting`: runs without a record or without a worker that may still be in a queue. `behind`:
    jobs that were not judged because their shard's watcher is behind. `quarantined`: undecodable
    jobs and records. `done`: no audit is unfinished.
    """

    jobs: int = 0
    restored: int = 0
    resent: int = 0
    covered: int = 0
    revived: int = 0
    completed: int = 0
    waiting: int = 0
    behind: int = 0
    quarantined: int = 0
    done: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def repaired(self) -> int:
        return self.restored + self.resent + self.covered + self.revived + self.completed

    def __iadd__(self, other: AuditReport) -> Self:
        self.jobs += other.jobs
        self.restored += other.restored
        self.resent += other.resent
        self.covered += other.covered
        self.revived += other.revived
        self.completed += other.completed
        self.waiting += other.waiting
        self.behind += other.behind
        self.quarantined += other.quarantined
        self.done = other.done
        self.notes += other.notes
        return self


class AuditJobs:
    """The auditor. In a healthy system it finds nothing and writes only its own position.

    A job costs a share of a Scan, one key of a BatchGetItem (the slot where its next FIRE entry
    must be) and one Query of its runs since the last audit, plus a day. Only suspects are checked a
    second time, `RECHECK_AFTER` later, in the direction in which a run moves: job, due table,
    queue, records. So whatever moved in the meantime is found further along.

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
        clock: Clock,
        executor: Executor,
        pools: Collection[str],
        write_shards: int,
        read_shards: int,
        every: timedelta,
    ) -> None:
        self._jobs = jobs
        self._due = due
        self._runs = runs
        self._queue = queue
        self._control = control
        self._clock = clock
        self._executor = executor
        self._pools = pools
        self._write_shards = write_shards
        self._read_shards = read_shards
        self._every = every

    def continue_audit(self, until: datetime, *, restart: bool = False) -> Iterator[AuditReport]:
        """Continue the audit, or begin one if it is time (with *restart*: always), until its end
        or *until*. Visits in progress at *until* are completed.

        Yields:
            What was done, page by page. It stops after a page in which a store did not answer; the
            next call continues there.
        """
        report = AuditReport()
        audit = self._begin(report, restart=restart)
        if audit is None:
            yield report
        while audit is not None:
            report = AuditReport()
            audit = self._step(audit, until, report)
            yield report

    def _begin(self, report: AuditReport, *, restart: bool) -> Audit | None:
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

    def _step(self, audit: Audit, until: datetime, report: AuditReport) -> Audit | None:
        """Process a page. Returns the audit to continue; None: nothing is left for now."""
        try:
            reached = self._page(audit, until, report)
            if reached == audit:
                return None
            if not self._control.replace_audit(audit, reached):
                report.notes.append("another auditor is running")
                return None
        except UnavailableError as error:
            report.notes.append(str(error))
            return None
        report.done = reached.done
        return None if reached.done or self._clock.now() >= until else reached

    def _page(self, audit: Audit, until: datetime, report: AuditReport) -> Audit:
        """Visit some jobs. Returns the audit, advanced past them."""
        scan = self._jobs.scan(audit.after, limit=PAGE)
        for key, problem in scan.unreadable:
            report.quarantined += 1
            report.notes.append(f"{_label(key)}: {problem}")
        now = self._clock.now()
        since = audit.looks_back_to(now)
        visited = _Results(scan.jobs, report)
        following = visited.of(self._submit_all(lambda job: next_entry(job, now), scan.jobs))
        slots = {key: self._slot(entry, now) for key, entry in following.items() if entry}
        there = self._due.occupied(set(slots.values()))

        def looks_sound(job: Job) -> bool | None:
            if self._clock.now() >= until and job is not scan.jobs[0]:
                return None
            entry = following.get(job.key)
            if entry is not None and slots[job.key] not in there:
                return False
            # For a job that may be over, its last record decides, however old it is.
            scheduled = job.definition.type is not ScheduleType.MANUAL
            thorough = entry is None and job.state is JobState.ACTIVE and scheduled
            found = self._compare(job, now, since, [entry] if entry else [], thorough=thorough)
            return found.clean and not is_done(job, found, queue_is_empty=True)

        jobs = [job for job in scan.jobs if job.key in following]
        sound = visited.of(self._submit_all(looks_sound, jobs))
        suspects = [job for job in jobs if sound.get(job.key) is False]
        visited.unfinished.update(key for key, is_sound in sound.items() if is_sound is None)
        if suspects:
            self._look_again(suspects, since, visited)
        reached = audit.after
        for job in scan.jobs:
            if job.key in visited.unfinished:
                return audit.moved(reached) if reached else audit
            reached = job.key
            report.jobs += 1
        return audit.moved(scan.last)

    def _look_again(self, suspects: list[Job], since: datetime, visited: _Results) -> None:
        """Check *suspects* a second time, and repair what is still wrong."""
        self._clock.sleep(RECHECK_AFTER)
        now = self._clock.now()
        read = visited.of(self._submit_all(lambda job: self._jobs.get(job.key), suspects))
        jobs = [job for job in read.values() if job is not None]
        table = self._table(jobs, now)

        def visit(job: Job) -> AuditReport:
            return self._visit(job, now, since, table)

        for done in visited.of(self._submit_all(visit, jobs)).values():
            visited.report += done

    def _visit(self, job: Job, now: datetime, since: datetime, table: _DueSnapshot) -> AuditReport:
        report = AuditReport()
        if job.key.shard(self._write_shards) in table.behind:
            report.behind = 1
            return report
        following = table.following.get(job.key)
        entries = table.entries.get(job.uid, [])
        chained = following is None or job.key in table.broken or following in table.there
        chained = chained or any(
            entry == following
            if isinstance(entry, ResumeEntry)
            else isinstance(entry, FireEntry) and entry.version == job.schedule_version
            for entry in entries
        )
        if following is not None and following in table.there:
            entries = [*entries, following]
        empty = table.is_empty(job, since)
        try:
            found = self._compare(job, now, since, entries, thorough=True)
        except UndecodableError as error:
            report.quarantined += 1
            report.notes.append(f"{_label(job.key)}: {error}")
            found = Comparison(now, partial=True)
        missing = found.missing
        if following is not None and not chained:
            entry = restored(job, found, following, since, queue_is_empty=empty)
            begins = entry.occurs_at if isinstance(entry, FireEntry) else entry.at
            missing = [m for m in missing if m.owner is not job or m.first < begins]
            if self._put([entry]):
                report.restored += 1
                report.notes.append(
                    f"{_label(job.key)}: had no due entry; it continues at {isoformat(begins)}"
                )
        for each in missing:
            self._repair(each, found.lost_before(queue_is_empty=empty), now, report)
        self._revive(job, found, table, since, report)
        over = not entries and is_done(job, found, queue_is_empty=empty)
        if over and self._jobs.complete(job, now):
            report.completed += 1
            report.notes.append(f"{_label(job.key)}: was ACTIVE although its last run had ended")
        if found.partial:
            report.notes.append(f"{_label(job.key)}: not everything was checked or repaired")
        return report

    def _repair(
        self, missing: Missing, lost_before: datetime, now: datetime, report: AuditReport
    ) -> None:
        """Handle occurrences without a record as after an outage, by the misfire policy."""
        lost = lost_part(missing, lost_before)
        report.waiting += missing.count - (lost.count if lost else 0)
        if lost is None:
            return
        owner, pool = lost.owner, lost.owner.definition.target.pool
        sends: list[DispatchEntry] = []
        entry: FireEntry | None = first_of(lost)
        while entry is not None and len(sends) < SENT_AT_MOST - report.resent:
            successor = owned(owner.successor(entry), lost.last)
            missed, reason = decide_misfire(entry, owner, successor, now)
            if missed is None:
                key = RunKey(owner.key, run_id(owner.uid, entry.occurs_at))
                sends.append(sending(owner, key, pool=pool, dispatch=1, now=now))
                entry = successor
                continue
            decision = Cover(
                missed, f"lost, found by the audit: {reason}", owner, owned_until=lost.last
            )
            covered = cover_missed(self._runs, entry, decision, now)
            report.covered += covered.written.covered if covered.written else 0
            entry = covered.successor
            if entry is None and owner.is_last(lost.last):
                self._jobs.complete(owner, now)  # no run will complete it
        if entry is not None:
            report.notes.append(f"{_label(owner.key)}: more is lost from {entry.occurs_at} on")
        sent = self._send(sends, report)
        report.resent += sent
        report.notes.append(
            f"{_label(owner.key)}: no record of {lost.count} occurrences from"
            f" {isoformat(lost.first)} to {isoformat(lost.last)}; {sent} are sent again"
        )

    def _revive(
        self, job: Job, found: Comparison, table: _DueSnapshot, since: datetime, report: AuditReport
    ) -> None:
        """Send runs again whose message was lost, to their job's current pool. Dispatch numbers
        are never reused: the new dispatch is one higher.
        """
        sends, pool = [], job.definition.target.pool
        for run in found.stuck:
            # A redriven or retried run may be in a different pool than its last attempt.
            if found.is_lost(run, queue_is_empty=table.is_empty(job, since, run.pool)):
                next_dispatch = run.dispatch + 1
                sends.append(
                    sending(job, run.key, pool=pool, dispatch=next_dispatch, now=found.now)
                )
                report.notes.append(
                    f"{run.key.execution_id}: {run.state}, without a message or worker; sent again"
                )
            else:
                report.waiting += 1
        report.revived += self._send(sends, report)

    def _send(self, entries: list[DispatchEntry], report: AuditReport) -> int:
        """Store *entries*, except those for pools that no longer exist. Returns how many."""
        going = [entry for entry in entries if entry.pool in self._pools]
        for pool in {entry.pool for entry in entries} - {entry.pool for entry in going}:
            report.notes.append(f"pool {pool} no longer exists: nothing is sent there")
        return self._put(going)

    def _put(self, entries: Sequence[DueEntry]) -> int:
        return len(self._due.put(entries, self._clock.now())) if entries else 0

    def _compare(
        self,
        job: Job,
        now: datetime,
        since: datetime,
        entries: list[DueEntry],
        *,
        thorough: bool = False,
    ) -> Comparison:
        """Compare the occurrences of *job* with its records. *entries*: its entries in the due
        table. *thorough*: also read earlier records, for a range that extends into the period, and
        for the last record, if none came after it.
        """
        looked_from = since - longest_run(job)
        over = job.state in (JobState.COMPLETED, JobState.CANCELLED)
        if over and job.updated_at < looked_from:
            return Comparison(now)
        earlier: list[Run] = []
        if thorough:
            before = self._runs.between(
                job.key, "0", first_run_id(looked_from), newest_first=True, page=_BEFORE
            )
            mine = runs_of_uid(before, job.uid, job.created_at)
            occurrences = (run for run in mine if run.trigger is not Trigger.MANUAL)
            earlier = [*islice(occurrences, _BEFORE)]
        records = self._runs.between(job.key, first_run_id(looked_from), _EVER, page=1_000)
        return compare(
            job,
            spans(job, since, now - GRACE, entries),
            chain(reversed(earlier), records),
            now=now,
            waiting={_run_of(e) for e in entries if isinstance(e, FireEntry | DispatchEntry)},
        )

    def _table(self, jobs: list[Job], now: datetime) -> _DueSnapshot:
        """What the due table, and after it the queues, hold of *jobs*."""
        shards = {job.key.shard(self._write_shards) for job in jobs}
        cursors = self._control.cursors(shards)
        table = _DueSnapshot()
        table.behind = {s for s in shards if s not in cursors or now - cursors[s] > BEHIND}
        uids = {job.uid for job in jobs}
        reading = [
            self._executor.submit(self._read_shard, shard, cursors[shard], now, uids, table)
            for shard in shards - table.behind
        ]
        for each in reading:
            each.result()
        # Entries that came due during the read have moved on to successors that were not read.
        now = self._clock.now()
        following = {job.key: next_entry(job, now) for job in jobs}
        table.following = {key: entry for key, entry in following.items() if entry}
        slots = {
            slot: entry for entry in table.following.values() for slot in self._slots(entry, now)
        }
        table.there = {slots[slot] for slot in self._due.occupied(slots)}
        for pool in self._pools:
            try:
                table.backlogs[pool] = self._queue.backlog(pool)
            except UnavailableError:
                raise
            except Exception:  # noqa: BLE001 — one pool's queue must not stop the audit
                table.backlogs[pool] = 1  # unknown: nothing in it is treated as lost
        return table

    def _read_shard(
        self, shard: int, cursor: datetime, now: datetime, uids: set[str], table: _DueSnapshot
    ) -> None:
        """Read, in order of time, everything in *shard* that may be due and is not sent."""
        first, whole_until = cursor - STRAGGLER_BUCKETS * MINUTE, floor_minute(now) + AHEAD
        ahead = (floor_minute(now) + PARKED_AT_MOST + MINUTE - first) // MINUTE + 1
        minutes = [first + n * MINUTE for n in range(ahead)]
        # The successor of a parked entry may be in the present bucket, which is read again.
        for minute in [*minutes, *(m for m in minutes if floor_minute(now) <= m <= whole_until)]:
            before = None if minute <= whole_until else minute
            for stored in self._due.read(minute, shard, before=before, consistent=True):
                if isinstance(stored, BrokenEntry):
                    # Its watcher quarantines it when it is due, and repairs the chain.
                    table.broken.update({stored.job} if stored.job else ())
                elif stored.entry.uid in uids:
                    table.entries.setdefault(stored.entry.uid, []).append(stored.entry)

    def _slot(self, entry: DueEntry, now: datetime) -> Slot:
        return Slot(entry.bucket(now, self._write_shards), entry.sort_key)

    def _slots(self, entry: DueEntry, now: datetime) -> set[Slot]:
        """The slots where *entry* may be: with fewer write shards its shard was different."""
        minute = floor_minute(max(entry.at, now))
        shards = {entry.job.shard(shards) for shards in range(1, self._read_shards + 1)}
        return {Slot(bucket_name(minute, shard), entry.sort_key) for shard in shards}

    def _submit_all(self, do: Callable[[Job], T], jobs: Iterable[Job]) -> dict[JobKey, Future[T]]:
        return {job.key: self._executor.submit(do, job) for job in jobs}


@dataclass(slots=True)
class _Results:
    """Results of the visits of a page's jobs. One job's error does not affect the others."""

    jobs: Collection[Job]
    report: AuditReport
    unfinished: set[JobKey] = field(default_factory=set)

    def of(self, futures: Mapping[JobKey, Future[T]]) -> dict[JobKey, T]:
        """The results of the calls that succeeded."""
        found: dict[JobKey, T] = {}
        for key, future in futures.items():
            try:
                found[key] = future.result()
            except UnavailableError as error:
                self.unfinished.add(key)
                self.report.notes.append(f"{_label(key)}: {error}")
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                self.report.quarantined += 1
                self.report.notes.append(f"{_label(key)}: {type(error).__name__}: {error}")
        return found


@dataclass(slots=True)
class _DueSnapshot:
    """What the due table holds of some jobs. `following`: the entry that each job would have if
    everything due had been sent; `there`: those of them that exist; `entries`: by uid, the entries
    that are due or will be soon; `backlogs`: what the pools' queues held after that.
    """

    following: dict[JobKey, ChainEntry] = field(default_factory=dict)
    there: set[DueEntry] = field(default_factory=set)
    entries: dict[str, list[DueEntry]] = field(default_factory=dict)
    broken: set[JobKey] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    backlogs: dict[str, int] = field(default_factory=dict)

    def is_empty(self, job: Job, since: datetime, pool: str | None = None) -> bool:
        """Whether no queue can hold a run of *job*, including pools that it may have had before;
        *pool*: the pool of the run, if known.
        """
        pools = {*self.backlogs} if job.changed_after(since) else {job.definition.target.pool, pool}
        return not any(self.backlogs.get(each, 0) for each in pools if each)


def _run_of(entry: FireEntry | DispatchEntry) -> str:
    if isinstance(entry, DispatchEntry):
        return entry.run_id
    return run_id(entry.uid, entry.occurs_at)


def _label(key: JobKey) -> str:
    return f"{key.tenant}/{key.job_id}"
