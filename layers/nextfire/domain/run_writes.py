"""The conditional writes of `RunStore` as pure functions, for stores with transactions.

Each takes the stored record, None if it does not exist, and returns the record to store; None if a
condition does not hold. DynamoDB has the same conditions as expressions.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nextfire.domain.attempt import Attempt
from nextfire.domain.instants import cut
from nextfire.domain.message import RunMessage
from nextfire.domain.run import Run, RunState

TRIED_AGAIN = frozenset({RunState.PENDING, RunState.RUNNING, RunState.DEAD})
"""States that a run with a cancel request must not enter: it would be retried."""


def claimed(
    stored: Run | None,
    message: RunMessage,
    *,
    token: str,
    worker: str,
    pool: str,
    job_revision: int,
    now: datetime,
    lease_until: datetime,
) -> Run | None:
    """The run leased to *worker*, if it is free; see `RunStore.claim`."""
    if stored is not None and not _is_free(stored, message, cut(now)):
        return None
    was = stored or Run(message.key, RunState.PENDING)
    return replace(
        was,
        state=RunState.RUNNING,
        dispatch=message.dispatch,
        attempt=was.attempt + 1,
        fence=was.fence + 1,
        claim_token=token,
        worker=worker,
        lease_until=lease_until,
        not_before=None,
        exit_code=None,
        stdout=None,
        stderr=None,
        reason=None,
        pool=pool,
        job_revision=job_revision,
        dispatched_at=message.dispatched_at,
        dispatch_reason=message.reason,
        started_at=now,
        attempts=(*was.attempts, Attempt(was.attempt + 1, worker, now, pool=pool)),
    )


def _is_free(run: Run, message: RunMessage, now: datetime) -> bool:
    return (
        run.state is RunState.PENDING
        and run.dispatch <= message.dispatch
        and (run.not_before is None or run.not_before <= now)
        and not run.cancel_requested
    )


def advanced(stored: Run, was: Run, to: Run, *, lapsed: bool) -> Run | None:
    """The run *to*, if *stored* is still *was*; see `RunStore.advance`."""
    stopped = stored.cancel_requested and to.state in TRIED_AGAIN
    extended = lapsed and stored.lease_until != was.lease_until
    if not is_held(stored, was) or stopped or extended:
        return None
    return replace(
        to,
        cancel_requested=stored.cancel_requested,
        cancel_reason=stored.cancel_reason,
        checkpoint=stored.checkpoint,
        pool=stored.pool,
        job_revision=stored.job_revision,
        dispatched_at=stored.dispatched_at,
        dispatch_reason=stored.dispatch_reason,
    )


def is_held(stored: Run, run: Run) -> bool:
    """Whether *stored* is RUNNING under the fence of *run*."""
    return (stored.fence, stored.state) == (run.fence, RunState.RUNNING)


def cancelled(stored: Run | None, message: RunMessage, reason: str, now: datetime) -> Run | None:
    """The run CANCELLED, if it is absent or PENDING."""
    if stored is not None and stored.state is not RunState.PENDING:
        return None
    return replace(
        stored or Run(message.key, RunState.PENDING, dispatch=message.dispatch),
        state=RunState.CANCELLED,
        reason=reason,
        finished_at=now,
        not_before=None,
    )


def stopped(stored: Run, reason: str, now: datetime) -> Run | None:
    """The run CANCELLED if it is PENDING, or with a cancel request if it is RUNNING."""
    if stored.state is RunState.PENDING:
        return replace(
            stored, state=RunState.CANCELLED, reason=reason, finished_at=now, not_before=None
        )
    if stored.state is RunState.RUNNING:
        return replace(stored, cancel_requested=True, cancel_reason=reason)
    return None


def skipped(stored: Run | None, run: Run) -> Run | None:
    """The SKIPPED record *run*, if no record exists or, for a requested run, if it was never
    claimed, nor redriven since it was read.
    """
    if stored is None:
        return run
    never_claimed = stored.state is RunState.PENDING and not stored.claim_token
    return run if run.on_request and never_claimed and stored.dispatch == run.dispatch else None


def may_redrive(stored: Run, run: Run, was: RunState) -> bool:
    """Whether *stored* is in the state *was*, has an earlier dispatch and the attempts of *run*."""
    same = stored.attempt == run.attempt_base and stored.dispatch < run.dispatch
    return stored.state is was and stored.covered == 1 and same


def may_bring_forward(stored: Run, was: Run) -> bool:
    """Whether *stored* still waits for the next attempt, as *was* does."""
    waits = stored.state is RunState.PENDING and not stored.cancel_requested
    return waits and (stored.dispatch, stored.fence) == (was.dispatch, was.fence)


def may_await_parents(stored: Run, was: Run) -> bool:
    """Whether *stored* is still *was*, a DEAD or SKIPPED run."""
    same = (stored.state, stored.dispatch, stored.attempt) == (was.state, was.dispatch, was.attempt)
    return stored.state in {RunState.DEAD, RunState.SKIPPED} and stored.covered == 1 and same


def as_stored(run: Run) -> Run:
    """*run* as it is read back: instants in milliseconds, empty output as None."""
    return replace(
        run,
        lease_until=_cut(run.lease_until),
        not_before=_cut(run.not_before),
        dispatched_at=_cut(run.dispatched_at),
        started_at=_cut(run.started_at),
        finished_at=_cut(run.finished_at),
        covered_to=_cut(run.covered_to),
        kept=None,
        stdout=run.stdout or None,
        stderr=run.stderr or None,
        attempts=tuple(
            replace(each, started_at=cut(each.started_at), finished_at=_cut(each.finished_at))
            for each in run.attempts
        ),
    )


def _cut(at: datetime | None) -> datetime | None:
    return None if at is None else cut(at)
