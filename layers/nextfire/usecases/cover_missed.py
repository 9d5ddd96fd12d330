"""Record that occurrences are skipped: one range record for any number of them. A watcher does this
if the job has nothing to run; otherwise the executor of the run that was sent instead does it.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from nextfire.dataclass import dataclass
from nextfire.domain.due import FireEntry, fire
from nextfire.domain.due_decisions import Cover
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import RunKey, first_run_id, run_id
from nextfire.domain.instants import MOMENT, cut
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, SkippedRange
from nextfire.domain.missed import Missed, missed_from
from nextfire.domain.occurrences import owned
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, Trigger, runs_of_uid


@dataclass(frozen=True, slots=True)
class CoverResult:
    """The result of a `Cover` decision. `written`: the new record; `successor`: the next entry.

    `written` is None if the occurrence of the entry already has a record, its own or a range.
    """

    written: Run | None
    successor: FireEntry | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """New records; and whether an undecodable record was found."""

    written: tuple[Run, ...] = ()
    quarantined: bool = False

    def __add__(self, other: Recorded) -> Recorded:
        return Recorded(self.written + other.written, self.quarantined or other.quarantined)


def cover_missed(runs: RunStore, entry: FireEntry, decision: Cover, now: datetime) -> CoverResult:
    """Carry out *decision* for *entry*.

    The record has the id of the run of the entry's own occurrence, so only one of the two can
    exist: a message of that run that is still in a queue finds it SKIPPED, and a run that was
    claimed keeps its record. The range ends before the next record of the job. Idempotent: repeated
    after a crash or by another watcher, it finds the records and continues from there.

    Raises:
        UnavailableError: The store did not answer.
        UndecodableError: A record in the range does not decode as a run.
    """
    job, first = decision.owner, entry.occurs_at
    last, count = missed_from(entry, job, decision.missed, decision.owned_until)
    record = _newest(runs, job, last)
    if record is not None and record.key.scheduled_at > first:
        # There are runs in the range: cover up to the earliest of them.
        between = runs.between(job.key, first_run_id(first), _after(last), page=1, lenient=True)
        record = next((run for run in between if _is_of(run, job)), None)
        if record is not None and record.key.scheduled_at > first:
            stretch = job.stretch(entry, record.key.scheduled_at - MOMENT)
            last, count = stretch.last, stretch.count
            # Occurrences before it may already be covered by a range that began earlier.
            record = _newest(runs, job, first)
    if record is None or record.covers_until < first:
        key = RunKey(entry.job, run_id(entry.uid, first))
        skipped = Run.skipped(key, decision.reason, cut(now), covered_to=last, covered=count)
        record = runs.skip(skipped)
        if record == skipped:
            successor = job.following(last, entry.ordinal + count - 1)
            return CoverResult(record, owned(successor, decision.owned_until))
    until = record.covers_until
    ordinal = entry.ordinal + job.stretch(entry, until).count - 1
    return CoverResult(None, owned(job.following(until, ordinal), decision.owned_until))


def record_missed(runs: RunStore, job: Job | None, message: RunMessage, now: datetime) -> Recorded:
    """Record the occurrences that *message* lists as missed before its run.

    Idempotent: repeated after a crash or for another message, it finds the records and continues
    from there. An undecodable record keeps its place and blocks nothing else.

    Args:
        runs: The records.
        job: The job that has the id now; None if it does not exist.
        message: The first dispatch of the run, or a later one.
        now: The current instant.

    Raises:
        UnavailableError: The store did not answer.
    """
    recorded = Recorded()
    for row in message.missed:
        owner = _as_of(job, message.key, row.version)
        if owner is None:
            recorded += _record_whole(runs, message.key, row, now)
        else:
            recorded += _record_row(runs, owner, row, now)
    return recorded


def _record_row(runs: RunStore, owner: Job, row: SkippedRange, now: datetime) -> Recorded:
    """Record *row*, in as many ranges as the existing records in between require."""
    recorded = Recorded()
    decision = Cover(Missed(row.last), row.reason, owner, owned_until=row.last)
    entry: FireEntry | None = fire(
        owner.key, owner.uid, row.version, row.first, ordinal=row.ordinal
    )
    while entry is not None:
        try:
            covered = cover_missed(runs, entry, decision, now)
        except UndecodableError:  # written concurrently: the record of the entry's own occurrence
            recorded += Recorded(quarantined=True)
            entry = owned(owner.following(entry.occurs_at, entry.ordinal), row.last)
            continue
        recorded += Recorded((covered.written,) if covered.written else ())
        entry = covered.successor
    return recorded


def _as_of(job: Job | None, key: RunKey, version: int) -> Job | None:
    """*job* as of *version*; None if that version has been forgotten, or the job is another one."""
    if job is None or job.uid != key.uid:
        return None
    if job.schedule_version == version:
        return job
    past = next((each for each in job.replaced if each.version == version), None)
    return None if past is None else job.as_of(past)


def _record_whole(runs: RunStore, key: RunKey, row: SkippedRange, now: datetime) -> Recorded:
    """Record *row* as one range, if none of it has a record, its own or a range that began earlier.
    Without its schedule it cannot be split.
    """
    first = first_run_id(row.first)
    before = runs.between(key.job, "0", first, newest_first=True, page=1, lenient=True)
    earlier = next((run for run in before if run.trigger is not Trigger.MANUAL), None)
    if earlier is not None and earlier.key.uid == key.uid and earlier.covers_until >= row.first:
        return Recorded()
    between = runs.between(key.job, first, _after(row.last), page=1, lenient=True)
    if any(run.key.uid == key.uid and run.trigger is not Trigger.MANUAL for run in between):
        return Recorded()
    whole = RunKey(key.job, run_id(key.uid, row.first))
    skipped = Run.skipped(whole, row.reason, cut(now), covered_to=row.last, covered=row.count)
    try:
        return Recorded((skipped,) if runs.skip(skipped) == skipped else ())
    except UndecodableError:  # the first occurrence has a record
        return Recorded(quarantined=True)


def _newest(runs: RunStore, job: Job, last: datetime) -> Run | None:
    """The record of the job's occurrences up to *last* that covers the latest one. That is one of
    the two latest: a run can be in a range if both were written at the same time.
    """
    before = runs.between(job.key, "0", _after(last), newest_first=True, page=2, lenient=True)
    mine = runs_of_uid(before, job.uid, job.created_at)
    latest = islice((run for run in mine if _is_of(run, job)), 2)
    return max(latest, key=lambda run: run.covers_until, default=None)


def _is_of(run: Run, job: Job) -> bool:
    """Whether *run* belongs to an occurrence of *job*, and not to a manual run in between."""
    return run.key.uid == job.uid and run.trigger is not Trigger.MANUAL


def _after(at: datetime) -> str:
    return first_run_id(at + MOMENT)
