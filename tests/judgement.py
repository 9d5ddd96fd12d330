"""Judges whether the outcome of an occurrence was right, given the job's definition at that time.

It uses the documented rules (docs/guide/policies.md) and the recorded instants, none of the
product's decision code. If several definitions may have been read, one that permits it suffices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import MisfirePolicy, Overlap, RetryPolicy
from nextfire.domain.run import Run, RunState, Trigger
from tests.evidence import (
    ATTEMPTS_KEPT,
    CLOCKS_APART,
    DECIDING,
    Evidence,
    began_by,
    ended_after,
    on_request,
    ran,
)

MISSED_AFTER = timedelta(seconds=60)
"""From this lateness on, the misfire policy decides."""
_MOMENT = timedelta(milliseconds=1)  # recorded instants are truncated to milliseconds
_LONGEST_DEFERRAL = timedelta(minutes=16)
"""A run is skipped if its next attempt would begin after its relevancy window. The receiver of the
simulation asks for at most 15 minutes.
"""
_SENDING = timedelta(seconds=15)
"""Maximum time between reading a job, possibly stale by a moment, and sending its run, if the time
of the decision is unknown. Includes the time of a call without an answer.
"""
_BEHIND = timedelta(seconds=4)
"""Maximum staleness of reads and skew of clocks."""


@dataclass(frozen=True)
class Judge:
    """Judges the records of a job.

    `owned`: its occurrences, ascending, each with the job as it was in the owning version; `found`:
    its records.
    """

    owned: Mapping[datetime, Job]
    found: Sequence[Run]
    evidence: Evidence

    def judge(self, record: Run, covered: Sequence[datetime]) -> None:
        """Check that *record*, which has ended and covers *covered*, has a permitted outcome.

        Raises:
            AssertionError: The outcome is not permitted.
        """
        if record.skip_requested:  # whether the skip was requested is checked by the flows
            assert not record.attempts, _describe(record, "skipped, but has attempts")
            return
        self._not_early(record)
        match record.state:
            case RunState.SKIPPED if record.pool is None:
                self._covered(record, covered)
            case RunState.SKIPPED:
                self._skipped(record)
            case RunState.CANCELLED:
                self._cancelled(record)
            case RunState.DEAD:
                self._dead(record)
            case _:
                assert record.attempts, _describe(record, "succeeded without an attempt")
                assert record.attempts[-1].outcome is AttemptOutcome.SUCCEEDED, _describe(
                    record, f"succeeded, but its last attempt {record.attempts[-1].outcome}"
                )
        if record.trigger is Trigger.BACKFILL:
            return  # a backfill runs long after its occurrences were due
        self._sent(record)
        if record.attempts:
            self._started(record)

    @cached_property
    def _next(self) -> dict[datetime, datetime]:
        """Each occurrence's successor in the same version."""
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
            assert at is None or at >= due_at - CLOCKS_APART, _describe(
                record, f"began at {at}, before it was due at {due_at}"
            )

    # What did not run

    def _covered(self, record: Run, covered: Sequence[datetime]) -> None:
        """Every occurrence of a range record was too late under one policy."""
        now = record.finished_at
        assert now is not None, _describe(record, "finished_at is missing")
        owner = self.owned[record.key.scheduled_at]
        if owner.state is JobState.PAUSED:
            return
        late = min(now - (at if _in_pause(owner, at) else owner.due_at(at)) for at in covered)
        assert late >= -_MOMENT, _describe(record, f"skipped {-late} before it was due")
        rows = [(covered, now), *self._reported_with(covered)]
        if not any(self._may_skip(row, at) for row, at in rows):
            raise AssertionError(
                _describe(record, f"no policy permits skipping it {late} after it was due")
            )

    def _reported_with(
        self, covered: Sequence[datetime]
    ) -> Iterator[tuple[list[datetime], datetime]]:
        """The reported ranges that contain *covered*, and when they were sent. A range is decided
        once, but an existing record within it splits what the executor writes.
        """
        version = self.owned[covered[0]].schedule_version
        for row, sent_at in self.evidence.missed:
            if row.version == version and row.first <= covered[0] and covered[-1] <= row.last:
                yield (
                    [
                        at
                        for at, owner in self.owned.items()
                        if row.first <= at <= row.last and owner.schedule_version == version
                    ],
                    sent_at,
                )

    def _may_skip(self, row: Sequence[datetime], now: datetime) -> bool:
        """Whether a policy permitted skipping *row* at *now*."""
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
        owner, late_from = self.owned[at], at + self.owned[at].definition.jitter_width
        return _in_pause(owner, at) or now - late_from >= MISSED_AFTER - _MOMENT

    def _is_followed(self, at: datetime, now: datetime) -> bool:
        """Whether a later occurrence of the same version was due by *now*."""
        owner, after = self.owned[at], self._next.get(at)
        if after is not None and owner.due_at(after) <= now + _MOMENT:
            return True
        # Or an occurrence that a later change removed, if the change was not yet visible.
        of_version = [
            job
            for job in self.evidence.in_force(now)
            if job.schedule_version == owner.schedule_version
        ]
        following = [job.next_entry(at) for job in of_version]
        return any(entry is not None and entry.at <= now + _MOMENT for entry in following)

    def _skipped(self, record: Run) -> None:
        """An executor received the run and did not start it; or a destination was not available
        until the run's relevancy window had passed.
        """
        key, now = record.key, record.finished_at
        assert now is not None, _describe(record, "finished_at is missing")
        deferred = all(each.outcome is AttemptOutcome.DEFERRED for each in record.attempts)
        assert deferred, _describe(record, "skipped, but has attempts")
        for job in self.evidence.in_force(now):
            due_at = job.due_at(key.scheduled_at)
            window = job.definition.misfire.relevancy_window
            until_next = _LONGEST_DEFERRAL if record.attempts else _MOMENT
            if window is not None and now - due_at > window - until_next:
                return
            match job.definition.overlap:
                # A manual or redriven run counts as running from its request on, and is not sent in
                # the order of the chain: while it waits, a later run may be skipped because of it,
                # and it may still begin or be skipped itself afterwards.
                case Overlap.SKIP if any(
                    ended_after(run, due_at) and (on_request(run) or began_by(run, now))
                    for run in self._before(key)
                ):
                    return
                case Overlap.REPLACE if _replaced(job, key.scheduled_at, now + _MOMENT):
                    return
        raise AssertionError(_describe(record, "no policy permits an executor to skip it"))

    def _before(self, key: RunKey) -> Sequence[Run]:
        runs, ats = self._overlap_candidates
        return runs[: bisect_right(ats, key.scheduled_at - _MOMENT)]

    @cached_property
    def _overlap_candidates(self) -> tuple[Sequence[Run], Sequence[datetime]]:
        """Runs that count for overlap: those that ran, and those that users started, which are in
        no chain; and their scheduled instants.
        """
        known = sorted([*self.found, *self.evidence.vanished], key=lambda run: run.key.scheduled_at)
        runs = [run for run in known if ran(run) or on_request(run)]
        return runs, [run.key.scheduled_at for run in runs]

    def _cancelled(self, record: Run) -> None:
        now = record.finished_at
        assert now is not None, _describe(record, "finished_at is missing")
        if self.evidence.asked_to_cancel(record.key):
            return
        were = [*self.evidence.until(now)]
        if any(job.state is JobState.CANCELLED for job in were) or self.evidence.removed_by(now):
            return
        replaces = any(job.definition.overlap is Overlap.REPLACE for job in were)
        assert replaces, _describe(record, "cancelled without a request")
        newer = any(
            (key.job, key.uid) == (record.key.job, record.key.uid)
            and key.scheduled_at > record.key.scheduled_at
            # While a run waited for its retry, the record has the end of the last attempt.
            and (record.attempts or at <= now + DECIDING)
            for key, at in self.evidence.sent.items()
        )
        assert newer, _describe(
            record, "cancelled without a request or a newer run that replaces it"
        )

    def _dead(self, record: Run) -> None:
        assert record.finished_at is not None, _describe(record, "finished_at is missing")
        tried = [each for each in record.attempts if each.number > record.attempt_base]
        assert tried, _describe(record, "DEAD without an attempt")
        last = tried[-1]
        assert last.outcome not in {None, AttemptOutcome.SUCCEEDED}, _describe(
            record, f"DEAD, but its last attempt {last.outcome}"
        )
        counted = {each.number for each in tried if each.outcome is None or each.outcome.counts}
        # A script that cannot be started at all is not retried.
        if last.outcome is AttemptOutcome.FAILED and last.exit_code is None:
            return
        policies = [job.definition.retry_policy for job in self.evidence.until(record.finished_at)]
        assert any(
            len(counted) >= policy.max_attempts
            or not _retries(policy, last.outcome, last.exit_code)
            for policy in policies
        ), _describe(
            record, f"DEAD by {last.outcome} after {len(counted)} attempts, with retries left"
        )

    # What ran

    def _sent(self, record: Run) -> None:
        """A run that a watcher sent was to be sent under the policies."""
        at, sent_at = record.key.scheduled_at, self.evidence.sent.get(record.key)
        if sent_at is None or not record.attempts:
            return
        owner = self.owned[at]
        assert sent_at >= owner.due_at(at) - CLOCKS_APART, _describe(
            record, f"was sent at {sent_at}"
        )
        decided_at = self.evidence.decided.get(record.key)
        paused_at = self._paused_at(owner, at)
        read_at = sent_at - _SENDING if decided_at is None else decided_at - _BEHIND
        if paused_at is not None and read_at <= paused_at:
            return  # the pause was not visible yet
        assert owner.state is not JobState.PAUSED, _describe(
            record, "ran, but was due during a pause"
        )
        now = decided_at or sent_at - _SENDING
        late = now - (at + owner.definition.jitter_width)
        after = self._next.get(at)
        is_latest = after is None or owner.due_at(after) > now
        for job in self.evidence.in_force(decided_at or sent_at):
            misfire = job.definition.misfire
            window = misfire.relevancy_window
            if window is not None and now - owner.due_at(at) > window:
                continue
            if not _in_pause(owner, at) and late <= MISSED_AFTER:
                return
            if misfire.policy is MisfirePolicy.RUN_ALL:
                return
            if misfire.policy is MisfirePolicy.RUN_LATEST and is_latest:
                return
        raise AssertionError(
            _describe(record, f"ran, but no policy permits sending it at {sent_at}")
        )

    def _paused_at(self, owner: Job, at: datetime) -> datetime | None:
        """When the pause during which *at* was due was stored, or None."""
        if owner.state is not JobState.PAUSED and not _in_pause(owner, at):
            return None
        return self.evidence.written_at(
            lambda job: job.state is JobState.PAUSED and job.effective_from == owner.effective_from
        )

    def _started(self, record: Run) -> None:
        """The first attempt began within the relevancy window, unless a redrive began it."""
        if len(record.attempts) == ATTEMPTS_KEPT or record.restarted:
            return
        key, began_at = record.key, record.attempts[0].started_at
        windows = [
            (job.definition.misfire.relevancy_window, job.due_at(key.scheduled_at))
            for job in self.evidence.in_force(began_at)
        ]
        in_time = any(
            window is None or began_at - due_at <= window + DECIDING for window, due_at in windows
        )
        assert in_time or not windows, _describe(
            record, f"began at {began_at}, after its relevancy window"
        )


