"""Visit one job: compare it with its records and its due entries, and repair what is wrong."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Literal

from nextfire.dataclass import dataclass
from nextfire.domain.audit import (
    GRACE,
    RUNS_AT_MOST,
    Comparison,
    Missing,
    compare,
    is_done,
    longest_run,
    spans,
)
from nextfire.domain.audit_pass import LOOK_BACK_AT_MOST
from nextfire.domain.audit_repairs import first_of, lost_part, restored
from nextfire.domain.awaited import longest_wait
from nextfire.domain.due import BackfillEntry, DispatchEntry, DueEntry, FireEntry, ResumeEntry
from nextfire.domain.due_decisions import Cover
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.ids import AFTER_ALL_RUNS, first_run_id, run_id
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.message import TIME_DISPATCH
from nextfire.domain.misfire import decide_misfire
from nextfire.domain.occurrences import owned
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, Trigger, runs_of_uid
from nextfire.usecases.audit_report import AuditReport, label
from nextfire.usecases.audit_snapshot import DueSnapshot
from nextfire.usecases.cover_missed import cover_missed
from nextfire.usecases.lost_hand_overs import join_ends, lost_hand_overs, repeated
from nextfire.usecases.timed_runs import waits_for_parents

SENT_AT_MOST = 1_000
"""Maximum number of runs of one job that one visit sends again."""
_BEFORE = 5  # records before the look-back that may be ranges that extend into it
_RECORDS_LAST = timedelta(days=80)
"""Records of sequences expire after 90 days, and the clocks and the audit need some."""


def is_chained(job: Job, table: DueSnapshot) -> bool:
    """Whether *table* has, or may have, the entry of *job*'s next occurrence; or it has none."""
    following = table.following.get(job.key)
    return (
        following is None
        or job.key.shard(table.shards) in table.behind
        or job.key in table.broken
        or following in table.existing
        or any(
            entry == following
            if isinstance(entry, ResumeEntry)
            else isinstance(entry, FireEntry) and entry.version == job.schedule_version
            for entry in table.entries.get(job.uid, [])
        )
    )


