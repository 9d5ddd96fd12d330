"""Put on record that occurrences do not run: one range record, however many they are. A watcher
does where nothing of the job is to run, otherwise the executor of the run that was sent instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nextfire.domain.due import FireEntry, fire
from nextfire.domain.due_decisions import Cover, Missed, missed_from, owned
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import RunKey, run_id, runs_from
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, SkippedRange
from nextfire.domain.ports import RunStore
from nextfire.domain.run import Run, Trigger, of_creation

_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Covered:
    """What became of a `Cover` decision: `written`, a record that is new, and what follows.

    Without `written` the occurrence of the entry has a record already, its own or a range's.
    """

    written: Run | None
    successor: FireEntry | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The records that are new; whether a record was found that does not decode."""

    written: tuple[Run, ...] = ()
    quarantined: bool = False

    def __add__(self, other: Recorded) -> Recorded:
        return Recorded(self.written + other.written, self.quarantined or other.quarantined)


def cover_missed(runs: RunStore, entry: FireEntry, decision: Cover, now: datetime) -> Covered:
    """Carry out *decision* over *entry*.

    The record has the id that the run of the entry's own occurrence would have, so that one of the
    two exists: a message of that run that is still in a queue finds it SKIPPED; a run that was
    claimed keeps its record. It ends before the next record of the job. Done again, after a crash
    or by another watcher, it finds what was written, and goes on from there.

    Raises:
        UnavailableError: The store did not answer.
        UndecodableError: A record on the way does not read as a run.
    """
    job, first = decision.owner, entry.occurs_at
    last, count = missed_from(entry, job, decision.missed, decision.owned_until)
    there = _newest(runs, job, last)
    if there is not None and there.key.scheduled_at > first:
        # Runs stand in the way: up to the earliest of them.
        between = runs.between(job.key, runs_from(first), _after(last), page=1, lenient=True)
        there = next((run for run in between if _is_of(run, job)), None)
        if there is not None and there.key.scheduled_at > first:
            stretch = job.stretch(entry, there.key.scheduled_at - _MOMENT)
            last, count = stretch.last, stretch.count
            # What is before them may be covered already, by a range that began earlier.
            there = _newest(runs, job, first)
    if there is None or there.covers_until < first:
        key = RunKey(entry.job, run_id(entry.uid, first))
        skipped = Run.skipped(key, decision.reason, cut(now), covered_to=last, covered=count)
        there = runs.skip(skipped)
        if there == skipped:
            successor = job.following(last, entry.ordinal + count - 1)
            return Covered(there, owned(successor, decision.owned_until))
    until = there.covers_until
    ordinal = entry.ordinal + job.stretch(entry, until).count - 1
    return Covered(None, owned(job.following(until, ordinal), decision.owned_until))


def record_missed(runs: RunStore, job: Job | None, message: RunMessage, now: datetime) -> Recorded:
    """Put on record what *message* says was missed before its run. Done again, after a crash or for
    another message, it finds what was written and continues there. A record that does not
    decode keeps its place and blocks nothing else.

    Args:
        runs: The records.
        job: The job that has the id now; None if none has.
        message: Its first dispatch, or a later one.
        now: The instant.

    Raises:
        UnavailableError: The store did not answer.
    """
    recorded = Recorded()
    for row in message.missed:
        owner = _as_of(job, message.key, row.version)
        if owner is None:
            recorded += _record_as_told(runs, message.key, row, now)
        else:
            recorded += _record_row(runs, owner, row, now)
    return recorded


def _record_row(runs: RunStore, owner: Job, row: SkippedRange, now: datetime) -> Recorded:
    """Put *row* on record, in as many ranges as the records in between make necessary."""
    recorded = Recorded()
    decision = Cover(Missed(row.last), row.reason, owner, owned_until=row.last)
    entry: FireEntry | None = fire(
        owner.key, owner.uid, row.version, row.first, ordinal=row.ordinal
    )
    while entry is not None:
        try:
            covered = cover_missed(runs, entry, decision, now)
        except UndecodableError:  # written meanwhile: the record of the entry's own occurrence
            recorded += Recorded(quarantined=True)
            entry = owned(owner.following(entry.occurs_at, entry.ordinal), row.last)
            continue
        recorded += Recorded((covered.written,) if covered.written else ())
        entry = covered.successor
    return recorded


def _as_of(job: Job | None, key: RunKey, version: int) -> Job | None:
    """*job* as it was in *version*; None where that is forgotten, or the job is another."""
    if job is None or job.uid != key.uid:
        return None
    if job.schedule_version == version:
        return job
    past = next((each for each in job.replaced if each.version == version), None)
    return None if past is None else job.as_of(past)


def _record_as_told(runs: RunStore, key: RunKey, row: SkippedRange, now: datetime) -> Recorded:
    """Without its schedule a row cannot be taken apart: it is put on record whole, if nothing of it
    is.
    """
    between = runs.between(key.job, runs_from(row.first), _after(row.last), page=1, lenient=True)
    if any(run.key.uid == key.uid and run.trigger is not Trigger.MANUAL for run in between):
        return Recorded()
    first = RunKey(key.job, run_id(key.uid, row.first))
    skipped = Run.skipped(first, row.reason, cut(now), covered_to=row.last, covered=row.count)
    try:
        return Recorded((skipped,) if runs.skip(skipped) == skipped else ())
    except UndecodableError:  # the first has a record
        return Recorded(quarantined=True)


def _newest(runs: RunStore, job: Job, last: datetime) -> Run | None:
    """The job's record that is latest of those of *last* or before."""
    before = runs.between(job.key, "0", _after(last), newest_first=True, page=1, lenient=True)
    mine = of_creation(before, job.uid, job.created_at)
    return next((run for run in mine if _is_of(run, job)), None)


def _is_of(run: Run, job: Job) -> bool:
    """Whether *run* is of an occurrence of *job*: run now leaves records between them."""
    return run.key.uid == job.uid and run.trigger is not Trigger.MANUAL


def _after(at: datetime) -> str:
    return runs_from(at + _MOMENT)
