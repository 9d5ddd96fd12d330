"""What becomes of a due entry, and why. Pure, as `decisions`.

A decision is one of a few types, each with just what its action needs:

- `Fire`: send the occurrence's run, store the successor. What was missed before it is told in the
  same message, and put on record by whoever carries it out.
- `Resend`: send the next dispatch of a run.
- `Cover`: nothing of the job is to run now; put on record what does not, store what follows.
- `Resume`, `GoOn`: end the job's pause, go on with its backfill.
- `Drop`: delete the entry. `Leave`: look again later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nextfire.domain.due import BackfillEntry, DispatchEntry, DueEntry, FireEntry, ResumeEntry
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import in_seconds, isoformat
from nextfire.domain.job import Job, JobState, MisfirePolicy
from nextfire.domain.message import MAX_RANGES, ORDINARY, SkippedRange
from nextfire.domain.run import Trigger

ORPHAN_AGE = timedelta(seconds=60)
"""How long an entry whose job (or version) is not seen is left, before it is taken to be an
orphan.
"""

MISFIRE_AFTER = timedelta(seconds=60)
"""How late an occurrence may be noticed before the misfire policy decides over it."""

_WHY_SENT = {
    Trigger.SCHEDULE: "retry is due",
    Trigger.MANUAL: "run on request",
    Trigger.BACKFILL: "backfill on request",
}


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that do not run, from that of an entry to `until`: all of them, or all but the
    latest.
    """

    until: datetime
    but_latest: bool = False


@dataclass(frozen=True, slots=True)
class Fire:
    """Send `run`, which is due at `due_at`, and store `successor`, None after the last.

    `owner` is the job as it was in the entry's version; without one the run waits for no other.
    `missed`: what was due before it and does not run; `cover_first`: how to put that on record
    before anything is sent.
    """

    run: RunKey
    due_at: datetime
    pool: str
    reason: str
    successor: FireEntry | None = None
    exclusive: bool = False
    owner: Job | None = None
    missed: tuple[SkippedRange, ...] = ()
    cover_first: Cover | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Send dispatch number `dispatch` of `run`. `cause`: SCHEDULE, it is to be tried again; MANUAL
    or BACKFILL, the run was asked for. `owner`: of one that was asked for and has not had its turn.
    """

    run: RunKey
    dispatch: int
    pool: str
    cause: Trigger
    exclusive: bool = False
    owner: Job | None = None

    @property
    def reason(self) -> str:
        return _WHY_SENT[self.cause]


@dataclass(frozen=True, slots=True)
class Cover:
    """Put on record that what was `missed` does not run, then store what follows.

    `owner` is the job as it was in the entry's version, `owned_until` when that version ended; None
    if it has not. `pool`, `exclusive`: of the entry's own run, which waits for room and its turn
    though it does not run: what was sent before it is to be on record first. `next_at`: when the
    job's next occurrence is due that may run; None if there is none.
    """

    missed: Missed
    reason: str
    owner: Job
    owned_until: datetime | None = None
    run: RunKey | None = None
    pool: str = ""
    exclusive: bool = False
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """End the pause of `job`, as of the entry's instant."""

    job: Job


@dataclass(frozen=True, slots=True)
class GoOn:
    """Continue the backfill of `job` where `entry` says."""

    entry: BackfillEntry
    job: Job


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete the entry."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Look again later."""

    reason: str


Sends = Fire | Resend
Decision = Fire | Resend | Cover | Resume | GoOn | Drop | Leave


def decide_due(entry: DueEntry, job: Job | None, now: datetime) -> Decision:
    """Decide over an entry that is due, by its job as read.

    Anything but `Resend`, and a `Fire` that misses nothing, must be decided on a consistent read of
    the job: the caller reads again and asks again.
    """
    match entry:
        case DispatchEntry():
            # One that was asked for has not had its turn yet.
            waits = entry.trigger is Trigger.MANUAL and job is not None and job.uid == entry.uid
            return Resend(
                RunKey(entry.job, entry.run_id),
                entry.dispatch,
                entry.pool,
                entry.trigger,
                exclusive=entry.exclusive,
                owner=job if waits else None,
            )
        case ResumeEntry():
            # It was stored with the pause, in one transaction: it is never newer than its job.
            if job is not None and job.resume_entry() == entry:
                return Resume(job)
            return Drop("the pause was ended, or its end put off")
        case BackfillEntry():
            # Stored with its job, as above.
            if job is not None and job.backfill_entry(entry.ordinal) == entry:
                return GoOn(entry, job)
            return Drop("the backfill was stopped")
        case FireEntry():
            return _decide_fire(entry, job, now)


def is_certain(decision: Decision) -> bool:
    """Whether it holds though the job was read by an eventually consistent read."""
    return isinstance(decision, Resend) or (isinstance(decision, Fire) and not decision.missed)


