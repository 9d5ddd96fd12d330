"""Put on record that occurrences do not run: one range record, however many they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nextfire.domain.decisions import DueAction, DueDecision, owned
from nextfire.domain.due import DueEntry
from nextfire.domain.ids import RunKey, run_id, runs_from
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.ports import RunStore
from nextfire.domain.run import Run, Trigger, of_creation

_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Covered:
    """What became of a COVER decision: `written`, a record that is new, and the entry that follows.

    Without `written` the occurrence of the entry has a record already, its own or a range's.
    """

    written: Run | None
    successor: DueEntry | None


def cover_missed(runs: RunStore, entry: DueEntry, decision: DueDecision, now: datetime) -> Covered:
    """Carry out *decision* (COVER) over *entry*.

    The record has the id that the run of the entry's own occurrence would have, so that one of the
    two exists: a message of that run that is still in a queue finds it SKIPPED; a run that was
    claimed keeps its record. It ends before the next record of the job. Done again, after a crash
    or by another watcher, it finds what was written, and goes on from there.

    Raises:
        UnavailableError: The store did not answer.
        UndecodableError: A record on the way does not read as a run.
    """
    job, missed = decision.owner, decision.missed
    if decision.action is not DueAction.COVER or job is None or missed is None:
        raise ValueError(f"{decision.action} is nothing to cover")
    first = entry.occurs_at
    until = min(missed.until, decision.owned_until or missed.until)
    stretch = job.stretch(entry, until)
    last, count = stretch.last, stretch.count
    if missed.but_latest and stretch.before_last is not None:
        last, count = stretch.before_last, stretch.count - 1
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
