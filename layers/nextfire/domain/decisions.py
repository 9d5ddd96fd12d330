"""Decisions about runs: pure functions from records and clock to an action and its reason.
Decisions about due entries are in `due_decisions`, those after an attempt in `endings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from itertools import islice

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import CLOCKS_DIFFER, in_seconds, isoformat
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.misfire import MISFIRE_AFTER
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import MisfirePolicy, Overlap, RetryPolicy
from nextfire.domain.run import Run, RunState, Trigger, runs_of_uid
from nextfire.domain.schedule import ScheduleType

MAX_OUTSTANDING = 20
"""Maximum number of a job's runs that wait for each other in the queue. Later runs wait in the
table."""

EARLIER = 5
"""Number of records, the latest before an occurrence, among which a range over it is looked for. It
is the latest one, except for a range that has records inside, of runs that executors claimed while
it was written. One page: under overload every run is late, and reads them.
"""

_WITHOUT_EXECUTOR = frozenset({RunState.SKIPPED, RunState.CANCELLED})
"""States that a run can reach without an executor."""


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    """Whether a run of a job with exclusive runs may be queued. `cancel`: the run it replaces."""

    joins: bool
    reason: str = ""
    cancel: Run | None = None


def decide_overlap(
    job: Job,
    occurs_at: datetime,
    before: Iterable[Run],
    *,
    missed_from: datetime | None = None,
) -> OverlapDecision:
    """Decide whether to dispatch the occurrence at *occurs_at* of a job whose overlap policy is
    not ALLOW.

    Args:
        job: The job in the occurrence's schedule version.
        occurs_at: The occurrence, or the instant at which a user requested the run.
        before: The records of earlier runs, latest first. Read up to the first record that an
            executor wrote: executors receive a message group in order, so earlier runs have been
            received, and later ones are still queued. Runs that a user requested are not part of
            that order: MANUAL runs count individually, BACKFILL runs do not count.
        missed_from: The first of the missed occurrences directly before it. They were never sent,
            so they do not count.
    """
    waiting, end, latest = 0, missed_from or occurs_at, None
    asked_for: list[Run] = []
    since = job.effective_from
    for looked_at, record in enumerate(runs_of_uid(before, job.uid, job.created_at), start=1):
        if record.trigger is Trigger.MANUAL:  # a range record may include its instant
            if not record.state.ended:
                asked_for.append(record)
                waiting += 1
        else:
            # Occurrences between two records have none, so no executor has received them.
            most = MAX_OUTSTANDING - waiting
            waiting += _sent_between(job, record.covers_until, end, at_most=most)
            end = min(end, record.key.scheduled_at)
            had = record.pool is not None or record.state not in _WITHOUT_EXECUTOR
            if had and not record.on_request:
                latest, since = record, end
                break
        if waiting >= MAX_OUTSTANDING or looked_at == 3 * MAX_OUTSTANDING:
            since = end  # far enough back: earlier runs have been received
            break
    waiting += _sent_between(job, since, end, at_most=MAX_OUTSTANDING - waiting)
    unended = [] if latest is None or latest.state.ended else [latest]
    if waiting + len(unended) >= MAX_OUTSTANDING:
        return OverlapDecision(False, f"{MAX_OUTSTANDING} earlier runs have not ended")
    unended += asked_for
    # A skipped occurrence replaces nothing.
    replaces = job.definition.overlap is Overlap.REPLACE and occurs_at not in job.skips
    if unended and replaces:
        # Runs queued behind the running one are decided when they are received.
        runs = next((run for run in unended if run.state is RunState.RUNNING), unended[0])
        return OverlapDecision(True, "overlap policy REPLACE: replaced by", runs)
    return OverlapDecision(True)


def _sent_between(job: Job, after: datetime, before: datetime, *, at_most: int) -> int:
    """Return how many occurrences between *after* and *before* have been sent or are about to be;
    0 if the job is not ACTIVE.
    """
    if job.state is not JobState.ACTIVE or job.definition.after:
        return 0  # with parents, it may wait for them
    return job.count_between(after, before, at_most=max(at_most, 0))


def decide_covered(
    job: Job, key: RunKey, now: datetime, before: Callable[[], Iterable[Run]]
) -> Run | None:
    """Return the range record that covers a received run, or None. Such a run does not start: its
    watcher died after sending it, and its successor decided that the occurrence was missed.

    Args:
        job: The job of the run.
        key: The run.
        now: The instant of the decision.
        before: Returns the records of earlier occurrences, latest first. Called only if the run is
            late enough to be covered.
    """
    if job.definition.type is ScheduleType.AFTER:
        return None  # its runs are not occurrences of a schedule
    at = key.scheduled_at
    in_pause = job.resumed_at is not None and at <= job.resumed_at
    if not in_pause and at > job.effective_from:  # not for occurrences of replaced versions
        late = now - job.due_at(at)
        if late <= CLOCKS_DIFFER:
            return None
        # A range that starts with an older occurrence can extend to one that is not late yet.
        alone = not job.count_between(at - MISFIRE_AFTER, at, at_most=1)
        window = job.definition.misfire.relevancy_window
        missed_after = MISFIRE_AFTER if window is None else min(window, MISFIRE_AFTER)
        if alone and late <= missed_after - CLOCKS_DIFFER:
            return None
    return range_over(key, before())


def range_over(key: RunKey, before: Iterable[Run]) -> Run | None:
    """Return the range record that includes the occurrence of *key*, or None. *before*: the
    records of earlier occurrences, latest first.
    """
    at = key.scheduled_at
    near = islice((r for r in before if r.trigger is not Trigger.MANUAL), EARLIER)
    return next((run for run in near if run.key.uid == key.uid and run.covers_until >= at), None)


def decide_pickup(
    job: Job,
    key: RunKey,
    now: datetime,
    before: Callable[[], Iterable[Run]],
    *,
    trigger: Trigger = Trigger.SCHEDULE,
    dispatched_at: datetime | None = None,
) -> str | None:
    """Return why a run that an executor receives for the first time must not start, or None.

    Args:
        job: The job of the run.
        key: The run, due by *now*.
        now: The instant of the decision.
        before: Returns the records of earlier runs, latest first. Called only if the overlap policy
            is SKIP.
        trigger: What created the run. MANUAL runs are never too late. BACKFILL runs wait for their
            turn, whatever the overlap policy.
        dispatched_at: When it was dispatched. Runs of jobs with parents are due then, for the
            overlap policy: before, they waited for their parents.
    """
    if trigger is Trigger.BACKFILL:
        return None
    asked_for = trigger is Trigger.MANUAL
    due_at = key.scheduled_at if asked_for else job.due_at(key.scheduled_at)
    window = job.definition.misfire.relevancy_window
    if window is not None and now - due_at > window and not asked_for:
        late = in_seconds(now - due_at)
        return f"picked up {late} late; relevancyWindowSec is {in_seconds(window)}"
    if job.definition.after:
        due_at = dispatched_at or due_at
    overlap = job.definition.overlap
    if overlap is Overlap.SKIP:
        for run in runs_of_uid(before(), job.uid, job.created_at):
            if run.trigger is Trigger.BACKFILL:
                continue
            if run.attempts or run.state not in _WITHOUT_EXECUTOR:
                over = run.finished_at is not None and run.finished_at <= due_at
                if run.state.ended and over:
                    return None
                return f"overlap policy SKIP: {run.key.execution_id} had not ended when it was due"
    # A later occurrence of a job with parents may have to wait for them.
    if overlap is Overlap.REPLACE and job.state is JobState.ACTIVE and not job.definition.after:
        since = key.scheduled_at
        if job.definition.misfire.policy is MisfirePolicy.SKIP:
            # An older occurrence may itself have been skipped: then nothing would run.
            since = max(since, now - MISFIRE_AFTER, job.resumed_at or since)
        newer = job.next_to_run(since)
        if newer is not None and job.due_at(newer) <= now:
            at = isoformat(newer)
            return f"overlap policy REPLACE: replaced by the occurrence at {at}"
    return None


def is_last(job: Job, run: Run) -> bool:
    """Whether *run* is the last occurrence of its job's schedule. False for a manual run, and for a
    requested run of an earlier version.
    """
    at = run.covers_until
    if run.trigger is Trigger.MANUAL or (run.on_request and at <= job.effective_from):
        return False
    return job.is_last(at)


class ClaimAction(StrEnum):
    """What an executor does with a message after its claim failed."""

    SETTLE = "SETTLE"  # the run has ended: repeat the follow-up writes, then acknowledge
    ACKNOWLEDGE = "ACKNOWLEDGE"  # a newer dispatch exists
    WAIT = "WAIT"  # redeliver at `until`
    TAKE_OVER = "TAKE_OVER"  # its worker is lost, attempts are left
    BURY = "BURY"  # its worker is lost, no attempts are left
    CANCEL = "CANCEL"  # cancel requested; it waits, or its worker is lost
    AGAIN = "AGAIN"  # it has become free: claim again


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """An action and its reason. `until` is set for WAIT only."""

    action: ClaimAction
    reason: str
    until: datetime | None = None


def decide_claim(
    run: Run, message: RunMessage, policy: RetryPolicy, now: datetime
) -> ClaimDecision:
    """Decide what to do with *message* after the claim of its *run* failed at *now*."""
    if run.state.ended:
        return ClaimDecision(ClaimAction.SETTLE, f"has ended {run.state}")
    if message.dispatch < run.dispatch:
        return ClaimDecision(
            ClaimAction.ACKNOWLEDGE, f"dispatch {message.dispatch} is older than {run.dispatch}"
        )
    if run.state is RunState.PENDING:
        if run.cancel_requested:
            return ClaimDecision(ClaimAction.CANCEL, "cancelled before its next attempt")
        if run.not_before is not None and run.not_before > now:
            return ClaimDecision(ClaimAction.WAIT, "not yet to be tried again", run.not_before)
        return ClaimDecision(ClaimAction.AGAIN, "became free meanwhile")
    if run.lease_until is not None and run.lease_until > now:
        return ClaimDecision(ClaimAction.WAIT, f"runs on {run.worker}", run.lease_until)
    if run.cancel_requested:
        reason = run.cancel_reason or "cancelled; its worker vanished"
        return ClaimDecision(ClaimAction.CANCEL, reason)
    lost = Result(AttemptOutcome.WORKER_LOST, "")
    if run.tries >= policy.max_attempts:
        return ClaimDecision(
            ClaimAction.BURY, f"worker lost on attempt {run.tries} of {policy.max_attempts}"
        )
    if not policy.retry_on.covers(lost):
        return ClaimDecision(ClaimAction.BURY, "worker lost; retryOn does not name WORKER_LOST")
    return ClaimDecision(ClaimAction.TAKE_OVER, f"the lease of {run.worker} lapsed")