def _decide_fire(entry: FireEntry, job: Job | None, now: datetime) -> Decision:
    if job is not None and job.uid != entry.uid and entry.at <= job.created_at:
        # Nobody may take an id before all that was due of the job before is sent: if something is
        # left all the same, its executor puts it on record as that of a deleted job.
        return _alone(entry, job, "due before its job was deleted and made again")
    if job is None or job.uid != entry.uid:
        return _orphan(entry, now, "its job is not there")
    if entry.version > job.schedule_version:
        return _orphan(entry, now, f"its job has no schedule version {entry.version} yet")
    if entry.version == job.schedule_version:
        # A job that is not active got a version of its own when it ceased to be.
        return _of_version(entry, job, None, now, job.definition.target.pool)
    # A version owns its occurrences up to the change that ended it, however late they are seen.
    past = next((each for each in job.replaced if each.version == entry.version), None)
    if past and entry.occurs_at <= past.until:
        pool, deleted = job.definition.target.pool, job.state is JobState.CANCELLED
        return _of_version(entry, job.as_of(past), past.until, now, pool, deleted=deleted)
    # One that was forgotten ended before the first that was not, and all that it owned was due.
    newer = (each.effective_from for each in job.replaced if each.version > entry.version)
    until = next(newer, job.effective_from)
    if past or entry.at > until:
        return Drop(f"replaced by schedule version {job.schedule_version}")
    return _alone(entry, job, f"due before the change of {isoformat(until)}")


def _alone(entry: FireEntry, job: Job, reason: str) -> Fire:
    """Send the occurrence of *entry*, of whose version *job* knows nothing any more."""
    key = RunKey(entry.job, run_id(entry.uid, entry.occurs_at))
    return Fire(key, entry.at, job.definition.target.pool, reason, exclusive=job.exclusive)


def _of_version(
    entry: FireEntry,
    owner: Job,
    owned_until: datetime | None,
    now: datetime,
    pool: str,
    *,
    deleted: bool = False,
) -> Fire | Cover:
    """Decide over an entry of the version that *owner* has, or had before it was *deleted*.

    What is missed is passed over until an occurrence is to run, or none is due any more: so a job
    that is late has its latest run with the same step that leaves the others out.
    """
    skipped: list[SkippedRange] = []
    cover: Cover | None = None
    at: FireEntry = entry
    while True:
        successor = owned(owner.successor(at), owned_until)
        missed, reason = decide_misfire(at, owner, successor, now)
        if missed is None:
            break
        row = _row(at, owner, missed, owned_until, reason)
        following = owned(owner.following(row.last, at.ordinal + row.count - 1), owned_until)
        # What was deleted does not run, and is put on record: so it waits for no run before it,
        # whose message somebody may have purged.
        cover = cover or Cover(
            missed,
            reason,
            owner,
            owned_until,
            RunKey(entry.job, run_id(entry.uid, entry.occurs_at)),
            pool,
            exclusive=owner.exclusive and not deleted,
        )
        skipped.append(row)
        if following is None or following.at > now or len(skipped) > MAX_RANGES:
            return replace(cover, next_at=None if following is None else following.at)
        at = following
    if owned_until is not None and reason is ORDINARY:
        reason = f"due before the change of {isoformat(owned_until)}"
    return Fire(
        RunKey(entry.job, run_id(entry.uid, at.occurs_at)),
        at.at,
        pool,
        reason,
        successor,
        exclusive=owner.exclusive,
        owner=None if deleted else owner,
        missed=tuple(skipped),
        cover_first=cover,
    )


def _row(
    entry: FireEntry, owner: Job, missed: Missed, owned_until: datetime | None, reason: str
) -> SkippedRange:
    last, count = missed_from(entry, owner, missed, owned_until)
    return SkippedRange(
        first=entry.occurs_at,
        last=last,
        count=count,
        version=entry.version,
        ordinal=entry.ordinal,
        reason=reason,
    )


def missed_from(
    entry: FireEntry, owner: Job, missed: Missed, owned_until: datetime | None
) -> tuple[datetime, int]:
    """The last occurrence that is *missed* from that of *entry* on, and how many there are."""
    stretch = owner.stretch(entry, min(missed.until, owned_until or missed.until))
    if missed.but_latest and stretch.before_last is not None:
        return stretch.before_last, stretch.count - 1
    return stretch.last, stretch.count


def owned(entry: FireEntry | None, until: datetime | None) -> FireEntry | None:
    """*entry*, unless its occurrence comes after *until*, when its version ended."""
    ended = entry is not None and until is not None and entry.occurs_at > until
    return None if ended else entry


def held_as(entry: DueEntry, successor: FireEntry | None, now: datetime) -> FireEntry | None:
    """*successor*, which came due by *now* while it waited for what was held back before it."""
    late = successor is not None and successor.at <= now and entry.held
    return replace(successor, held=True) if late and successor is not None else successor


def decide_misfire(
    entry: FireEntry, job: Job, successor: FireEntry | None, now: datetime
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
        reason = f"{in_seconds(late)} late; relevancyWindowSec is {in_seconds(window)}"
        return Missed(_due_by(job, now - window)), reason
    in_pause = job.resumed_at is not None and entry.occurs_at <= job.resumed_at
    # Jitter may have put an earlier one off for longer: until then it had to wait for its turn.
    turn_by = entry.occurs_at + job.definition.jitter_width
    if now - turn_by <= MISFIRE_AFTER and not in_pause:
        return None, ORDINARY
    when = "due during a pause" if in_pause else f"{in_seconds(late)} late"
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


def _orphan(entry: FireEntry, now: datetime, what: str) -> Leave | Drop:
    if now - entry.at < ORPHAN_AGE:
        return Leave(what)
    return Drop(f"{what}, {ORPHAN_AGE.seconds} s after it was due")
