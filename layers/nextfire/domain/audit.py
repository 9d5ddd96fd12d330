"""What the auditor compares, and what it makes of it. Pure: no store, no clock.

A job owes a record for each occurrence that its schedule versions own and that has been sent. What
has none, and what stands still, is lost only if it is nowhere on the way: not in the due table, and
not in the pool's queue. `Comparison.lost_before` says from when on that is certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from nextfire.domain.due import DispatchEntry, DueEntry, FireEntry, ResumeEntry
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import cut
from nextfire.domain.job import Job, JobState
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.schedule import ScheduleType, occurrences

GRACE = timedelta(minutes=15)
"""For how long after it was due, or free again, a run is none of the auditor's business. Well above
the five minutes for which a queue drops what it was sent before."""
OVERLAP = timedelta(days=1)
"""How far before the start of the last audit the next one looks back: what was too young then, or
might still have been in a queue, is not now."""
LOOK_BACK_AT_MOST = timedelta(days=30)
"""Records are kept for 90 days: what is older than they are must not look lost."""
WAITS_AT_MOST = timedelta(days=1)
"""What has been sent and not been taken for longer counts as lost, whatever is in the queue."""
OVERTAKEN_AFTER = timedelta(hours=1)
"""What was sent before another run of the job that was taken so long ago counts as lost."""
RECORDS_AT_MOST = 100_000
"""Records of one job that one visit reads."""
MISSING_AT_MOST = 1_000
"""Stretches of missing records that one visit tells apart."""

ChainEntry = FireEntry | ResumeEntry
"""The entry that continues a job's chain: its next occurrence, or the end of its pause."""

_MOMENT = timedelta(milliseconds=1)
_FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Audit:
    """One pass over all jobs. `after`: the job that it has come to; None at its beginning. `since`:
    when the last pass that came to its end began.
    """

    started_at: datetime
    since: datetime | None = None
    after: JobKey | None = None
    done: bool = False

    def looks_back_to(self, now: datetime) -> datetime:
        """From when on occurrences are looked at."""
        return max((self.since or self.started_at) - OVERLAP, now - LOOK_BACK_AT_MOST)

    def moved(self, after: JobKey | None) -> Audit:
        """The same, come to the job *after*; to its end with None."""
        return replace(self, after=after, done=after is None)


def next_audit(
    was: Audit | None, now: datetime, every: timedelta, *, restart: bool
) -> Audit | None:
    """The audit to go on with: an unfinished one; else a new one, if the last one began *every*
    ago; else none. *anew*: a new one in any case.
    """
    if was is None:
        return Audit(cut(now))
    since = was.started_at if was.done else was.since
    # One that began in the future was written by a clock that was off: it would rest for ever.
    resting = timedelta() <= now - was.started_at < every
    if restart or (was.done and not resting):
        return Audit(cut(now), since and min(since, cut(now)))
    return None if was.done else was


