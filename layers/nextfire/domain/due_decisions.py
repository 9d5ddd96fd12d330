"""Decisions on due entries, with reasons. Pure, like `decisions`.

Each type of decision has only the fields that its action needs:

- `Fire`: send the run of the occurrence and store the successor. The message lists the occurrences
  that were missed before it; the executor records them.
- `Resend`: send the next dispatch of a run.
- `Cover`: send nothing; record the missed occurrences and store the next entry.
- `Move`: the time zone rules have moved the occurrence; store its entry where it is now.
- `Resume`, `ContinueDecision`: end the pause of the job; continue its backfill.
- `Drop`: delete the entry. `Leave`: retry later.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, replace
from nextfire.domain.due import BackfillEntry, DispatchEntry, DueEntry, FireEntry, ResumeEntry
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import CLOCKS_DIFFER, isoformat
from nextfire.domain.job import Job
from nextfire.domain.message import MAX_RANGES, ORDINARY, TIME_DISPATCH, SkippedRange
from nextfire.domain.misfire import decide_misfire
from nextfire.domain.missed import Missed, missed_row, without_skips
from nextfire.domain.occurrences import JobState, owned
from nextfire.domain.run import Trigger
from nextfire.domain.zone_moves import Move, decide_move

ORPHAN_AGE = timedelta(seconds=60)
"""How long after its due instant an entry whose job (or schedule version) is not found is kept.
Then it is an orphan.
"""

_WHY_SENT = {
    Trigger.SCHEDULE: "retry is due",
    Trigger.MANUAL: "run on request",
    Trigger.BACKFILL: "backfill on request",
}
_WAITED = "due again after a wait"


@dataclass(frozen=True, slots=True)
class Fire:
    """Send `run`, due at `due_at`, and store `successor`; None after the last occurrence.

    `owner`: the job with the schedule version of the entry; None if the run waits for no other run.
    `dispatch`: `TIME_DISPATCH` if the run may have to wait for its parents. Then overlap is
    checked, and other runs are excluded, only at the dispatch that follows the wait. `missed`:
    skipped occurrences that were due before the run. `cover_first`: the decision to use instead if
    they must be recorded before anything is sent. `resumed_as`: see `RunMessage`.
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
    dispatch: int = 1
    resumed_as: int | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Send dispatch number `dispatch` of `run`. `cause`: SCHEDULE for a retry, MANUAL or BACKFILL
    for a requested run. `owner`: the job, for a run on request or of a job with parents whose
    overlap policy was not checked yet. `removed_pool`: see `RunMessage`. `waited`: the dispatch
    before it led to no attempt.
    """

    run: RunKey
    dispatch: int
    pool: str
    cause: Trigger
    exclusive: bool = False
    owner: Job | None = None
    removed_pool: str | None = None
    waited: bool = False

    @property
    def reason(self) -> str:
        return _WAITED if self.waited else _WHY_SENT[self.cause]


@dataclass(frozen=True, slots=True)
class Cover:
    """Record the `missed` occurrences as skipped, then store the next entry.

    `owner`: the job with the schedule version of the entry. `owned_until`: end of that version;
    None if it is current. `run`, `pool`, `exclusive`: the run of the entry. It waits for queue
    capacity and its turn although it does not start, because runs sent before it must be recorded
    first. `next_at`: when the next occurrence that may run is due; None after the last.
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
    """End the pause of `job` at the instant of the entry."""

    job: Job


@dataclass(frozen=True, slots=True)
class ContinueDecision:
    """Continue the backfill of `job` at the position of `entry`."""

    entry: BackfillEntry
    job: Job


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete the entry."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Keep the entry and retry later."""

    reason: str


Decision = Fire | Resend | Cover | Move | Resume | ContinueDecision | Drop | Leave


def decide_due(entry: DueEntry, job: Job | None, now: datetime) -> Decision:
    """Decide what to do with a due entry, given its job as read from the store.

    Decisions other than `Resend`, and `Fire` without missed occurrences, are only valid for a
    consistent read of the job: see `is_certain`. Otherwise the caller reads the job again and
    repeats the decision.
    """
    match entry:
        case DispatchEntry():
            # The first dispatch of the run: its overlap policy was not checked yet.
            waits = job is not None and job.uid == entry.uid and _is_unchecked(entry, job)
            return Resend(
                RunKey(entry.job, entry.run_id),
                entry.dispatch,
                entry.pool,
                entry.trigger,
                exclusive=entry.exclusive,
                owner=job if waits else None,
                waited=entry.counted,
            )
        case ResumeEntry():
            # Stored in one transaction with the pause, so it is never newer than its job.
            if job is not None and job.resume_entry() == entry:
                return Resume(job)
            return Drop("the pause was ended, or its end was changed")
        case BackfillEntry():
            # Stored in one transaction with its job, as above.
            if job is not None and job.backfill_entry(entry.ordinal) == entry:
                return ContinueDecision(entry, job)
            return Drop("the backfill was stopped")
        case FireEntry():
            return _decide_fire(entry, job, now)


