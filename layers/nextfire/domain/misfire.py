"""The misfire policy: whether an occurrence that is noticed late still runs. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.deadlines import begun_after
from nextfire.domain.due import FireEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import in_seconds
from nextfire.domain.job import Job
from nextfire.domain.message import ORDINARY
from nextfire.domain.missed import Missed
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import MisfirePolicy
from nextfire.domain.run import Run

MISFIRE_AFTER = timedelta(seconds=60)
"""The misfire policy applies to occurrences that are noticed later than this."""
HELD_AT_MOST = timedelta(days=1)
"""How long a run waits for a destination that is paused or down."""
_CONTINUED = frozenset({AttemptOutcome.WORKER_LOST, AttemptOutcome.HANDED_BACK})
"""Ends of attempts that another executor continues, also after a deadline."""


def decide_misfire(
    entry: FireEntry, job: Job, successor: FireEntry | None, now: datetime
) -> tuple[Missed | None, str]:
    """Decide whether the occurrence of *entry*, due by *now*, is too late to run. The relevancy
    window decides, and the misfire policy if the occurrence is later than `MISFIRE_AFTER` or was
    due during a pause.

    Args:
        entry: An entry of the schedule version of *job*.
        job: The job.
        successor: The next entry; None if *entry* is the last one.
        now: The instant of the decision.

    Returns:
        The missed occurrences, or None if the occurrence runs; and the reason.
    """
    if job.state is JobState.PAUSED:
        # The version was a pause that ended by another change instead of a resume.
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
    # Jitter can delay an earlier occurrence for longer; this one had to wait for its turn.
    turn_by = entry.occurs_at + job.definition.jitter_width
    if now - turn_by <= MISFIRE_AFTER and not in_pause:
        return None, ORDINARY
    when = "due during a pause" if in_pause else f"{in_seconds(late)} late"
    reason = f"{when}; misfire policy {misfire.policy}"
    match misfire.policy:
        case MisfirePolicy.RUN_ALL:
            return None, reason
        case MisfirePolicy.RUN_LATEST:
            # If the successor is due too, this is not the latest.
            if successor is None or successor.at > now:
                return None, f"{reason}: the latest"
            return Missed(_due_by(job, now), except_latest=True), reason
        case MisfirePolicy.SKIP:
            late_since = now - MISFIRE_AFTER
            until = max(late_since, job.resumed_at) if in_pause and job.resumed_at else late_since
            return Missed(_due_by(job, until)), reason


def _due_by(job: Job, until: datetime) -> datetime:
    """The instant up to which all occurrences are due by *until*, even with maximum jitter."""
    return until - job.definition.jitter_width


def held_too_long(job: Job, key: RunKey, since: datetime | None, now: datetime) -> bool:
    """Whether the run has waited for its destination for a day. *since*: from when the destination
    has been unavailable; None: it is available, and others are first.
    """
    return since is not None and now - max(since, job.due_at(key.scheduled_at)) > HELD_AT_MOST


def too_late_to_begin(job: Job, run: Run, now: datetime) -> str | None:
    """Return why the attempt of *run* that was claimed at *now* must not be made, or None: it was
    due before, but the deadline is over by now; or the relevancy window is, and the run has not
    begun, because its earlier attempts were deferred.
    """
    earlier = [each.outcome for each in run.attempts if each.outcome is not None]
    if run.on_request or run.restarted or run.attempt_base or not earlier:
        return None
    at, window = run.key.scheduled_at, job.definition.misfire.relevancy_window
    late, deadline = now - job.due_at(at), job.definition.deadline(at)
    deferred = all(outcome is AttemptOutcome.DEFERRED for outcome in earlier)
    if deferred and window is not None and late > window:
        return f"picked up again {in_seconds(late)} late"
    repeats = earlier[-1] not in _CONTINUED
    if repeats and deadline is not None and now > deadline and not begun_after(run, deadline):
        return f"picked up again {in_seconds(now - at)} after its logical time"
    return None
