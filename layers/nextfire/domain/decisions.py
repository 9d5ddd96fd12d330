"""What to do, and why. Pure: the same inputs give the same answer, and every answer carries its
reason. Decisions over due entries are in `due_decisions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from nextfire.domain.due_decisions import MISFIRE_AFTER
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import in_seconds, isoformat
from nextfire.domain.job import Job, JobState, MisfirePolicy, Overlap, RetryPolicy
from nextfire.domain.message import RunMessage
from nextfire.domain.run import (
    AttemptOutcome,
    Result,
    Run,
    RunState,
    Trigger,
    of_creation,
)

MIN_RETRY_DELAY = timedelta(seconds=1)
"""A retry's entry is stored before its run is PENDING again. Were it dispatched in between, its
message would find the run RUNNING and wait for the lease's end."""


CLOCKS_DIFFER = timedelta(seconds=5)
"""By how much the clocks of watchers and executors may."""

MAX_OUTSTANDING = 20
"""Runs of one job that may wait for each other in the queue; the next one waits in the table."""


_WITHOUT_EXECUTOR = frozenset({RunState.SKIPPED, RunState.CANCELLED})
"""What a run may become that no executor has had before it."""


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    """Whether a run of a job whose runs wait for each other may join the queue; `cancel`: the run
    that it replaces.
    """

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
    """Decide over the dispatch of the occurrence at *occurs_at* of a job whose overlap policy is
    not ALLOW.

    Args:
        job: The job, as it was in the occurrence's version.
        occurs_at: The occurrence, or the instant at which a run was asked for.
        before: The records of earlier runs, the latest first. They are looked at up to the
            first that an executor wrote: runs of one message group come to executors in order, so
            what was due before that has been there, and what was due after it waits. Those that
            somebody asked for are not of that row: a MANUAL one counts for itself, and a BACKFILL,
            which makes up for the past, does not count.
        missed_from: The first of the occurrences that were missed just before it. They were never
            sent, so they do not count.
    """
    waiting, end, latest = 0, missed_from or occurs_at, None
    asked_for: list[Run] = []
    since = job.effective_from
    for looked_at, record in enumerate(of_creation(before, job.uid, job.created_at)):
        if record.trigger is Trigger.MANUAL:  # even a range may lie around it
            if not record.state.ended:
                asked_for.append(record)
                waiting += 1
        else:
            # What lies between two records has none, and so has not been there.
            most = MAX_OUTSTANDING - waiting
            waiting += _sent_between(job, record.covers_until, end, at_most=most)
            end = min(end, record.key.scheduled_at)
            had = record.pool is not None or record.state not in _WITHOUT_EXECUTOR
            if had and not record.on_request:
                latest, since = record, end
                break
        if waiting >= MAX_OUTSTANDING or looked_at == 3 * MAX_OUTSTANDING:
            since = end  # far enough back: what was due before has been there
            break
    waiting += _sent_between(job, since, end, at_most=MAX_OUTSTANDING - waiting)
    unended = [] if latest is None or latest.state.ended else [latest]
    if waiting + len(unended) >= MAX_OUTSTANDING:
        return OverlapDecision(False, f"{MAX_OUTSTANDING} earlier runs have not ended")
    unended += asked_for
    # What is to be skipped replaces nothing.
    replaces = job.definition.overlap is Overlap.REPLACE and occurs_at not in job.skips
    if unended and replaces:
        # What is behind the one that runs is looked at when its own turn comes.
        runs = next((run for run in unended if run.state is RunState.RUNNING), unended[0])
        return OverlapDecision(True, "overlap policy REPLACE: replaced by", runs)
    return OverlapDecision(True)


def _sent_between(job: Job, after: datetime, before: datetime, *, at_most: int) -> int:
    """How many occurrences between the two have been sent, or are about to be: none in a pause, nor
    after the last.
    """
    if job.state is not JobState.ACTIVE:
        return 0
    return job.count_between(after, before, at_most=max(at_most, 0))


def decide_covered(
    job: Job, key: RunKey, now: datetime, before: Callable[[], Iterable[Run]]
) -> Run | None:
    """The range record that says that a run which an executor has before it does not run: it was
    sent, and then missed, for whoever sent it died before that was known. None if there is none.

    Args:
        job: Its job.
        key: The run.
        now: The instant of the decision.
        before: Brings the records of earlier occurrences, the latest first. Asked only where the
            run is so late that there may be a range.
    """
    at = key.scheduled_at
    in_pause = job.resumed_at is not None and at <= job.resumed_at
    if not in_pause and at > job.effective_from:  # of a replaced version less is known
        late = now - job.due_at(at)
        if late <= CLOCKS_DIFFER:
            return None
        # A range that begins with an older one may reach to one that is not late yet itself.
        alone = not job.count_between(at - MISFIRE_AFTER, at, at_most=1)
        window = job.definition.misfire.relevancy_window
        missed_after = MISFIRE_AFTER if window is None else min(window, MISFIRE_AFTER)
        if alone and late <= missed_after - CLOCKS_DIFFER:
            return None
    return range_over(key, before())


