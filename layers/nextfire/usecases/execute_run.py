"""Process one message: admit and claim its run, or do what its record or its job asks for.

`without_attempt` handles messages whose run must not start, `run_attempt` makes the attempt of a
claimed run, `record_outcome` does what follows from its outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.decisions import ClaimAction, decide_claim
from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import UnavailableError, UndecodableError, UnknownVersionError, shorten
from nextfire.domain.events import message_undecodable
from nextfire.domain.ids import SIGNALS, RunKey, content_id
from nextfire.domain.instants import cut, isoformat
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.misfire import held_too_long, too_late_to_begin
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.queues import Delivery
from nextfire.domain.ports.runs import Claim
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import Run, RunState
from nextfire.usecases.cover_missed import record_missed
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.hand_over import HandOver
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.limit_parallel import LimitParallel
from nextfire.usecases.record_outcome import RecordOutcome
from nextfire.usecases.run_attempt import RunAttempt
from nextfire.usecases.run_supervisor import Host
from nextfire.usecases.without_attempt import WithoutAttempt


class ExecuteRun:
    """Core of the executor, shared by the Lambda function and the worker process."""

    def __init__(self, ports: ExecutorPorts, config: ExecutorConfig) -> None:
        hand_over = HandOver(
            jobs=ports.jobs,
            runs=ports.runs,
            due=ports.due,
            joins=ports.joins,
            queue=ports.queue,
            clock=ports.clock,
            quotas=ports.quotas,
            executor=ports.children,
        )
        self._ports = ports
        self._config = config
        self._parallel = LimitParallel(ports.jobs, ports.runs, ports.joins)
        self._outcomes = RecordOutcome(ports, hand_over, config.retention)
        self._without_attempt = WithoutAttempt(ports, config.pool, hand_over, self._outcomes)
        self._run_attempt = RunAttempt(ports, config, self._outcomes)

    def handle(
        self,
        delivery: Delivery,
        *,
        stopping: Callable[[], bool],
        longest: timedelta = timedelta.max,
        hidden_longer: bool = False,
    ) -> Handled:
        """Process *delivery*, which is already hidden for the length of a lease.

        Args:
            delivery: The message.
            stopping: Called several times a second; if True, the run is handed back.
            longest: Maximum duration of a script on this host, whatever the timeout of its job. A
                script that exceeds it is TIMED_OUT; if handed back, it would start again forever.
            hidden_longer: The message is hidden for longer. That is shortened to a lease for a run
                that takes more than a moment. If the message stays in the queue, the caller does.

        Raises:
            UnavailableError: A store did not answer. Leave the message: it is redelivered.
        """
        try:
            message = decode_message(delivery.body)
        except UnknownVersionError as error:
            delivery.hide(_UNKNOWN_VERSION_FOR)  # an executor of that version can take it then
            return Handled(Disposition.LEAVE, str(error), quarantined=True)
        except UndecodableError as error:
            failure = shorten(str(error), 500)
            self._ports.dead_letters.put(delivery.body, failure, dedup=content_id(delivery.body))
            self._ports.events.put(
                message_undecodable(
                    delivery.body, failure, self._config.pool, self._ports.clock.now()
                )
            )
            return Handled(Disposition.ACKNOWLEDGE, failure, quarantined=True)
        if stopping():
            delivery.hide(timedelta())
            return Handled(Disposition.LEAVE, "this executor is shutting down")
        host = Host(delivery, stopping, longest, hidden_longer)
        try:
            job = self._ports.jobs.get(message.key.job)
            # First: once the run has a record, occurrences missed before it are not looked at.
            before = record_missed(self._ports.runs, job, message, self._ports.clock.now())
            handled = self._carry_out(job, message, host)
            quarantined = before.quarantined or handled.quarantined
            return replace(handled, missed=before.written, quarantined=quarantined)
        except UndecodableError as error:
            return self._keep_unreadable(message, shorten(str(error), 500))

    def _keep_unreadable(self, message: RunMessage, why: str) -> Handled:
        """Keep *message*, whose job or run does not decode, until that is fixed: in the queue, or
        in the due table, if it would block other runs of its tenant in the queue.
        """
        alone = (
            self._ports.quotas is None
            or self._ports.quotas.of(message.tenant).concurrent_runs is None
        )
        only_here = message.missed or message.removed_pool or message.dispatch in SIGNALS
        if alone or only_here:
            return Handled(Disposition.LEAVE, why, quarantined=True)
        now = self._ports.clock.now()
        entry = DispatchEntry(
            message.key.job,
            message.key.uid,
            cut(now + _UNREADABLE_FOR),
            message.run_id,
            message.dispatch + 1,
            self._config.pool,
            held=True,
            counted=True,
            exclusive=message.exclusive,
        )
        if not self._ports.due.put([entry], now):
            raise UnavailableError("The deferred dispatch was not stored. Try again.")
        return Handled(Disposition.ACKNOWLEDGE, why, quarantined=True)

    def _carry_out(self, job: Job | None, message: RunMessage, host: Host) -> Handled:
        if job is None or job.uid != message.key.uid or job.state is JobState.CANCELLED:
            return self._without_attempt.of_deleted_job(message, host.delivery)
        handled = self._without_attempt.handle(job, message)
        if handled is not None:
            return handled
        pool = job.definition.target.pool
        if pool != self._config.pool:
            run = self._ports.runs.get(message.key)
            if run is not None and run.state.ended:
                return self._outcomes.settled(job, run, f"has ended {run.state}")
            if pool != message.removed_pool:
                return self._pass_on(job, message, run)
            return self._with_job(job, message, host, None)  # which ends the run
        first = message.dispatch == 1
        hold = self._parallel.hold(
            job, message.key, self._ports.clock.now(), dispatch=message.dispatch
        )
        if hold is not None:
            deferred = self._defer(job, message, host, hold)
            return deferred or self._with_job(job, message, host, hold)
        now = self._ports.clock.now()
        hold = self._ports.target.admit(job, message.key, now, first=first)
        if hold is not None and self._waited_too_long(job, message.key, hold, now):
            return self._with_job(job, message, replace(host, given_up=hold), None)
        deferred = self._defer(job, message, host, hold) if hold else None
        if deferred is not None:
            return deferred
        try:
            return self._with_job(job, message, host, hold)
        finally:
            if hold is None:
                self._ports.target.release(job, message.key)

    def _pass_on(self, job: Job, message: RunMessage, run: Run | None) -> Handled:
        """Dispatch the run to the pool that its job has moved to: this pool can read neither the
        job's script nor its secrets. If we die before the message is deleted, it is redelivered,
        and the claim lets only one of the two dispatches run.
        """
        pool = job.definition.target.pool
        now, at = self._ports.clock.now(), message.dispatched_at
        reason = f"its job has moved to pool {pool}"
        often = message.dispatch - (run.dispatch if run else 0) > _MAX_MOVES
        if often:
            # Unless it waited that often before its job moved, executors have a wrong pool.
            at = now + _AFTER_MANY_MOVES
            reason = (
                f"{reason}, dispatched {_MAX_MOVES} times without an attempt: check that the "
                f"executors of its queue have NEXTFIRE_POOL={pool}"
            )
        entry = job.dispatch_entry(message.key, at, message.dispatch + 1, again=True)
        if not self._ports.due.put([entry], now):
            raise UnavailableError("The dispatch to the job's pool was not stored. Try again.")
        return Handled(Disposition.ACKNOWLEDGE, reason, quarantined=often)

    def _waited_too_long(self, job: Job, key: RunKey, hold: Hold, now: datetime) -> bool:
        if not held_too_long(job, key, hold.since, now):
            return False
        run = self._ports.runs.get(
            key
        )  # a redriven run, and one of a backfill, has waited since then
        return run is None or held_too_long(job, key, run.not_before or hold.since, now)

    def _defer(self, job: Job, message: RunMessage, host: Host, hold: Hold) -> Handled | None:
        """Postpone the run without an attempt: the destination of its call is not available.
        Returns None if it has a record that is not free, or a later dispatch: it may be running
        elsewhere, and the deletion of its message would let the next of its group start.
        """
        now = self._ports.clock.now()
        run = self._ports.runs.get(message.key)
        if run is not None and (run.state is not RunState.PENDING or run.cancel_requested):
            return None
        if run is not None and message.dispatch < run.dispatch:
            return None
        if run is not None and too_late_to_begin(job, run, now):
            return self._with_job(job, message, host, None)  # which ends the run
        entry = job.dispatch_entry(message.key, hold.until, message.dispatch + 1, again=True)
        if not self._ports.due.put([entry], now):
            raise UnavailableError("The deferred dispatch was not stored. Try again.")
        return Handled(
            Disposition.ACKNOWLEDGE, f"deferred until {isoformat(hold.until)}: {hold.reason}", run
        )

    def _with_job(self, job: Job, message: RunMessage, host: Host, hold: Hold | None) -> Handled:
        """Claim the run and make an attempt, or do what its record asks for. With *hold*, no
        attempt is made.
        """
        while True:
            now = self._ports.clock.now()
            claim = self._claim(job, message, host, now, hold)
            if claim.taken:
                return self._run_attempt.make(job, claim.run, host)
            decision = decide_claim(claim.run, message, job.definition.retry_policy, now)
            match decision.action:
                case ClaimAction.AGAIN:
                    continue
                case ClaimAction.SETTLE:
                    return self._outcomes.settled(job, claim.run, decision.reason)
                case ClaimAction.ACKNOWLEDGE:
                    return Handled(Disposition.ACKNOWLEDGE, decision.reason, claim.run)
                case ClaimAction.WAIT:
                    assert decision.until is not None  # noqa: S101 — for the type checker
                    host.delivery.hide(decision.until - now)
                    return Handled(Disposition.LEAVE, decision.reason, claim.run)
                case ClaimAction.TAKE_OVER:
                    done = self._take_over(job, claim.run, message, host, hold)
                    if done is not None:
                        return _mark_lost(done)
                case ClaimAction.CANCEL if claim.run.state is RunState.PENDING:
                    # The next iteration finds the run ended and settles it.
                    self._ports.runs.cancel(message, reason=decision.reason, now=now)
                case ClaimAction.CANCEL | ClaimAction.BURY:
                    state = _ENDS_AS[decision.action]
                    result = Result(AttemptOutcome.WORKER_LOST, decision.reason)
                    ended = self._outcomes.end(job, claim.run, state, result, now)
                    if ended is not None:
                        return _mark_lost(ended)

    def _claim(
        self, job: Job, message: RunMessage, host: Host, now: datetime, hold: Hold | None
    ) -> Claim:
        """Claim the run; with *hold*, only read its record."""
        if hold is None:
            return self._ports.runs.claim(
                message,
                token=host.delivery.token,
                worker=self._config.worker,
                pool=job.definition.target.pool,
                job_revision=job.revision,
                now=now,
                lease_until=now + self._config.lease,
            )
        run = self._ports.runs.get(message.key)
        free = run is None or (run.state is RunState.PENDING and not run.cancel_requested)
        if run is None or (free and message.dispatch >= run.dispatch):
            raise UnavailableError("The run became free in the meantime. Try again.")
        return Claim(run, taken=False)

    def _take_over(
        self, job: Job, run: Run, message: RunMessage, host: Host, hold: Hold | None
    ) -> Handled | None:
        """Make the next attempt of *run*, whose worker was lost; with *hold* it comes later. None:
        another executor was first.
        """
        now = self._ports.clock.now()
        if hold is not None:
            # An older dispatch than that of the record takes nothing over.
            latest = replace(run, dispatch=message.dispatch)
            reason = f"lease of {run.worker} lapsed; {hold.reason}"
            result = Result(AttemptOutcome.WORKER_LOST, reason)
            return self._outcomes.retry(job, latest, result, cut(hold.until), now)
        to = run.taken_over(
            dispatch=message.dispatch,
            token=host.delivery.token,
            worker=self._config.worker,
            now=now,
            lease_until=now + self._config.lease,
            pool=job.definition.target.pool,
        )
        claim = self._ports.runs.advance(run, to, lapsed=True)
        return self._run_attempt.make(job, claim.run, host) if claim.taken else None


_UNKNOWN_VERSION_FOR = timedelta(minutes=5)
"""How long a message of a newer version is hidden. SQS keeps it for 1,000 receives: 3.5 days."""
_UNREADABLE_FOR = timedelta(minutes=1)
"""How long a run whose job or record does not decode is kept in the due table, at a time."""
_ENDS_AS = {ClaimAction.CANCEL: RunState.CANCELLED, ClaimAction.BURY: RunState.DEAD}
_MAX_MOVES = 1000
"""Number of dispatches in a row without an attempt after which a run is passed on to another pool
only every `_AFTER_MANY_MOVES`, and counted as quarantined."""
_AFTER_MANY_MOVES = timedelta(minutes=1)


def _mark_lost(handled: Handled) -> Handled:
    return replace(handled, lost=True)