def _is_unchecked(entry: DispatchEntry, job: Job) -> bool:
    if entry.trigger is Trigger.SCHEDULE:
        return entry.dispatch == 1 and bool(job.definition.after)
    return entry.trigger is Trigger.MANUAL


def is_certain(decision: Decision) -> bool:
    """Whether *decision* is valid even after an eventually consistent read of the job."""
    return isinstance(decision, Resend) or (isinstance(decision, Fire) and not decision.missed)


def _decide_fire(entry: FireEntry, job: Job | None, now: datetime) -> Decision:
    if job is not None and job.uid != entry.uid and entry.at <= job.created_at:
        # A job id is reused only after all due occurrences of the deleted job were sent. If an
        # entry is left nevertheless, the executor records its run as one of a deleted job.
        return _alone(entry, job, "due before its job was deleted and recreated")
    if job is None or job.uid != entry.uid:
        return _orphan(entry, now, "job not found")
    if entry.version > job.schedule_version:
        return _orphan(entry, now, f"the job has no schedule version {entry.version} yet")
    if entry.version == job.schedule_version:
        # Deactivating a job creates a new version, so this version is active.
        return _of_version(entry, job, None, now, job.definition.target.pool)
    # A version owns its occurrences up to the change that ended it, however late they are read.
    past = next((each for each in job.replaced if each.version == entry.version), None)
    if past and entry.occurs_at <= past.until:
        pool, deleted = job.definition.target.pool, job.state is JobState.CANCELLED
        return _of_version(entry, job.as_of(past), past.until, now, pool, deleted=deleted)
    # A version that the job no longer remembers ended before the oldest remembered one, and all of
    # its occurrences were due.
    newer = (each.effective_from for each in job.replaced if each.version > entry.version)
    until = next(newer, job.effective_from)
    if past or entry.at > until:
        return Drop(f"replaced by schedule version {job.schedule_version}")
    return _alone(entry, job, f"due before the change of {isoformat(until)}")


def _alone(entry: FireEntry, job: Job, reason: str) -> Fire:
    """Send the occurrence of *entry*, whose version *job* no longer remembers."""
    key = entry.run_key
    waits = bool(job.definition.after)
    return Fire(
        key,
        entry.at,
        job.definition.target.pool,
        reason,
        exclusive=job.exclusive and not waits,
        dispatch=TIME_DISPATCH if waits else 1,
    )


def _of_version(
    entry: FireEntry,
    owner: Job,
    owned_until: datetime | None,
    now: datetime,
    pool: str,
    *,
    deleted: bool = False,
) -> Fire | Cover | Move:
    """Decide on an entry of the schedule version of *owner*, which may be *deleted*.

    Skips missed occurrences until one may run or none is due. So a late job sends its latest run in
    the same step that skips the earlier ones.
    """
    if (move := decide_move(entry, owner, owned_until)) is not None:
        return move
    skipped: list[SkippedRange] = []
    cover: Cover | None = None
    at: FireEntry = entry
    while True:
        successor = owned(owner.successor(at), owned_until)
        missed, reason = decide_misfire(at, owner, successor, now)
        # A skipped occurrence has a record, so its message starts nothing. How late it is must not
        # decide about the occurrences after it.
        if missed is None or at.occurs_at in owner.skips:
            break
        row = missed_row(at, owner, missed, owned_until, reason)
        following = owned(owner.following(row.last, at.ordinal + row.count - 1), owned_until)
        # Runs of a deleted job are recorded but do not start. So they do not wait for earlier runs,
        # whose messages may have been purged.
        cover = cover or Cover(
            missed,
            reason,
            owner,
            owned_until,
            entry.run_key,
            pool,
            exclusive=owner.exclusive and not deleted,
        )
        skipped += without_skips(row, at, owner)
        if following is None or following.at > now or len(skipped) > MAX_RANGES:
            return replace(cover, next_at=None if following is None else following.at)
        at = following
    waits = bool(owner.definition.after)
    if owned_until is not None and reason is ORDINARY:
        reason = f"due before the change of {isoformat(owned_until)}"
    return Fire(
        RunKey(entry.job, run_id(entry.uid, at.occurs_at)),
        at.at,
        pool,
        reason,
        successor,
        exclusive=owner.exclusive and not waits,
        owner=None if deleted or waits else owner,
        missed=tuple(skipped),
        cover_first=cover,
        dispatch=TIME_DISPATCH if waits else 1,
        resumed_as=owner.schedule_version if _is_of_pause(at, owner) else None,
    )


def _is_of_pause(entry: FireEntry, owner: Job) -> bool:
    """Whether the occurrence may have been sent before the job was paused and resumed."""
    return owner.resumed_at is not None and entry.occurs_at - owner.resumed_at <= CLOCKS_DIFFER


def _orphan(entry: FireEntry, now: datetime, what: str) -> Leave | Drop:
    if now - entry.at < ORPHAN_AGE:
        return Leave(what)
    return Drop(f"{what}, {ORPHAN_AGE.seconds} s after it was due")
