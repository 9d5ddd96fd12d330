"""Decisions of the auditor: which runs are missing or stuck. Pure: no store, no clock.

Every occurrence that a schedule version owns and that was sent must have a run record. A run
without a record, or one that makes no progress, is lost only if it is neither in the due table nor
in the queue of its pool. `Comparison.lost_before` returns the instant before which that is certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.due import DueEntry, FireEntry
from nextfire.domain.ids import run_id
from nextfire.domain.instants import MOMENT
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.recurrence import occurrences
from nextfire.domain.run import Run, RunState, Trigger

GRACE = timedelta(minutes=15)
"""The auditor ignores a run for this long after it was due or became free again. Well above the
five minutes of FIFO deduplication."""
RUNS_AT_MOST = timedelta(days=30)
"""Limit of the look-back for runs that make no progress: it bounds the reads of a visit."""
WAITS_AT_MOST = timedelta(days=1)
"""A run that was sent but not claimed for longer is lost, even if the queue is not empty."""
OVERTAKEN_AFTER = timedelta(hours=1)
"""A run is lost if a later run of the job was sent this long ago and has been claimed."""
RECORDS_AT_MOST = 100_000
"""Maximum number of records that the auditor reads per visit of a job."""
MISSING_AT_MOST = 1_000
"""Maximum number of separate gaps that the auditor reports per visit of a job."""
_FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """The occurrences in (`after`, `until`] that the schedule version of `owner` owns."""

    owner: Job
    after: datetime
    until: datetime

    def occurrences(self) -> Iterator[datetime]:
        """Ascending, within `maxRuns`.

        Raises:
            InvalidInputError: The schedule cannot be read.
        """
        after = max(self.after, self.owner.effective_from)
        left = self.owner.left_after(after)
        for found in islice(occurrences(self.owner.schedule, after), left):
            if found.at > self.until:
                return
            yield found.at


def spans(
    job: Job, since: datetime, until: datetime, entries: Iterable[DueEntry] = ()
) -> list[Span]:
    """The spans in (*since*, *until*] for which *job* must have records. Occurrences at or after a
    FIRE entry of their version in *entries* were not sent yet and are excluded.

    Empty for a CANCELLED job, because its runs no longer start. For a PAUSED job, only occurrences
    that were due before the pause.
    """
    if job.state is JobState.CANCELLED:
        return []
    positions: dict[int, datetime] = {}
    for entry in entries:
        if isinstance(entry, FireEntry) and entry.uid == job.uid:
            earliest = positions.get(entry.version, entry.occurs_at)
            positions[entry.version] = min(earliest, entry.occurs_at)
    versions = [(job.as_of(past), past.until) for past in job.replaced]
    if job.state is not JobState.PAUSED:
        versions.append((job, until))
    found: list[Span] = []
    for owner, owned_until in versions:
        position = positions.get(owner.schedule_version)
        last = min(owned_until, until)
        if position is not None:
            last = min(last, position - MOMENT)
        after = max(since, owner.effective_from)
        if after < last:
            found.append(Span(owner, after, last))
    return found


@dataclass(frozen=True, slots=True)
class Missing:
    """A gap: `count` consecutive occurrences without a record, from `first` to `last`."""

    owner: Job
    first: datetime
    last: datetime
    count: int


@dataclass(slots=True)
class Comparison:
    """The result of comparing a job with its records at `now`.

    `missing`: gaps without records. `stuck`: runs without progress for `GRACE`. `covered_to`: the
    last occurrence that a record covers. `settled_from`: when that occurrence was due or its run
    ended, whichever is later; its message is settled from then on. `claimed_up_to`: the latest
    occurrence that was sent at least `OVERTAKEN_AFTER` before `now` and that an executor claimed.
    Earlier occurrences were sent before it, to the same queue unless the job was changed.
    `unfinished`: a scheduled or backfilled run has not ended. `partial`: a limit was reached, so
    the comparison is incomplete.
    """

    now: datetime
    missing: list[Missing] = field(default_factory=list)
    stuck: list[Run] = field(default_factory=list)
    covered_to: datetime | None = None
    settled_from: datetime | None = None
    claimed_up_to: datetime | None = None
    unfinished: bool = False
    partial: bool = False

    @property
    def clean(self) -> bool:
        return not self.missing and not self.stuck

    def lost_before(self, *, queue_is_empty: bool) -> datetime:
        """Missing occurrences before this instant are lost; a later one may be in the queue."""
        if queue_is_empty:
            return self.now
        return max(self.claimed_up_to or self.now - WAITS_AT_MOST, self.now - WAITS_AT_MOST)

    def is_lost(self, run: Run, *, queue_is_empty: bool) -> bool:
        """Whether *run*, one of `stuck`, has no message. The time of sending is unknown: after an
        outage of the watcher, a retry can be sent after runs that were due later.
        """
        since = claimable_since(run)
        return queue_is_empty or since is None or since < self.now - WAITS_AT_MOST


def claimable_since(run: Run) -> datetime | None:
    """Since when a run that has not ended is free to be claimed. In the future if a worker holds
    its lease or the run waits for a retry. None if the run has ended.
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
    """Compare the occurrences that *job* owes with its *records*.

    Args:
        job: The job.
        owed: The spans that must have records, ascending.
        records: All records of the job id from the start of *owed* on, with any `uid`, and possibly
            some earlier ones, ascending. They are consumed one by one.
        now: The current time.
        waiting: The ids of runs that have an entry in the due table, so they are not lost.

    Raises:
        InvalidInputError: A schedule is invalid.
    """
    found = Comparison(now)
    gaps = _Gaps(owed, job.uid, now - GRACE, waiting)
    in_a_row = job.exclusive and not job.changed_after(now - WAITS_AT_MOST)
    for number, run in enumerate(records):
        if number == RECORDS_AT_MOST:
            found.partial = True
            break
        since = claimable_since(run)
        if since is not None and since <= now - GRACE and run.key.run_id not in waiting:
            found.stuck.append(run)
        if run.key.uid != job.uid or run.trigger is Trigger.MANUAL:
            continue
        found.unfinished = found.unfinished or not run.state.ended
        at = run.key.scheduled_at
        gaps.judge_before(at, found.covered_to)
        # A future occurrence can have a record because a user asked to skip it.
        if at <= now and (found.covered_to is None or run.covers_until >= found.covered_to):
            found.covered_to = run.covers_until
            found.settled_from = max(run.finished_at or at, at)
        sent_at = run.dispatched_at
        sent_long_ago = sent_at is not None and sent_at <= now - OVERTAKEN_AFTER
        # Only within one message group is the order of sending preserved.
        if in_a_row and run.pool is not None and sent_long_ago and not run.on_request:
            found.claimed_up_to = max(found.claimed_up_to or at, at)
    if not found.partial:
        gaps.judge_before(now, found.covered_to)
    found.missing = gaps.found[:MISSING_AT_MOST]
    found.partial = found.partial or len(gaps.found) > MISSING_AT_MOST
    return found