def _describe(record: Run, what: str) -> str:
    return f"{record.key.execution_id} is {record.state} ({record.reason}): {what}"


def _in_pause(owner: Job, at: datetime) -> bool:
    """Whether *at* lies in a pause that has ended, whatever its jitter."""
    return owner.resumed_at is not None and at <= owner.resumed_at


def _replaced(job: Job, at: datetime, now: datetime) -> bool:
    """Whether the next occurrence that runs is due by *now*. Occurrences skipped by request do not
    count; nor, under misfire SKIP, do those that were missed or due during a pause.
    """
    since = at
    if job.definition.misfire.policy is MisfirePolicy.SKIP:
        since = max(at, now - MISSED_AFTER - 2 * _MOMENT, job.resumed_at or at)
    newer = job.next_entry(since)
    while newer is not None and newer.occurs_at in job.skips:
        newer = job.next_entry(newer.occurs_at)
    return newer is not None and newer.at <= now


def _retries(policy: RetryPolicy, outcome: AttemptOutcome | None, exit_code: int | None) -> bool:
    """Whether *policy* retries an attempt that ended with *outcome*."""
    codes = policy.retry_on.exit_codes
    if outcome not in policy.retry_on.states:
        return False
    return codes is None or outcome is not AttemptOutcome.FAILED or exit_code in codes