def range_over(key: RunKey, before: Iterable[Run]) -> Run | None:
    """The range record that stands for the occurrence of *key*, too; None if there is none.
    *before*: the records of earlier occurrences, the latest first.
    """
    at = key.scheduled_at
    near = islice((r for r in before if r.trigger is not Trigger.MANUAL), MAX_OUTSTANDING)
    return next((run for run in near if run.key.uid == key.uid and run.covers_until >= at), None)


def decide_pickup(
    job: Job,
    key: RunKey,
    now: datetime,
    before: Callable[[], Iterable[Run]],
    *,
    trigger: Trigger = Trigger.SCHEDULE,
) -> str | None:
    """Why a run that an executor has before it for the first time is not to start; None if it is.

    Args:
        job: Its job.
        key: The run, of an occurrence that is due by *now*.
        now: The instant of the decision.
        before: Brings the records of earlier runs, the latest first. Asked only where the
            overlap policy is SKIP.
        trigger: What made it. What somebody asked for is never too late; and a BACKFILL waits for
            its turn, whatever the overlap policy.
    """
    if trigger is Trigger.BACKFILL:
        return None
    asked_for = trigger is Trigger.MANUAL
    due_at = key.scheduled_at if asked_for else job.due_at(key.scheduled_at)
    window = job.definition.misfire.relevancy_window
    if window is not None and now - due_at > window and not asked_for:
        late = in_seconds(now - due_at)
        return f"picked up {late} late; relevancyWindowSec is {in_seconds(window)}"
    overlap = job.definition.overlap
    if overlap is Overlap.SKIP:
        for run in of_creation(before(), job.uid, job.created_at):
            if run.trigger is Trigger.BACKFILL:
                continue
            if run.attempts or run.state not in _WITHOUT_EXECUTOR:
                over = run.finished_at is not None and run.finished_at <= due_at
                if run.state.ended and over:
                    return None
                return f"overlap policy SKIP: {run.key.execution_id} had not ended when it was due"
    if overlap is Overlap.REPLACE and job.state is JobState.ACTIVE:
        since = key.scheduled_at
        if job.definition.misfire.policy is MisfirePolicy.SKIP:
            # An older one may have been skipped itself: then nothing would run.
            since = max(since, now - MISFIRE_AFTER, job.resumed_at or since)
        newer = job.next_to_run(since)
        if newer is not None and job.due_at(newer) <= now:
            at = isoformat(newer)
            return f"overlap policy REPLACE: replaced by the occurrence at {at}"
    return None


class ClaimAction(StrEnum):
    """What an executor does with a message whose run could not simply be taken."""

    SETTLE = "SETTLE"  # the run has ended: do what follows (again), then acknowledge
    ACKNOWLEDGE = "ACKNOWLEDGE"  # an older dispatch: a newer one carries the run
    WAIT = "WAIT"  # come again at `until`
    TAKE_OVER = "TAKE_OVER"  # its worker vanished, attempts are left
    BURY = "BURY"  # its worker vanished, attempts are used up
    CANCEL = "CANCEL"  # it was to be cancelled; it waits, or its worker vanished
    AGAIN = "AGAIN"  # it is free after all: claim again


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """`until` is set for WAIT only."""

    action: ClaimAction
    reason: str
    until: datetime | None = None


def decide_claim(
    run: Run, message: RunMessage, policy: RetryPolicy, now: datetime
) -> ClaimDecision:
    """Decide over *message* when its run's record, *run*, did not let itself be claimed at
    *now*.
    """
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


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run goes on after an attempt: it ends in `state`, or (PENDING) is tried again at
    `retry_at`.
    """

    state: RunState
    retry_at: datetime | None = None


def decide_ending(run: Run, result: Result, policy: RetryPolicy, now: datetime) -> Ending:
    """What the outcome of an attempt makes of its run."""
    if result.outcome is AttemptOutcome.SUCCEEDED:
        return Ending(RunState.SUCCEEDED)
    if run.cancel_requested or result.outcome is AttemptOutcome.CANCELLED:
        return Ending(RunState.CANCELLED)
    if result.permanent or run.tries >= policy.max_attempts or not policy.retry_on.covers(result):
        return Ending(RunState.DEAD)
    delay = policy.delay(run.tries, seed=run.key.execution_id)
    return Ending(RunState.PENDING, now + max(delay, MIN_RETRY_DELAY))