def next_entry(job: Job, now: datetime) -> ChainEntry | None:
    """The FIRE entry that an ACTIVE job has if all that is due by *now* has been sent: of the first
    occurrence that is due later; of a PAUSED one the entry that ends its pause. None if there is
    none to be.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    if job.state is JobState.PAUSED:
        return job.resume_entry()
    if job.state is not JobState.ACTIVE or job.definition.type is ScheduleType.MANUAL:
        return None
    at = job.next_after(now - job.definition.jitter_width)
    while at is not None and job.due_at(at) <= now:
        at = job.next_after(at)
    if at is None:
        return None
    ordinal, most = job.ordinal(at), job.definition.max_runs
    return None if most is not None and ordinal > most else job.fire_entry(at, ordinal)


@dataclass(frozen=True, slots=True)
class Span:
    """The occurrences after `after`, up to and with `until`, that the version of `owner` owns."""

    owner: Job
    after: datetime
    until: datetime

    def occurrences(self) -> Iterator[datetime]:
        """Ascending, within `maxRuns`.

        Raises:
            InvalidInputError: The schedule cannot be read.
        """
        most, left = self.owner.definition.max_runs, None
        if most is not None:
            first = self.owner.next_after(self.after)
            left = 0 if first is None else max(most - self.owner.ordinal(first) + 1, 0)
        after = max(self.after, self.owner.effective_from)
        for found in islice(occurrences(self.owner.schedule, after), left):
            if found.at > self.until:
                return
            yield found.at


def spans(
    job: Job, since: datetime, until: datetime, entries: Iterable[DueEntry] = ()
) -> list[Span]:
    """What *job* owes records for, of the time after *since* up to *until*. What comes at or after
    one of the job's FIRE *entries* has not been sent yet.

    Nothing of a CANCELLED job, whose runs would not start any more; of a PAUSED one what was due
    before the pause.
    """
    if job.state is JobState.CANCELLED:
        return []
    positions: dict[int, datetime] = {}
    for entry in entries:
        if isinstance(entry, FireEntry) and entry.uid == job.uid:
            there = positions.get(entry.version, entry.occurs_at)
            positions[entry.version] = min(there, entry.occurs_at)
    versions = [(job.as_of(past), past.until) for past in job.replaced]
    if job.state is not JobState.PAUSED:
        versions.append((job, until))
    found: list[Span] = []
    for owner, owned_until in versions:
        position = positions.get(owner.schedule_version)
        last = min(owned_until, until)
        if position is not None:
            last = min(last, position - _MOMENT)
        after = max(since, owner.effective_from)
        if after < last:
            found.append(Span(owner, after, last))
    return found


@dataclass(frozen=True, slots=True)
class Missing:
    """`count` occurrences in a row, from `first` to `last`, for which there is no record."""

    owner: Job
    first: datetime
    last: datetime
    count: int


@dataclass(slots=True)
class Comparison:
    """What the records of a job show, read up to `now`.

    `stuck`: runs that nobody has been working on for `GRACE`. `covered_to`: the last occurrence
    that a record stands for. `settled_from`: when that was due, or ended: from then on its message
    is settled. `taken_from`: the latest that was sent `OVERTAKEN_AFTER` before `now` and that an
    executor has taken: what comes before it was sent before it, to the same queue unless the job
    was changed. `at_work`: a run has not ended, of those that the schedule owes. `partial`: there
    was more than was looked at.
    """

    now: datetime
    missing: list[Missing] = field(default_factory=list)
    stuck: list[Run] = field(default_factory=list)
    covered_to: datetime | None = None
    settled_from: datetime | None = None
    taken_from: datetime | None = None
    at_work: bool = False
    partial: bool = False

    @property
    def clean(self) -> bool:
        return not self.missing and not self.stuck

    def lost_before(self, *, queue_is_empty: bool) -> datetime:
        """Missing occurrences before this instant are lost; a later one may still wait in the
        queue.
        """
        if queue_is_empty:
            return self.now
        return max(self.taken_from or self.now - WAITS_AT_MOST, self.now - WAITS_AT_MOST)

    def is_lost(self, run: Run, *, queue_is_empty: bool) -> bool:
        """Whether no message carries *run*, one of `stuck`. When it was sent nobody knows: after
        an outage of the watcher a retry goes later than runs that were due after it.
        """
        since = idle_since(run)
        return queue_is_empty or since is None or since < self.now - WAITS_AT_MOST


def idle_since(run: Run) -> datetime | None:
    """Since when a run that has not ended waits to be taken (again): in the past, unless somebody
    works on it or it is to wait. None if it has ended.
    """
    if run.state is RunState.RUNNING:
        return run.lease_until or run.started_at or run.key.scheduled_at
    if run.state is RunState.PENDING:
        given_up = run.attempts[-1].finished_at if run.attempts else None
        return run.not_before or given_up or run.key.scheduled_at
    return None


def compare(
    job: Job,
    owed: Iterable[Span],
    records: Iterable[Run],
    *,
    now: datetime,
    waiting: Collection[str] = (),
) -> Comparison:
    """Hold what *job* owes against its *records*.

    Args:
        job: The job.
        owed: What records are owed for, ascending.
        records: All records of the job's id from there on, of whatever `uid`, and perhaps some from
            before, ascending. They are consumed one by one.
        now: The present.
        waiting: The ids of runs that wait in the due table: they are on their way.

    Raises:
        InvalidInputError: A schedule cannot be read.
    """
    found = Comparison(now)
    gaps = _Gaps(owed, job.uid, now - GRACE, waiting)
    in_a_row = job.exclusive and not job.changed_after(now - WAITS_AT_MOST)
    for number, run in enumerate(records):
        if number == RECORDS_AT_MOST:
            found.partial = True
            break
        since = idle_since(run)
        if since is not None and since <= now - GRACE and run.key.run_id not in waiting:
            found.stuck.append(run)
        if run.key.uid != job.uid or run.trigger is Trigger.MANUAL:
            continue
        found.at_work = found.at_work or not run.state.ended
        at = run.key.scheduled_at
        gaps.judge_before(at, found.covered_to)
        # What is to come may have been asked to be skipped.
        if at <= now and (found.covered_to is None or run.covers_until >= found.covered_to):
            found.covered_to = run.covers_until
            found.settled_from = max(run.finished_at or at, at)
        sent_at = run.dispatched_at
        sent_long_ago = sent_at is not None and sent_at <= now - OVERTAKEN_AFTER
        # Only in one message group does nothing overtake what was sent before it.
        if in_a_row and run.pool is not None and sent_long_ago and not run.on_request:
            found.taken_from = max(found.taken_from or at, at)
    if not found.partial:
        gaps.judge_before(now, found.covered_to)
    found.missing = gaps.found[:MISSING_AT_MOST]
    found.partial = found.partial or len(gaps.found) > MISSING_AT_MOST
    return found


def owes_records(uid: str, owed: Iterable[Span], records: Iterable[Run]) -> bool:
    """Whether an occurrence of what is *owed* has no record yet, whenever it is due.

    Args:
        uid: The job's.
        owed: What records are owed for, ascending.
        records: Those of the job, ascending, from one before that on: it may be a range that
            reaches into it.

    Raises:
        InvalidInputError: A schedule cannot be read.
    """
    gaps = _Gaps(owed, uid, _FOREVER, ())
    covered_to: datetime | None = None
    for run in records:
        at = run.key.scheduled_at
        gaps.judge_before(at, covered_to)
        covered_to = max(covered_to or at, run.covers_until)
    gaps.judge_before(_FOREVER, covered_to)
    return bool(gaps.found)


def is_done(job: Job, found: Comparison, *, queue_is_empty: bool) -> bool:
    """Whether *job* is ACTIVE with nothing left that would complete it: its last occurrence has
    been on record for `GRACE`, all its runs have ended, and no message can wait in the queue that
    tells so: that of one that was cancelled there, or whose executor died, say.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    if job.state is not JobState.ACTIVE or found.covered_to is None or found.at_work:
        return False
    waits_from = found.now if queue_is_empty else found.now - WAITS_AT_MOST
    if found.settled_from is not None and found.settled_from > waits_from:
        return False
    recent = found.now - GRACE - job.definition.jitter_width
    whole = found.clean and not found.partial
    return whole and job.is_last(found.covered_to) and job.is_last(recent)


