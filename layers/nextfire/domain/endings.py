"""The state of a run after an attempt: it has ended, is retried, or is deferred."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.deadlines import begun_after, named
from nextfire.domain.instants import in_seconds
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.domain.target import TargetKind

MIN_RETRY_DELAY = timedelta(seconds=1)
"""Minimum delay of a retry. Its due entry is stored before the run is PENDING again: a dispatch in
between would find the run RUNNING and wait until the lease expires."""
DEFERRED_AT_MOST = timedelta(days=1)
"""How long attempts are deferred for jobs without a relevancy window."""
MAX_DEFERRALS = 90
"""Maximum number of deferrals for jobs without a relevancy window: a record keeps only the latest
100 attempts, so it does not show when a run was first deferred. With the delays below it takes 19
hours at least."""
_USUAL_DEFERRALS = 5
"""After this number of deferrals in a row, delays double from 1 s, even if the retry policy and
Retry-After ask for shorter ones.
"""
_DEFERRED_EVERY = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Ending:
    """The state of a run after an attempt. PENDING: it is retried at `retry_at`. `deferred`: the
    attempt does not count. `reason`: why, if the result does not say it.
    """

    state: RunState
    retry_at: datetime | None = None
    deferred: bool = False
    reason: str | None = None


def decide_ending(job: Job, run: Run, result: Result, now: datetime) -> Ending:
    """Decide the state of *run* after an attempt with *result*."""
    ending = _decide_ending(job, run, result, now)
    deadline = job.definition.deadline(run.key.scheduled_at)
    if deadline is None or ending.retry_at is None or ending.retry_at <= deadline:
        return ending
    if run.on_request or begun_after(run, deadline):
        return ending
    reason = f"{result.reason}; not repeated: {named(job.definition)}"
    return Ending(_not_repeated(run) if ending.deferred else RunState.DEAD, reason=reason)


def _decide_ending(job: Job, run: Run, result: Result, now: datetime) -> Ending:
    policy = job.definition.retry_policy
    if result.outcome is AttemptOutcome.SUCCEEDED:
        return Ending(RunState.SUCCEEDED)
    if run.cancel_requested or result.outcome is AttemptOutcome.CANCELLED:
        return Ending(RunState.CANCELLED)
    if result.unavailable:
        return _decide_deferral(job, run, result, now)
    is_script = job.definition.target.kind is TargetKind.SCRIPT
    covered = policy.retry_on.covers(result, has_exit_codes=is_script)
    if result.permanent or run.tries >= policy.max_attempts or not covered:
        return Ending(RunState.DEAD)
    delay = policy.delay(run.tries, seed=run.key.execution_id)
    return Ending(RunState.PENDING, _no_sooner(result, now + max(delay, MIN_RETRY_DELAY)))


def _decide_deferral(job: Job, run: Run, result: Result, now: datetime) -> Ending:
    """Decide when to repeat an attempt that found its destination, or a service that it needs
    before its script starts, not available.
    """
    tried = run.since_redrive
    deferrals = sum(each.outcome is AttemptOutcome.DEFERRED for each in tried)
    delay = job.definition.retry_policy.delay(deferrals + 1, seed=run.key.execution_id)
    doubled = timedelta(seconds=1 << min(max(deferrals - _USUAL_DEFERRALS, 0), 10))
    delay = max(delay, MIN_RETRY_DELAY, min(doubled, _DEFERRED_EVERY))
    at = _no_sooner(result, now + delay)
    window = job.definition.misfire.relevancy_window
    began_at = tried[0].started_at if tried else now
    if result.permanent:
        limit, name = now, "a day of waiting"
    elif window is None or run.on_request or run.restarted or run.attempt_base:
        limit, name = began_at + DEFERRED_AT_MOST, "1 day after the first attempt"
        if deferrals >= MAX_DEFERRALS:
            limit, name = now, f"{MAX_DEFERRALS} waits"
        if now + delay <= limit:  # a long Retry-After does not end the run
            at = min(at, limit)
    else:
        limit = job.due_at(run.key.scheduled_at) + window
        name = f"relevancyWindowSec {in_seconds(window)}"
    if at <= limit:
        return Ending(RunState.PENDING, at, deferred=True)
    return Ending(_not_repeated(run), reason=f"{result.reason}; not repeated: past {name}")


def _not_repeated(run: Run) -> RunState:
    """The final state of *run*, whose present attempt is deferred: SKIPPED if no other attempt has
    begun, also before a redrive. One that its worker handed back has begun.
    """
    handed_back = any(each.outcome is AttemptOutcome.HANDED_BACK for each in run.attempts)
    return RunState.SKIPPED if run.attempt == 1 and not handed_back else RunState.DEAD


def _no_sooner(result: Result, at: datetime) -> datetime:
    return at if result.retry_at is None else max(at, result.retry_at)