@dataclass(frozen=True, slots=True)
class JobVisits:
    """Visits jobs for the auditor. Every repair is idempotent, also across concurrent auditors."""

    jobs: JobStore
    due: DueStore
    runs: RunStore
    joins: JoinStore
    clock: Clock

    def visit(
        self, job: Job, now: datetime, since: datetime, table: DueSnapshot, report: AuditReport
    ) -> None:
        """Compare *job* with its records since *since* and with *table*, and repair what is wrong.
        Adds to *report* what was done.

        Raises:
            UnavailableError: A store did not answer. What was repaired stays, and is in *report*;
                visit the job again.
        """
        if job.key.shard(table.shards) in table.behind:
            report.behind = 1
            return
        following = table.following.get(job.key)
        entries = table.entries.get(job.uid, [])
        if following is not None and following in table.existing:
            entries = [*entries, following]
        empty = table.is_empty(job, since)
        try:
            found = self.compare(job, now, since, entries, thorough=True)
        except UndecodableError as error:
            report.quarantined += 1
            report.notes.append(f"{label(job.key)}: {error}")
            found = Comparison(now, partial=True)
        missing = found.missing
        if following is not None and not is_chained(job, table):
            if self.jobs.get(job.key) != job:
                return  # Its entry was replaced with the job. The next audit visits it.
            entry = restored(job, found, following, since, queue_is_empty=empty)
            begins = entry.occurs_at if isinstance(entry, FireEntry) else entry.at
            missing = [m for m in missing if m.owner is not job or m.first < begins]
            self._put([entry], report, "restored")
            report.notes.append(
                f"{label(job.key)}: had no due entry; it continues at {isoformat(begins)}"
            )
        if job.backfilling is not None:
            self._continue_backfill(job, entries, report)
        for each in missing:
            self._repair(each, found.lost_before(queue_is_empty=empty), now, report)
        self._revive(job, found, table, since, report)
        sent = {entry.run_id for entry in entries if isinstance(entry, DispatchEntry)}
        self._hand_over(job, since, now, sent, report)
        over = not entries and is_done(job, found, queue_is_empty=empty)
        if over and self.jobs.complete(job, now):
            report.completed += 1
            report.notes.append(f"{label(job.key)}: was ACTIVE although its last run had ended")
        if found.partial:
            report.notes.append(f"{label(job.key)}: not everything was checked or repaired")

    def compare(
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
        due_by = now - GRACE
        if job.definition.after:  # its runs have no record while they wait for parents
            # Older records expire, so that each run would look lost. What it ran before it had
            # parents may have had a shorter retention.
            since = max(
                since - longest_wait(job),
                now - _RECORDS_LAST,
                min(job.updated_at, now - LOOK_BACK_AT_MOST),
            )
            due_by -= longest_wait(job)
        looked_from = min(since, max(since - longest_run(job), now - RUNS_AT_MOST))
        over = job.state.ended
        if over and job.updated_at < looked_from:
            return Comparison(now)
        earlier: list[Run] = []
        if thorough:
            before = self.runs.between(
                job.key, "0", first_run_id(looked_from), newest_first=True, page=_BEFORE
            )
            mine = runs_of_uid(before, job.uid, job.created_at)
            occurrences = (run for run in mine if run.trigger is not Trigger.MANUAL)
            earlier = [*islice(occurrences, _BEFORE)]
        records = self.runs.between(job.key, first_run_id(looked_from), AFTER_ALL_RUNS, page=1_000)
        return compare(
            job,
            spans(job, since, due_by, entries),
            chain(reversed(earlier), records),
            now=now,
            waiting={_run_of(e) for e in entries if isinstance(e, FireEntry | DispatchEntry)},
        )

    def lost_hand_overs(
        self, job: Job, since: datetime, now: datetime
    ) -> Iterator[tuple[Job, Run]]:
        """The runs of parents of *job* that were not handed over to it, each after its job."""
        return lost_hand_overs(self.jobs, self.runs, job, since, now)

    def _continue_backfill(
        self, job: Job, entries: Sequence[DueEntry], report: AuditReport
    ) -> None:
        """Restore the entry of the backfill of *job* if it is not among *entries*. It begins at the
        first occurrence: those that have a record are passed over.
        """
        begun, now = job.backfill_entry(1), self.jobs.get(job.key)
        if begun is None or any(isinstance(entry, BackfillEntry) for entry in entries):
            return
        # A backfill loses its entry after its job is written. So it was lost before if the job is
        # still backfilled after the entries were read.
        if now is not None and now.backfill_entry(1) == begun:
            self._put([begun], report, "restored")
            report.notes.append(f"{label(job.key)}: its backfill had no due entry; it continues")

    def _repair(
        self, missing: Missing, lost_before: datetime, now: datetime, report: AuditReport
    ) -> None:
        """Handle occurrences without a record as after an outage, by the misfire policy."""
        lost = lost_part(missing, lost_before)
        report.waiting += missing.count - (lost.count if lost else 0)
        if lost is None:
            return
        owner = lost.owner
        sends: list[DispatchEntry] = []
        entry: FireEntry | None = first_of(lost)
        while entry is not None and len(sends) < SENT_AT_MOST - report.resent:
            successor = owned(owner.successor(entry), lost.last)
            key = owner.run_key(entry.occurs_at)
            if owner.definition.after:
                if not waits_for_parents(self.joins, key, now):
                    sends.append(owner.dispatch_entry(key, now, TIME_DISPATCH))
                entry = successor
                continue
            missed, reason = decide_misfire(entry, owner, successor, now)
            if missed is None:
                sends.append(owner.dispatch_entry(key, now, 1))
                entry = successor
                continue
            decision = Cover(
                missed, f"lost, found by the audit: {reason}", owner, owned_until=lost.last
            )
            covered = cover_missed(self.runs, entry, decision, now)
            report.covered += covered.written.covered if covered.written else 0
            entry = covered.successor
            if entry is None and owner.is_last(lost.last):
                self.jobs.complete(owner, now)  # no run will complete it
        if entry is not None:
            report.notes.append(f"{label(owner.key)}: more is lost from {entry.occurs_at} on")
        self._put(sends, report, "resent")
        if owner.definition.after and not sends:
            return
        report.notes.append(
            f"{label(owner.key)}: no record of {lost.count} occurrences from"
            f" {isoformat(lost.first)} to {isoformat(lost.last)}; {len(sends)} are sent again"
        )

    def _revive(
        self, job: Job, found: Comparison, table: DueSnapshot, since: datetime, report: AuditReport
    ) -> None:
        """Send runs again whose message was lost, to their job's current pool. Dispatch numbers
        are never reused: the new dispatch is one higher.
        """
        sends, notes = [], []
        for run in found.stuck:
            # A redriven or retried run may be in a different pool than its last attempt.
            if found.is_lost(run, queue_is_empty=table.is_empty(job, since, run.pool)):
                sends.append(job.dispatch_entry(run.key, found.now, run.dispatch + 1))
                notes.append(
                    f"{run.key.execution_id}: {run.state}, without a message or worker; sent again"
                )
            else:
                report.waiting += 1
        self._put(sends, report, "revived")
        report.notes += notes

    def _hand_over(
        self, job: Job, since: datetime, now: datetime, sent: Container[str], report: AuditReport
    ) -> None:
        """Let executors hand over again what was not handed over to *job*. Runs of *job* that are
        in *sent* only wait.
        """
        found = (
            (parent, run)
            for parent, run in self.lost_hand_overs(job, since, now)
            if run_id(job.uid, run.key.scheduled_at) not in sent
        )
        lost = [*islice(found, SENT_AT_MOST)]
        if lost:
            self._put(repeated(lost, now), report, "resent")
            self._put(join_ends(job, lost, now), AuditReport(), "resent")  # no runs
            what = f"{len(lost)} runs of its parents were not handed over; sent again"
            report.notes.append(f"{label(job.key)}: {what}")

    def _put(
        self,
        entries: Sequence[DueEntry],
        report: AuditReport,
        repairs: Literal["restored", "resent", "revived"],
    ) -> None:
        """Store *entries* and count them as *repairs* in *report*.

        Raises:
            UnavailableError: Not all of them are stored. Those that are count.
        """
        stored = self.due.put(entries, self.clock.now()) if entries else set()
        setattr(report, repairs, getattr(report, repairs) + len(stored))
        if missing := {*entries} - stored:
            raise UnavailableError(f"{len(missing)} due entries were not stored. Try again.")


def _run_of(entry: FireEntry | DispatchEntry) -> str:
    if isinstance(entry, DispatchEntry):
        return entry.run_id
    return run_id(entry.uid, entry.occurs_at)
