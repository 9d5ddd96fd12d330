"""The conditional writes of `RunStore` for stores with transactions. DynamoDB has the same
conditions as expressions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from nextfire.domain.attempt import Attempt, Value
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import cut
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState

TRIED_AGAIN = frozenset({RunState.PENDING, RunState.RUNNING, RunState.DEAD})
"""States that a run with a cancel request must not enter: it would be retried."""

Change = Callable[[Run | None], Run | None]
"""From the stored record, None if it does not exist, returns the record to store; None: a condition
does not hold.
"""


class TransactionalRuns(ABC):
    """The writes of `RunStore` that change one record, on `_change`."""

    @abstractmethod
    def _change(
        self, what: str, key: RunKey, change: Change, due: tuple[DueEntry, datetime] | None = None
    ) -> tuple[Run | None, Run | None]:
        """Apply *change* to the record of *key*, and store *due*, an entry and the instant of its
        write, with the result, in one transaction. Returns the record before, and the stored one;
        None if a condition does not hold.
        """

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        def claimed(stored: Run | None) -> Run | None:
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

        return self._write(
            "claim run",
            message.key,
            claimed,
            ours=lambda run: run.state is RunState.RUNNING and run.claim_token == token,
        )

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        def advanced(stored: Run | None) -> Run | None:
            if stored is None or not _is_held(stored, was):
                return None
            if stored.cancel_requested and to.state in TRIED_AGAIN:
                return None
            if lapsed and stored.lease_until != was.lease_until:
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

        written = as_stored(to)
        return self._write(
            "advance run",
            was.key,
            advanced,
            # Each claim starts a new attempt, so equal attempts mean that this write succeeded.
            ours=lambda run: (run.state, run.attempts) == (written.state, written.attempts),
        )

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        def cancelled(stored: Run | None) -> Run | None:
            absent = Run(message.key, RunState.PENDING, dispatch=message.dispatch)
            return _cancelled(stored or absent, reason, now)

        return self._write("cancel run", message.key, cancelled).run

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        def stopped(stored: Run | None) -> Run | None:
            if stored is not None and stored.state is RunState.RUNNING:
                return replace(stored, cancel_requested=True, cancel_reason=reason)
            return stored and _cancelled(stored, reason, now)

        return self._write("stop run", run.key, stopped, absent_ok=True).run

    def skip(self, run: Run) -> Run:
        def skipped(stored: Run | None) -> Run | None:
            if stored is None:
                return None if run.on_request else run
            never_claimed = stored.state is RunState.PENDING and not stored.claim_token
            same = run.on_request and stored.dispatch == run.dispatch
            return run if never_claimed and same else None

        return self._write("skip run", run.key, skipped).run

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        return self._change_held(
            "extend lease", run, lambda held: replace(held, lease_until=lease_until)
        )

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        return self._change_held(
            "save checkpoint", run, lambda held: replace(held, checkpoint=checkpoint)
        )

    def mark_death_published(self, run: Run) -> None:
        def published(stored: Run | None) -> Run | None:
            if stored is None or (stored.state, stored.dispatch) != (RunState.DEAD, run.dispatch):
                return None
            return replace(stored, buried=run.dispatch)

        self._change("mark death", run.key, published)

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        return self._write(
            "request run",
            run.key,
            lambda stored: run if stored is None else None,
            ours=lambda stored: stored.on_request and stored.request == run.request,
            due=(entry, now),
        )

    def redrive(
        self,
        run: Run,
        entry: DueEntry,
        now: datetime,
        *,
        was: RunState = RunState.DEAD,
        by_user: bool = True,
    ) -> Claim:
        def redriven(stored: Run | None) -> Run | None:
            if stored is None or stored.state is not was or stored.covered > 1:
                return None
            if stored.attempt != run.attempt_base or stored.dispatch >= run.dispatch:
                return None
            return _redriven(stored, run, by_user=by_user)

        return self._write(
            "redrive run",
            run.key,
            redriven,
            ours=lambda stored: (
                (stored.dispatch, stored.attempt_base) == (run.dispatch, run.attempt_base)
            ),
            absent_ok=True,
            due=(entry, now),
        )

    def bring_forward(self, was: Run, to: Run, entry: DueEntry, now: datetime) -> Claim:
        def brought_forward(stored: Run | None) -> Run | None:
            if stored is None or stored.state is not RunState.PENDING or stored.cancel_requested:
                return None
            return to if (stored.dispatch, stored.fence) == (was.dispatch, was.fence) else None

        return self._write(
            "bring run forward",
            was.key,
            brought_forward,
            ours=lambda stored: stored.dispatch == to.dispatch,
            absent_ok=True,
            due=(entry, now),
        )

    def await_parents(self, was: Run, to: Run) -> Claim:
        def awaiting(stored: Run | None) -> Run | None:
            if stored is None or stored.state is not was.state or stored.covered > 1:
                return None
            same = (stored.dispatch, stored.attempt) == (was.dispatch, was.attempt)
            return to if same and was.state in {RunState.DEAD, RunState.SKIPPED} else None

        return self._write(
            "await parents",
            was.key,
            awaiting,
            ours=lambda stored: stored.skipped_by_parents and stored.dispatch == to.dispatch,
            absent_ok=True,
        )

    def _write(
        self,
        what: str,
        key: RunKey,
        change: Change,
        *,
        ours: Callable[[Run], bool] = lambda _: False,
        absent_ok: bool = False,
        due: tuple[DueEntry, datetime] | None = None,
    ) -> Claim:
        """As `_change`. *ours*: whether the stored record is the result of this same write.
        *absent_ok*: return a CANCELLED run if the record is gone.

        Raises:
            UnavailableError: The record is gone.
        """
        found, stored = self._change(what, key, change, due)
        if stored is not None:
            return Claim(stored, taken=True)
        if found is not None:
            return Claim(found, taken=ours(found))
        if absent_ok:
            return Claim(Run(key, RunState.CANCELLED), taken=False)
        raise UnavailableError(f"{what}: the record is gone. Try again.")

    def _change_held(self, what: str, run: Run, do: Callable[[Run], Run]) -> Run | None:
        """Change the record of *run*, if it is RUNNING under its fence. Returns the new record."""
        return self._change(
            what,
            run.key,
            lambda stored: do(stored) if stored is not None and _is_held(stored, run) else None,
        )[1]


def _redriven(stored: Run, to: Run, *, by_user: bool) -> Run:
    """*stored* with what a redrive to *to* changes: *to* may be made from an earlier record."""
    pending = replace(
        stored,
        state=to.state,
        dispatch=to.dispatch,
        not_before=to.not_before,
        finished_at=None,
        cancel_requested=False,
        reason=to.reason,
    )
    if not by_user:
        return pending
    return replace(
        pending,
        attempt_base=to.attempt_base,
        fence_base=to.fence_base,
        restarted=True,
        cancel_reason=None,
    )


def _is_free(run: Run, message: RunMessage, now: datetime) -> bool:
    return (
        run.state is RunState.PENDING
        and run.dispatch <= message.dispatch
        and (run.not_before is None or run.not_before <= now)
        and not run.cancel_requested
    )


def _is_held(stored: Run, run: Run) -> bool:
    """Whether *stored* is RUNNING under the fence of *run*."""
    return (stored.fence, stored.state) == (run.fence, RunState.RUNNING)


def _cancelled(run: Run, reason: str, now: datetime) -> Run | None:
    """*run* CANCELLED, if it is PENDING."""
    if run.state is not RunState.PENDING:
        return None
    return replace(run, state=RunState.CANCELLED, reason=reason, finished_at=now, not_before=None)


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