class _Gaps:
    """Walks along what is owed, beside the records."""

    def __init__(
        self, owed: Iterable[Span], uid: str, due_by: datetime, waiting: Collection[str]
    ) -> None:
        self._owed = ((span.owner, at) for span in owed for at in span.occurrences())
        self._next = next(self._owed, None)
        self._uid = uid
        self._due_by = due_by
        self._waiting = waiting
        self._in_a_row = False
        self.found: list[Missing] = []

    def judge_before(self, end: datetime, covered_to: datetime | None) -> None:
        """Judge the occurrences before *end*; records reach to *covered_to*."""
        while self._next is not None and self._next[1] < end:
            owner, at = self._next
            self._next = next(self._owed, None)
            if self._is_missing(owner, at, covered_to):
                self._add(owner, at)
            else:
                self._in_a_row = False

    def _is_missing(self, owner: Job, at: datetime, covered_to: datetime | None) -> bool:
        if covered_to is not None and at <= covered_to:
            return False
        # Jitter may have put it off.
        return owner.due_at(at) <= self._due_by and run_id(self._uid, at) not in self._waiting

    def _add(self, owner: Job, at: datetime) -> None:
        last = self.found[-1] if self._in_a_row else None
        if last is not None and last.owner is owner:
            self.found[-1] = replace(last, last=at, count=last.count + 1)
        elif len(self.found) <= MISSING_AT_MOST:
            self.found.append(Missing(owner, at, at, 1))
        self._in_a_row = True


def lost_part(missing: Missing, before: datetime) -> Missing | None:
    """What of *missing* comes before *before*."""
    if missing.first >= before:
        return None
    if missing.last < before:
        return missing
    part = missing.owner.stretch(first_of(missing), before - _MOMENT)
    return replace(missing, last=part.last, count=part.count)


def first_of(missing: Missing) -> FireEntry:
    """The FIRE entry that the first of *missing* had."""
    return missing.owner.fire_entry(missing.first, missing.owner.ordinal(missing.first))


def restored(
    job: Job,
    found: Comparison,
    following: ChainEntry,
    since: datetime,
    *,
    queue_is_empty: bool,
) -> ChainEntry:
    """The entry that mends the chain of *job*, which has none: of the first occurrence after all
    that are on record, so that the misfire policy decides over what was missed.

    While the queue holds something, what has no record may have been sent: then the chain goes on
    with *following*, the next occurrence to come, and what is missing is judged when that is sure.
    """
    if not queue_is_empty or found.partial or isinstance(following, ResumeEntry):
        return following
    first = job.next_after(max(found.covered_to or since, since))
    if first is None or first >= following.occurs_at:
        return following
    return job.fire_entry(first, job.ordinal(first))


def sending(job: Job, run: RunKey, *, pool: str, dispatch: int, now: datetime) -> DispatchEntry:
    """The due entry that has *run* sent, and touches no chain."""
    return DispatchEntry(
        run.job,
        run.uid,
        cut(now),
        run.run_id,
        dispatch,
        pool,
        rank=job.definition.priority.rank,
        exclusive=job.exclusive,
    )


def longest_run(job: Job) -> timedelta:
    """How long a run of *job* may take from its first claim to its end, retries included."""
    policy = job.definition.retry_policy
    delays = (policy.delay(attempt) for attempt in range(1, policy.max_attempts))
    longest = sum(delays, policy.max_attempts * (job.definition.timeout + GRACE))
    return min(longest, LOOK_BACK_AT_MOST)
