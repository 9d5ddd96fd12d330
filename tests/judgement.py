"""Whether what became of an occurrence was right, by what its job said when that was decided.

It asks the documents (docs/guide/policies.md) and the instants on record, and nothing that the
product decides with. Where several definitions may have been read, one that allows the outcome is
enough.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise, zip_longest

from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job, JobState, MisfirePolicy, Overlap, RetryPolicy
from nextfire.domain.message import RunMessage, SkippedRange
from nextfire.domain.run import AttemptOutcome, Run, RunState, Trigger

CLOCKS_APART = timedelta(seconds=2)
MISSED_AFTER = timedelta(seconds=60)
"""From when on the misfire policy decides over what is late."""
_MOMENT = timedelta(milliseconds=1)  # instants on record are cut
_DECIDING = timedelta(seconds=30)
"""What may lie between reading a clock, reading a job, and what follows from both."""
_SENDING = timedelta(seconds=15)
"""What may lie between reading a job, perhaps as it was a moment before, and sending its run; where
it is not known when that was decided: a call that is not answered takes its time as well.
"""
_BEHIND = timedelta(seconds=4)
"""How far what was read, and a clock, may be behind."""
_ATTEMPTS_KEPT = 100


@dataclass(frozen=True, slots=True)
class Stored:
    """*job* as it was stored at `written_at`."""

    written_at: datetime
    job: Job


@dataclass(frozen=True)
class Evidence:
    """What is known of a job beside its records: `ever`, all that it was, in order; `sent`, when
    the watchers sent its runs first; `asked_to_cancel`, whether anybody asked for a run's end;
    `decided`, what their clocks said when they decided that, where it is known; `vanished`, records
    that somebody deleted, as they were then; `missed`, what messages told was missed, and when they
    were sent.
    """

    ever: Sequence[Stored]
    sent: Mapping[RunKey, datetime]
    asked_to_cancel: Callable[[RunKey], bool] = lambda _: True
    decided: Mapping[RunKey, datetime] = field(default_factory=dict)
    vanished: Sequence[Run] = ()
    missed: Sequence[tuple[SkippedRange, datetime]] = ()

    def in_force(self, at: datetime) -> Iterator[Job]:
        """What the job was when something was decided at *at*."""
        for stored, following in zip_longest(self.ever, self.ever[1:]):
            ended = following is not None and following.written_at < at - _DECIDING
            if stored.written_at <= at + _DECIDING and not ended:
                yield stored.job

    def until(self, at: datetime) -> Iterator[Job]:
        """All that the job was up to *at*."""
        return (s.job for s in self.ever if s.written_at <= at + _DECIDING)

    def written_at(self, is_it: Callable[[Job], bool]) -> datetime | None:
        return next((s.written_at for s in self.ever if is_it(s.job)), None)


def first_sent(log: Iterable[RunMessage]) -> dict[RunKey, datetime]:
    """When the runs of *log* were sent first, but for those that the auditor had sent: he decided
    at another time.
    """
    sent: dict[RunKey, datetime] = {}
    for message in log:
        if message.dispatch == 1 and message.reason != "retry is due":
            at = sent.get(message.key, message.dispatched_at)
            sent[message.key] = min(at, message.dispatched_at)
    return sent


def told_missed(log: Iterable[RunMessage], job: Job) -> list[tuple[SkippedRange, datetime]]:
    """What the messages of *job* in *log* tell was missed, and when they were sent."""
    return [
        (row, message.dispatched_at)
        for message in log
        if (message.key.job, message.key.uid) == (job.key, job.uid)
        for row in message.missed
    ]


@dataclass(frozen=True)
class Judge:
    """Judges the records of a job. `owned`: its occurrences, ascending, each with the job as it was
    in the version that owns it; `found`: its records.
    """

    owned: Mapping[datetime, Job]
    found: Sequence[Run]
    evidence: Evidence

    def judge(self, record: Run, stood: Sequence[datetime]) -> None:
        """Look at *record*, which has ended and stands for *stood*.

        Raises:
            AssertionError: It should not have come to that.
        """
        if record.skip_requested:  # whether anybody asked is told where flows are
            assert not record.attempts, _of(record, "skipped, and has run")
            return
        self._not_early(record)
        match record.state:
            case RunState.SKIPPED if record.pool is None:
                self._covered(record, stood)
            case RunState.SKIPPED:
                self._skipped(record)
            case RunState.CANCELLED:
                self._cancelled(record)
            case RunState.DEAD:
                self._dead(record)
            case _:
                assert record.attempts, _of(record, "succeeded without an attempt")
                assert record.attempts[-1].outcome is AttemptOutcome.SUCCEEDED, _of(
                    record, f"succeeded by an attempt that {record.attempts[-1].outcome}"
                )
        if record.trigger is Trigger.BACKFILL:
            return  # somebody wanted it long after it was due
        self._sent(record)
        if record.attempts:
            self._started(record)

    @cached_property
    def _next(self) -> dict[datetime, datetime]:
        """By occurrence the next one of the same version."""
        ats = [*self.owned]
        return {
            at: after
            for at, after in pairwise(ats)
            if self.owned[at].schedule_version == self.owned[after].schedule_version
        }

    def _not_early(self, record: Run) -> None:
        due_at = self.owned[record.key.scheduled_at].due_at(record.key.scheduled_at)
        begun = [attempt.started_at for attempt in record.attempts]
        for at in (record.started_at, record.dispatched_at, *begun):
            assert at is None or at >= due_at - CLOCKS_APART, _of(
                record, f"began at {at}, is due at {due_at}"
            )

    # What did not run

    def _covered(self, record: Run, stood: Sequence[datetime]) -> None:
        """Of a range record each occurrence was too late, by one policy for all of them."""
        now = record.finished_at
        assert now is not None, _of(record, "has no end")
        owner = self.owned[record.key.scheduled_at]
        if owner.state is JobState.PAUSED:
            return
        late = min(now - owner.due_at(at) for at in stood)
        assert late >= -_MOMENT, _of(record, f"skipped {-late} before it was due")
        rows = [(stood, now), *self._told_with(stood)]
        if not any(self._may_skip(row, at) for row, at in rows):
            raise AssertionError(_of(record, f"no policy skips it {late} after it was due"))

    def _told_with(self, stood: Sequence[datetime]) -> Iterator[tuple[list[datetime], datetime]]:
        """The rows of which *stood* is a part, and when a message told of them: a row is decided
        over once, though a record that stands in it parts what its executor writes.
        """
        version = self.owned[stood[0]].schedule_version
        for row, told_at in self.evidence.missed:
            if row.version == version and row.first <= stood[0] and stood[-1] <= row.last:
                yield (
                    [
                        at
                        for at, owner in self.owned.items()
                        if row.first <= at <= row.last and owner.schedule_version == version
                    ],
                    told_at,
                )

    def _may_skip(self, row: Sequence[datetime], now: datetime) -> bool:
        """Whether a policy let *row* be skipped at *now*."""
        owner = self.owned[row[0]]
        late = min(now - owner.due_at(at) for at in row)
        for job in self.evidence.in_force(now):
            window = job.definition.misfire.relevancy_window
            if window is not None and late >= window - _MOMENT:
                return True
            match job.definition.misfire.policy:
                case MisfirePolicy.SKIP if all(self._is_missed(at, now) for at in row):
                    return True
                case MisfirePolicy.RUN_LATEST if self._is_missed(row[0], now) and all(
                    self._is_followed(at, now) for at in row
                ):
                    return True
        return False

    def _is_missed(self, at: datetime, now: datetime) -> bool:
        owner = self.owned[at]
        in_pause = owner.resumed_at is not None and at <= owner.resumed_at
        waited_from = at + owner.definition.jitter_width
        return in_pause or now - waited_from >= MISSED_AFTER - _MOMENT

    def _is_followed(self, at: datetime, now: datetime) -> bool:
        """Whether a later occurrence of the same version was due by *now*."""
        owner, after = self.owned[at], self._next.get(at)
        if after is not None and owner.due_at(after) <= now + _MOMENT:
            return True
        # One that a change has cut off, which was not to be seen yet.
        of_version = [
            job
            for job in self.evidence.in_force(now)
            if job.schedule_version == owner.schedule_version
        ]
        following = [job.next_entry(at) for job in of_version]
        return any(entry is not None and entry.at <= now + _MOMENT for entry in following)

    def _skipped(self, record: Run) -> None:
        """An executor had it before it, and did not start it."""
        key, now = record.key, record.finished_at
        assert now is not None, _of(record, "has no end")
        assert not record.attempts, _of(record, "skipped, and has run")
        for job in self.evidence.in_force(now):
            due_at = job.due_at(key.scheduled_at)
            window = job.definition.misfire.relevancy_window
            if window is not None and now - due_at > window - _MOMENT:
                return
            match job.definition.overlap:
                # A run on request is in the way from its request on, and is not sent in the order
                # of the chain: one that waits may begin, or be skipped itself, after a later one
                # was skipped for it.
                case Overlap.SKIP if any(
                    _ended_after(run, due_at)
                    and (run.trigger is Trigger.MANUAL or _began_by(run, now))
                    for run in self._before(key)
                ):
                    return
                case Overlap.REPLACE if _replaced(job, key.scheduled_at, now + _MOMENT):
                    return
        raise AssertionError(_of(record, "no policy lets an executor skip it"))

    def _before(self, key: RunKey) -> Sequence[Run]:
        runs, ats = self._in_the_way
        return runs[: bisect_right(ats, key.scheduled_at - _MOMENT)]

    @cached_property
    def _in_the_way(self) -> tuple[Sequence[Run], Sequence[datetime]]:
        """What ran, or waits in no chain; and the instants of these."""
        known = sorted([*self.found, *self.evidence.vanished], key=lambda run: run.key.scheduled_at)
        runs = [run for run in known if _ran(run) or run.trigger is Trigger.MANUAL]
        return runs, [run.key.scheduled_at for run in runs]

    def _cancelled(self, record: Run) -> None:
        now = record.finished_at
        assert now is not None, _of(record, "has no end")
        if self.evidence.asked_to_cancel(record.key):
            return
        were = [*self.evidence.until(now)]
        if any(job.state is JobState.CANCELLED for job in were):
            return
        replaces = any(job.definition.overlap is Overlap.REPLACE for job in were)
        assert replaces, _of(record, "nobody asked for its end")
        newer = any(
            (key.job, key.uid) == (record.key.job, record.key.uid)
            and key.scheduled_at > record.key.scheduled_at
            # Of one that waited for its next attempt the end of the last one is on record.
            and (record.attempts or at <= now + _DECIDING)
            for key, at in self.evidence.sent.items()
        )
        assert newer, _of(record, "nobody asked for its end, and nothing replaced it")

    def _dead(self, record: Run) -> None:
        assert record.finished_at is not None, _of(record, "has no end")
        tried = [each for each in record.attempts if each.number > record.attempt_base]
        assert tried, _of(record, "died untried")
        last = tried[-1]
        assert last.outcome not in {None, AttemptOutcome.SUCCEEDED}, _of(
            record, f"died of an attempt that {last.outcome}"
        )
        counted = {each.number for each in tried if each.outcome is not AttemptOutcome.HANDED_BACK}
        # What could not be started at all will not be by another attempt.
        if last.outcome is AttemptOutcome.FAILED and last.exit_code is None:
            return
        policies = [job.definition.retry_policy for job in self.evidence.until(record.finished_at)]
        assert any(
            len(counted) >= policy.max_attempts
            or not _retries(policy, last.outcome, last.exit_code)
            for policy in policies
        ), _of(record, f"died of {last.outcome} after {len(counted)} attempts")

    # What ran

    def _sent(self, record: Run) -> None:
        """What a watcher sent was to run."""
        at, sent_at = record.key.scheduled_at, self.evidence.sent.get(record.key)
        if sent_at is None or not record.attempts:
            return
        owner = self.owned[at]
        assert sent_at >= owner.due_at(at) - CLOCKS_APART, _of(record, f"was sent at {sent_at}")
        decided_at = self.evidence.decided.get(record.key)
        paused_at = self._paused_at(owner, at)
        read_at = sent_at - _SENDING if decided_at is None else decided_at - _BEHIND
        if paused_at is not None and read_at <= paused_at:
            return  # the pause was not to be seen yet
        assert owner.state is not JobState.PAUSED, _of(record, "ran, and was due in a pause")
        now = decided_at or sent_at - _SENDING
        in_pause = owner.resumed_at is not None and at <= owner.resumed_at
        late = now - (at + owner.definition.jitter_width)
        after = self._next.get(at)
        is_latest = after is None or owner.due_at(after) > now
        for job in self.evidence.in_force(decided_at or sent_at):
            misfire = job.definition.misfire
            window = misfire.relevancy_window
            if window is not None and now - owner.due_at(at) > window:
                continue
            if not in_pause and late <= MISSED_AFTER:
                return
            if misfire.policy is MisfirePolicy.RUN_ALL:
                return
            if misfire.policy is MisfirePolicy.RUN_LATEST and is_latest:
                return
        raise AssertionError(_of(record, f"ran, and no policy sends it at {sent_at}"))

    def _paused_at(self, owner: Job, at: datetime) -> datetime | None:
        """When the pause was stored in which *at* was due, if it was."""
        if owner.state is not JobState.PAUSED and (
            owner.resumed_at is None or at > owner.resumed_at
        ):
            return None
        return self.evidence.written_at(
            lambda job: job.state is JobState.PAUSED and job.effective_from == owner.effective_from
        )

    def _started(self, record: Run) -> None:
        """It was in time when an executor had it before it first."""
        if len(record.attempts) == _ATTEMPTS_KEPT:
            return
        key, began_at = record.key, record.attempts[0].started_at
        windows = [
            (job.definition.misfire.relevancy_window, job.due_at(key.scheduled_at))
            for job in self.evidence.in_force(began_at)
        ]
        in_time = any(
            window is None or began_at - due_at <= window + _DECIDING for window, due_at in windows
        )
        assert in_time or not windows, _of(record, f"began at {began_at}, after its window")


def _of(record: Run, what: str) -> str:
    return f"{record.key.execution_id} is {record.state} ({record.reason}): {what}"


def _ran(run: Run) -> bool:
    return bool(run.attempts) or run.state in {RunState.SUCCEEDED, RunState.DEAD}


def _replaced(job: Job, at: datetime, now: datetime) -> bool:
    """Whether the next that is to run is due by *now*. What is skipped by request is not; nor is,
    under misfire SKIP, what was missed itself, or was due in a pause.
    """
    since = at
    if job.definition.misfire.policy is MisfirePolicy.SKIP:
        since = max(at, now - MISSED_AFTER - 2 * _MOMENT, job.resumed_at or at)
    newer = job.next_entry(since)
    while newer is not None and newer.occurs_at in job.skips:
        newer = job.next_entry(newer.occurs_at)
    return newer is not None and newer.at <= now


def _ended_after(run: Run, at: datetime) -> bool:
    """In the same instant counts: which came first, no record tells."""
    return run.finished_at is None or run.finished_at >= at


def _began_by(run: Run, at: datetime) -> bool:
    if not run.attempts or len(run.attempts) == _ATTEMPTS_KEPT:
        return True
    return run.attempts[0].started_at <= at + CLOCKS_APART


def _retries(policy: RetryPolicy, outcome: AttemptOutcome | None, exit_code: int | None) -> bool:
    """Whether *policy* has another attempt follow one that ended so."""
    codes = policy.retry_on.exit_codes
    if outcome not in policy.retry_on.states:
        return False
    return codes is None or outcome is not AttemptOutcome.FAILED or exit_code in codes