def owes_records(uid: str, owed: Iterable[Span], records: Iterable[Run]) -> bool:
    """Whether any occurrence in *owed* has no record, regardless of when it is due.

    Args:
        uid: The `uid` of the job.
        owed: The spans that must have records, ascending.
        records: The records of the job, ascending, starting with the last one before *owed*, which
            can be a range record that extends into it.

    Raises:
        InvalidInputError: A schedule is invalid.
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
    """Whether *job* is still ACTIVE although it should be COMPLETED: its last occurrence has had a
    record for `GRACE`, all runs have ended, and no message that would complete the job can be left
    in the queue, such as the message of a cancelled run or of a run whose executor died.

    Raises:
        InvalidInputError: The schedule is invalid.
    """
    if job.state is not JobState.ACTIVE or found.covered_to is None or found.unfinished:
        return False
    waits_from = found.now if queue_is_empty else found.now - WAITS_AT_MOST
    if found.settled_from is not None and found.settled_from > waits_from:
        return False
    recent = found.now - GRACE - job.definition.jitter_width
    whole = found.clean and not found.partial
    return whole and job.is_last(found.covered_to) and job.is_last(recent)


class _Gaps:
    """Finds gaps by walking through the owed occurrences and the records in parallel."""

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
        """Check the occurrences before *end*; records cover occurrences up to *covered_to*."""
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
        # Jitter may delay it.
        return owner.due_at(at) <= self._due_by and run_id(self._uid, at) not in self._waiting

    def _add(self, owner: Job, at: datetime) -> None:
        last = self.found[-1] if self._in_a_row else None
        if last is not None and last.owner is owner:
            self.found[-1] = replace(last, last=at, count=last.count + 1)
        elif len(self.found) <= MISSING_AT_MOST:
            self.found.append(Missing(owner, at, at, 1))
        self._in_a_row = True


def longest_run(job: Job) -> timedelta:
    """Maximum time from the first claim of a run of *job* to its end, retries included."""
    policy = job.definition.retry_policy
    delays = (policy.delay(attempt) for attempt in range(1, policy.max_attempts))
    longest = sum(delays, policy.max_attempts * (job.definition.timeout + GRACE))
    return min(longest, RUNS_AT_MOST)
