"""What to do, and why. Pure: the same inputs give the same answer, and every answer carries its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from nextfire.domain.due import DueEntry, DueKind
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job, JobState, MisfirePolicy, Overlap, RetryPolicy
from nextfire.domain.message import ORDINARY, RunMessage
from nextfire.domain.run import (
    AttemptOutcome,
    Result,
    Run,
    RunState,
    Trigger,
    of_creation,
)

ORPHAN_AGE = timedelta(seconds=60)
"""How long an entry whose job (or version) is not seen is left, before it is taken to be an
orphan.
"""


MIN_RETRY_DELAY = timedelta(seconds=1)
"""A retry's entry is stored before its run is PENDING again. Were it dispatched in between, its
message would find the run RUNNING and wait for the lease's end."""


MISFIRE_AFTER = timedelta(seconds=60)
"""How late an occurrence may be noticed before the misfire policy decides over it."""

CLOCKS_DIFFER = timedelta(seconds=5)
"""By how much the clocks of watchers and executors may."""

MAX_OUTSTANDING = 20
"""Runs of one job that may wait for each other in the queue; the next one waits in the table."""


_WHY_SENT = {
    Trigger.SCHEDULE: "retry is due",
    Trigger.MANUAL: "run on request",
    Trigger.BACKFILL: "backfill on request",
}

_WITHOUT_EXECUTOR = frozenset({RunState.SKIPPED, RunState.CANCELLED})
"""What a run may become that no executor has had before it."""


