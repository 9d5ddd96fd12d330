"""Process one message: claim the run, make an attempt, record the outcome, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.decisions import (
    ClaimAction,
    decide_claim,
    decide_covered,
    decide_ending,
    decide_pickup,
    range_over,
)
from nextfire.domain.errors import (
    UnavailableError,
    UndecodableError,
    UnknownVersionError,
    shorten,
)
from nextfire.domain.events import message_undecodable
from nextfire.domain.ids import RunFolder, RunKey, content_id, first_run_id
from nextfire.domain.instants import cut, isoformat
from nextfire.domain.job import Job
from nextfire.domain.message import (
    HAND_OVER_DISPATCH,
    TIME_DISPATCH,
    RunMessage,
    decode_message,
)
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.events import Events
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.queues import DeadLetters, Delivery
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.ports.scripts import Directive, RunFiles
from nextfire.domain.ports.targets import Hold, TargetRunner
from nextfire.domain.run import Run, RunState
from nextfire.usecases.cover_missed import record_missed
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.hand_over import HandOver
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.limit_parallel import LimitParallel
from nextfire.usecases.next_dispatch import next_dispatch
from nextfire.usecases.past_deadline import past_deadline
from nextfire.usecases.read_upstream import with_upstream
from nextfire.usecases.record_outcome import RecordOutcome
from nextfire.usecases.run_log import RunLog
from nextfire.usecases.run_supervisor import Host, RunSupervisor
from nextfire.usecases.timed_runs import JOIN_END_DISPATCH


class ExecuteRun:
    """Core of the executor, shared by the Lambda function and the worker process."""

    def __init__(
        self,
        *,
        jobs: JobStore,
        runs: RunStore,
        due: DueStore,
        files: RunFiles,
        target: TargetRunner,
        dead_letters: DeadLetters,
        events: Events,
        clock: Clock,
        terms: ExecutorConfig,
        background: Executor,
        hand_over: HandOver,
    ) -> None:
        self._hand_over = hand_over
        self._parallel = LimitParallel(jobs, runs, hand_over.joins)
        self._jobs = jobs
        self._runs = runs
        self._due = due
        self._files = files
        self._target = target
        self._dead_letters = dead_letters
        self._events = events
        self._clock = clock
        self._terms = terms
        self._background = background
        self._outcomes = RecordOutcome(
            jobs=jobs,
            runs=runs,
            due=due,
            dead_letters=dead_letters,
            events=events,
            clock=clock,
            hand_over=hand_over,
            retention=terms.retention,
        )

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
            self._dead_letters.put(delivery.body, failure, dedup=content_id(delivery.body))
            self._events.put(
                message_undecodable(delivery.body, failure, self._terms.pool, self._clock.now())
            )
            return Handled(Disposition.ACKNOWLEDGE, failure, quarantined=True)
        if stopping():
            delivery.hide(timedelta())
            return Handled(Disposition.LEAVE, "this executor is shutting down")
        host = Host(delivery, stopping, longest, hidden_longer)
        try:
            job = self._jobs.get(message.key.job)
            # First: once the run has a record, occurrences missed before it are not looked at.
            before = record_missed(self._runs, job, message, self._clock.now())
            handled = self._carry_out(job, message, host)
            quarantined = before.quarantined or handled.quarantined
            return replace(handled, missed=before.written, quarantined=quarantined)
        except UndecodableError as error:
            # The job or the run does not decode. The message stays in the queue until it is fixed.
            return Handled(Disposition.LEAVE, shorten(str(error), 500), quarantined=True)

    def _carry_out(self, job: Job | None, message: RunMessage, host: Host) -> Handled:
        if job is None or job.uid != message.key.uid or job.state is JobState.CANCELLED:
            return self._without_job(message, host.delivery)
        skipped = (
            self._end_join(job, message)
            or self._begin_timed(job, message)
            or self._hand_over_again(job, message)
            or self._skip(job, message)
        )
        if skipped is not None:
            return skipped
        if job.definition.target.pool != self._terms.pool:
            run = self._runs.get(message.key)
            if run is None or not run.state.ended:
                return self._pass_on(job, message, run)
        first = message.dispatch == 1
        hold = self._parallel.hold(job, message.key, self._clock.now(), dispatch=message.dispatch)
        if hold is not None:
            deferred = self._defer(job, message, hold)
            return deferred or self._with_job(job, message, host, hold)
        hold = self._target.admit(job, message.key, self._clock.now(), first=first)
        deferred = self._defer(job, message, hold) if hold else None
        if deferred is not None:
            return deferred
        try:
            return self._with_job(job, message, host, hold)
        finally:
            if hold is None:
                self._target.release(job, message.key)

    def _pass_on(self, job: Job, message: RunMessage, run: Run | None) -> Handled:
        """Dispatch the run to the pool that its job has moved to: this pool can read neither the
        job's script nor its secrets. If we die before the message is deleted, it is redelivered,
        and the claim lets only one of the two dispatches run.
        """
        pool = job.definition.target.pool
        if message.dispatch - (run.dispatch if run else 0) > _MAX_MOVES:
            reason = (
                f"passed on {_MAX_MOVES} times, now to the pool {pool}: check that the executors "
                f"of its queue have NEXTFIRE_POOL={pool}"
            )
            return Handled(Disposition.LEAVE, reason, run, quarantined=True)
        entry = next_dispatch(
            job, message.key, cut(message.dispatched_at), message.dispatch + 1, held=True
        )
        if not self._due.put([entry], self._clock.now()):
            raise UnavailableError("The dispatch to the job's pool was not stored. Try again.")
        return Handled(Disposition.ACKNOWLEDGE, f"its job has moved to pool {pool}")

    def _without_job(self, message: RunMessage, delivery: Delivery) -> Handled:
        if message.dispatch in (JOIN_END_DISPATCH, HAND_OVER_DISPATCH):
            return Handled(Disposition.ACKNOWLEDGE, "its job was deleted")
        now = self._clock.now()
        covered = range_over(message.key, self._before(message.key)())
        if covered is not None and self._runs.get(message.key) is None:
            return Handled(Disposition.ACKNOWLEDGE, covered.reason or "", covered)
        first = message.model_copy(update={"dispatch": 1})
        of_time = message.dispatch == TIME_DISPATCH
        run = self._runs.cancel(
            first if of_time else message, reason="its job was deleted", now=now
        )
        if run.state is not RunState.RUNNING:
            self._outcomes.publish_death(run, exclusive=message.exclusive)
            return Handled(Disposition.ACKNOWLEDGE, "its job was deleted", run)
        if run.lease_until is not None and run.lease_until > now:
            delivery.hide(run.lease_until - now)
            return Handled(Disposition.LEAVE, f"runs on {run.worker}", run)
        result = Result(AttemptOutcome.WORKER_LOST, "its worker vanished, its job was deleted")
        ended = run.ended(RunState.CANCELLED, result, now)
        claim = self._runs.advance(run, ended, lapsed=True)
        return Handled(Disposition.LEAVE, result.reason, claim.run, lost=claim.taken)

    def _defer(self, job: Job, message: RunMessage, hold: Hold) -> Handled | None:
        """Postpone the run without an attempt: the destination of its call is not available.
        Returns None if it has a record that is not free, or a later dispatch.
        """
        now = self._clock.now()
        run = self._runs.get(message.key) if message.dispatch > 1 else None
        if run is not None and (run.state is not RunState.PENDING or run.cancel_requested):
            return None
        if run is not None and message.dispatch < run.dispatch:
            return None
        entry = next_dispatch(job, message.key, cut(hold.until), message.dispatch + 1, held=True)
        if not self._due.put([entry], now):
            raise UnavailableError("The deferred dispatch was not stored. Try again.")
        return Handled(
            Disposition.ACKNOWLEDGE, f"deferred until {isoformat(hold.until)}: {hold.reason}", run
        )

    def _with_job(self, job: Job, message: RunMessage, host: Host, hold: Hold | None) -> Handled:
        """Claim the run and make an attempt, or do what its record asks for. With *hold*, no
        attempt is made.
        """
        while True:
            now = self._clock.now()
            claim = self._claim(job, message, host, now, hold)
            if claim.taken:
                return self._run_attempt(job, claim.run, host)
            decision = decide_claim(claim.run, message, job.definition.retry_policy, now)
            match decision.action:
                case ClaimAction.AGAIN:
                    continue
                case ClaimAction.SETTLE:
                    return self._settled(job, claim.run, decision.reason)
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
                    self._runs.cancel(message, reason=decision.reason, now=now)
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
            return self._runs.claim(
                message,
                token=host.delivery.token,
                worker=self._terms.worker,
                pool=self._terms.pool,
                job_revision=job.revision,
                now=now,
                lease_until=now + self._terms.lease,
            )
        run = self._runs.get(message.key)
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
        now = self._clock.now()
        if hold is not None:
            latest = replace(run, dispatch=max(run.dispatch, message.dispatch))
            reason = f"lease of {run.worker} lapsed; {hold.reason}"
            result = Result(AttemptOutcome.WORKER_LOST, reason)
            return self._outcomes.retry(job, latest, result, cut(hold.until), now)
        to = run.taken_over(
            dispatch=message.dispatch,
            token=host.delivery.token,
            worker=self._terms.worker,
            now=now,
            lease_until=now + self._terms.lease,
            pool=self._terms.pool,
        )
        claim = self._runs.advance(run, to, lapsed=True)
        return self._run_attempt(job, claim.run, host) if claim.taken else None

    def _skip(self, job: Job, message: RunMessage) -> Handled | None:
        """Record the run as skipped, if it must not start and was never claimed."""
        key, now = message.key, self._clock.now()
        if message.dispatch > 1 and self._was_claimed(key):
            return None
        covered = decide_covered(job, key, now, self._before(key))
        # A run that was claimed keeps its record, and this message continues it.
        if covered is not None and self._runs.get(key) is None:
            # The writer of the range may have died before it completed the job.
            return self._settled(job, covered, covered.reason or "")
        reason = past_deadline(self._jobs, self._runs, job, key, now) or decide_pickup(
            job, key, now, self._before(key), dispatched_at=message.dispatched_at
        )
        if reason is None:
            return None
        skipped = Run.skipped(
            key, reason, now, pool=self._terms.pool, dispatched_at=message.dispatched_at
        )
        run = self._runs.skip(skipped)
        if run.state is RunState.PENDING and run.on_request:
            # Only its record has the trigger; only a few runs need this second check.
            reason = decide_pickup(job, key, now, self._before(key), trigger=run.trigger)
            if reason is not None:
                passed_over = run.passed_over(
                    reason, now, pool=self._terms.pool, dispatched_at=message.dispatched_at
                )
                run = self._runs.skip(passed_over)
        if run.state is not RunState.SKIPPED:
            return None
        return self._settled(job, run, run.reason or reason or "", skipped=True)

    def _end_join(self, job: Job, message: RunMessage) -> Handled | None:
        """Handle the end of a join, which is never the start of a run."""
        if message.dispatch != JOIN_END_DISPATCH:
            return None
        ended = self._hand_over.end_join(job, message)
        return self._settled(job, ended.run, ended.reason, skipped=ended.skipped)

    def _begin_timed(self, job: Job, message: RunMessage) -> Handled | None:
        """Handle the time of a run with parents, which is never the start of the run."""
        if message.dispatch != TIME_DISPATCH:
            return None
        key = message.key
        covered = decide_covered(job, key, self._clock.now(), self._before(key))
        if covered is not None and self._runs.get(key) is None:
            return self._settled(job, covered, covered.reason or "")
        begun = self._hand_over.begin_timed(job, message)
        return self._settled(job, begun.run, begun.reason, skipped=begun.skipped)

    def _hand_over_again(self, job: Job, message: RunMessage) -> Handled | None:
        """Hand over a run whose child did not decode before."""
        if message.dispatch != HAND_OVER_DISPATCH:
            return None
        return self._settled(job, self._runs.get(message.key), "handed over again")

    def _settled(self, job: Job, run: Run | None, reason: str, *, skipped: bool = False) -> Handled:
        """Settle *run* if it has ended. Its message is acknowledged."""
        unreadable = ""
        if run is not None and run.state.ended:
            unreadable = self._outcomes.settle(job, run)
        return Handled(
            Disposition.ACKNOWLEDGE,
            unreadable or reason,
            run,
            skipped=skipped,
            quarantined=bool(unreadable),
        )

    def _was_claimed(self, key: RunKey) -> bool:
        """Whether an executor has had the run. A second dispatch may be the first to reach one:
        the auditor repeats lost messages, and runs of moved jobs are passed on.
        """
        run = self._runs.get(key)
        return run is not None and run.fence > 0

    def _before(self, key: RunKey) -> Callable[[], Iterator[Run]]:
        """The records of the job's runs before *key*, the latest first. Each call reads again."""
        last = first_run_id(key.scheduled_at)
        return lambda: self._runs.between(
            key.job, "0", last, newest_first=True, page=_RECORDS, lenient=True
        )

    def _run_attempt(self, job: Job, run: Run, host: Host) -> Handled:
        """Make an attempt of a claimed run, and record the outcome."""
        supervisor = self._supervisor(run, host)
        attempted = self._target.attempt(
            job,
            with_upstream(self._jobs, self._runs, job, run, supervisor),
            supervisor,
            host.longest,
        )
        if attempted.verdict is Directive.LEASE_LOST:
            return Handled(
                Disposition.LEAVE, "lost the lease; nothing is recorded", run, None, True
            )
        now, result = self._clock.now(), attempted.result
        ending = None
        if attempted.verdict is not Directive.HAND_BACK:
            ending = decide_ending(job, run, result, now)
            if ending.deferred or ending.state is RunState.SKIPPED:
                result = replace(result, outcome=AttemptOutcome.DEFERRED)
            result = replace(result, reason=ending.reason or result.reason)
        followed = ending is None or ending.retry_at is not None
        # During a shutdown time is short, and the hand-back matters more than the log.
        parts = supervisor.close_log(followed=followed, at_once=ending is None)
        result = replace(result, log_parts=parts)
        if parts:
            log = supervisor.log
            result = replace(
                result,
                stdout=log.ends("stdout", result.stdout),
                stderr=log.ends("stderr", result.stderr),
            )
        return supervisor.retry_until_lease_ends(
            lambda: self._outcomes.record(
                job,
                run,
                supervisor.with_value(result, attempted.given),
                ending,
                host,
                now,
            )
        )

    def _supervisor(self, run: Run, host: Host) -> RunSupervisor:
        folder = RunFolder(run.key, self._terms.pool)
        log = RunLog(
            self._files,
            folder,
            run.fence,
            clock=self._clock,
            background=self._background,
            cap=self._terms.log_cap,
            inline_cap=self._terms.output_cap,
        )
        return RunSupervisor(
            self._runs,
            self._files,
            run,
            host,
            clock=self._clock,
            lease=self._terms.lease,
            log=log,
            folder=folder,
        )


_RECORDS = 5  # of a job's latest, per page
_UNKNOWN_VERSION_FOR = timedelta(minutes=5)
"""How long a message of a newer version is hidden. SQS keeps it for 1,000 receives: 3.5 days."""
_ENDS_AS = {ClaimAction.CANCEL: RunState.CANCELLED, ClaimAction.BURY: RunState.DEAD}
_MAX_MOVES = 1000
"""Maximum number of dispatches in a row without an attempt, before a pass to another pool."""


def _mark_lost(handled: Handled) -> Handled:
    return replace(handled, lost=True)