class DueAction(StrEnum):
    """FIRE: send it and store the successor. COVER: put on record that it does not run, and store
    the successor. RESUME: end its job's pause. BACKFILL: go on with its job's backfill. DROP:
    delete it. LEAVE: look again later.
    """

    RESUME = "RESUME"
    BACKFILL = "BACKFILL"
    FIRE = "FIRE"
    COVER = "COVER"
    DROP = "DROP"
    LEAVE = "LEAVE"


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that do not run, from that of an entry to `until`: all of them, or all but the
    latest.
    """

    until: datetime
    but_latest: bool = False


@dataclass(frozen=True, slots=True)
class DueDecision:
    """What becomes of a due entry. `run` and `pool` are set for FIRE and COVER; `successor` at most
    for FIRE.

    `owner` is the job as it was in the entry's version, `owned_until` when that version ended;
    `missed` is set for COVER. What is to FIRE without an owner waits for no run before it.
    """

    action: DueAction
    reason: str
    run: RunKey | None = None
    dispatch: int = 1
    pool: str = ""
    successor: DueEntry | None = None
    exclusive: bool = False
    owner: Job | None = None
    owned_until: datetime | None = None
    missed: Missed | None = None


def decide_due(entry: DueEntry, job: Job | None, now: datetime) -> DueDecision:
    """Decide over an entry that is due, by its job as read; see the design of the tick.

    Anything but FIRE must be decided on a consistent read of the job: the caller reads again and
    asks again.
    """
    if entry.kind is DueKind.RETRY:
        key = RunKey(entry.job, entry.run_id)
        # One that was asked for has not had its turn yet.
        takes_turn = entry.trigger is Trigger.MANUAL and job is not None and job.uid == entry.uid
        return DueDecision(
            DueAction.FIRE,
            _WHY_SENT[entry.trigger],
            key,
            entry.dispatch,
            entry.pool,
            exclusive=entry.exclusive,
            owner=job if takes_turn else None,
        )
    if entry.kind is DueKind.RESUME:
        # It was stored with the pause, in one transaction: it is never newer than its job.
        if job is not None and job.resume_entry() == entry:
            return DueDecision(DueAction.RESUME, "the pause ends", owner=job)
        return DueDecision(DueAction.DROP, "the pause was ended, or its end put off")
    if entry.kind is DueKind.BACKFILL:
        # Stored with its job, as above.
        if job is not None and job.backfill_entry(entry.ordinal) == entry:
            return DueDecision(DueAction.BACKFILL, "the backfill goes on", owner=job)
        return DueDecision(DueAction.DROP, "the backfill was stopped")
    if job is not None and job.uid != entry.uid and entry.at <= job.created_at:
        # Nobody may take an id before all that was due of the job before is sent: if something is
        # left all the same, its executor puts it on record as that of a deleted job.
        key = RunKey(entry.job, run_id(entry.uid, entry.occurs_at))
        pool, exclusive = job.definition.target.pool, job.exclusive
        reason = "due before its job was deleted and made again"
        return DueDecision(DueAction.FIRE, reason, key, 1, pool, exclusive=exclusive)
    if job is None or job.uid != entry.uid:
        return _orphan(entry, now, "its job is not there")
    if entry.version > job.schedule_version:
        return _orphan(entry, now, f"its job has no schedule version {entry.version} yet")
    if entry.version == job.schedule_version:
        # A job that is not active got a version of its own when it ceased to be.
        return _of_version(entry, job, None, now, job.definition.target.pool)
    # A version owns its occurrences up to the change that ended it, however late they are seen.
    past = next((each for each in job.replaced if each.version == entry.version), None)
    pool = job.definition.target.pool
    if past and entry.occurs_at <= past.until:
        deleted = job.state is JobState.CANCELLED
        return _of_version(entry, job.as_of(past), past.until, now, pool, deleted=deleted)
    # One that was forgotten ended before the first that was not, and all that it owned was due.
    newer = (each.effective_from for each in job.replaced if each.version > entry.version)
    until = next(newer, job.effective_from)
    if past or entry.at > until:
        return DueDecision(DueAction.DROP, f"replaced by schedule version {job.schedule_version}")
    reason = f"due before the change of {isoformat(until)}"
    key = RunKey(entry.job, run_id(entry.uid, entry.occurs_at))
    return DueDecision(DueAction.FIRE, reason, key, 1, pool, exclusive=job.exclusive)


def _of_version(
    entry: DueEntry,
    owner: Job,
    owned_until: datetime | None,
    now: datetime,
    pool: str,
    *,
    deleted: bool = False,
) -> DueDecision:
    """Decide over an entry of the version that *owner* has, or had before it was *deleted*."""
    key = RunKey(entry.job, run_id(entry.uid, entry.occurs_at))
    successor = owned(owner.successor(entry), owned_until)
    missed, reason = decide_misfire(entry, owner, successor, now)
    # What was deleted does not run, and is put on record: so it waits for no run before it, whose
    # message somebody may have purged.
    if missed is not None:
        return DueDecision(
            DueAction.COVER,
            reason,
            key,
            pool=pool,
            exclusive=owner.exclusive and not deleted,
            owner=owner,
            owned_until=owned_until,
            missed=missed,
        )
    if owned_until is not None and reason is ORDINARY:
        reason = f"due before the change of {isoformat(owned_until)}"
    return DueDecision(
        DueAction.FIRE,
        reason,
        key,
        1,
        pool,
        successor,
        exclusive=owner.exclusive,
        owner=None if deleted else owner,
        owned_until=owned_until,
    )


def owned(entry: DueEntry | None, until: datetime | None) -> DueEntry | None:
    """*entry*, unless its occurrence comes after *until*, when its version ended."""
    ended = entry is not None and until is not None and entry.occurs_at > until
    return None if ended else entry


def decide_misfire(
    entry: DueEntry, job: Job, successor: DueEntry | None, now: datetime
) -> tuple[Missed | None, str]:
    """Whether the occurrence of *entry*, due by *now*, came too late to run: by the relevancy
    window, or by the misfire policy where it is later than `MISFIRE_AFTER` or was due in a pause.

    Args:
        entry: Of the schedule version that *job* has.
        job: Its job.
        successor: The entry that follows; None where none does.
        now: The instant of the decision.

    Returns:
        What does not run, if anything; and why, or why it runs.
    """
    if job.state is JobState.PAUSED:
        # Of a version that was a pause, and that no resuming but another change ended.
        return Missed(now), "due during a pause that a change of the job ended"
    late = now - entry.at
    misfire = job.definition.misfire
    if late <= MISFIRE_AFTER and job.resumed_at is None and misfire.relevancy_window_sec is None:
        return None, ORDINARY
    window = misfire.relevancy_window
    if window is not None and late > window:
        reason = f"{_spoken(late)} late; relevancyWindowSec is {_spoken(window)}"
        return Missed(_due_by(job, now - window)), reason
    in_pause = job.resumed_at is not None and entry.occurs_at <= job.resumed_at
    # Jitter may have put an earlier one off for longer: until then it had to wait for its turn.
    turn_by = entry.occurs_at + job.definition.jitter_width
    if now - turn_by <= MISFIRE_AFTER and not in_pause:
        return None, ORDINARY
    when = "due during a pause" if in_pause else f"{_spoken(late)} late"
    reason = f"{when}; misfire policy {misfire.policy}"
    match misfire.policy:
        case MisfirePolicy.RUN_ALL:
            return None, reason
        case MisfirePolicy.RUN_LATEST:
            # One whose successor is due too is not the latest.
            if successor is None or successor.at > now:
                return None, f"{reason}: the latest"
            return Missed(_due_by(job, now), but_latest=True), reason
        case MisfirePolicy.SKIP:
            late_since = now - MISFIRE_AFTER
            until = max(late_since, job.resumed_at) if in_pause and job.resumed_at else late_since
            return Missed(_due_by(job, until)), reason


def _due_by(job: Job, until: datetime) -> datetime:
    """An instant up to which all occurrences are due by *until*, whatever their jitter."""
    return until - job.definition.jitter_width


def _spoken(duration: timedelta) -> str:
    return f"{duration // timedelta(seconds=1)} s"


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    """Whether a run of a job whose runs wait for each other may join the queue; `cancel`: the run
    that it replaces.
    """

    joins: bool
    reason: str = ""
    cancel: Run | None = None


def decide_overlap(job: Job, occurs_at: datetime, before: Iterable[Run]) -> OverlapDecision:
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
    """
    waiting, end, latest = 0, occurs_at, None
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
        if alone and late <= MISFIRE_AFTER - CLOCKS_DIFFER:
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
        late = _spoken(now - due_at)
        return f"picked up {late} late; relevancyWindowSec is {_spoken(window)}"
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


def _orphan(entry: DueEntry, now: datetime, what: str) -> DueDecision:
    if now - entry.at < ORPHAN_AGE:
        return DueDecision(DueAction.LEAVE, what)
    return DueDecision(DueAction.DROP, f"{what}, {ORPHAN_AGE.seconds} s after it was due")


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
