"""Carry out one message: claim the run, run its script, record the outcome, settle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from nextfire.domain.decisions import (
    ClaimAction,
    decide_claim,
    decide_covered,
    decide_ending,
    decide_pickup,
)
from nextfire.domain.due import DueEntry, DueKind
from nextfire.domain.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UndecodableError,
    shorten,
)
from nextfire.domain.ids import RunKey, content_id, dedup_id, runs_from
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job, JobState
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports import (
    Clock,
    DeadLetters,
    Delivery,
    DueStore,
    JobStore,
    RunStore,
    ScriptCall,
    ScriptExit,
    ScriptRunner,
    ScriptStore,
    Verdict,
)
from nextfire.domain.run import AttemptOutcome, Result, Run, RunState
from nextfire.domain.script import script_url


class Disposition(Enum):
    """What the host does with the message."""

    ACKNOWLEDGE = "ACKNOWLEDGE"  # delete it
    LEAVE = "LEAVE"  # it comes again when its visibility, already set, ends


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of a message. `run` is its record if one is known; `outcome` of an attempt made
    here.
    """

    disposition: Disposition
    reason: str
    run: Run | None = None
    outcome: AttemptOutcome | None = None
    started: bool = False
    lost: bool = False
    quarantined: bool = False
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which a worker works. `worker` names it on the records."""

    worker: str
    pool: str
    scripts_bucket: str
    lease: timedelta

    @property
    def heartbeat(self) -> timedelta:
        return self.lease / 3


class ExecuteRun:
    """The executor's core, the same in the Lambda function and in the worker process."""

    def __init__(
        self,
        *,
        jobs: JobStore,
        runs: RunStore,
        due: DueStore,
        scripts: ScriptStore,
        runner: ScriptRunner,
        dead_letters: DeadLetters,
        clock: Clock,
        terms: Terms,
        new_token: Callable[[], str],
    ) -> None:
        self._jobs = jobs
        self._runs = runs
        self._due = due
        self._scripts = scripts
        self._runner = runner
        self._dead_letters = dead_letters
        self._clock = clock
        self._terms = terms
        self._new_token = new_token

    def handle(
        self,
        delivery: Delivery,
        *,
        stopping: Callable[[], bool],
        longest: timedelta = timedelta.max,
    ) -> Handled:
        """Do what *delivery*, already hidden for the length of a lease, asks for.

        Args:
            delivery: The message.
            stopping: Asked several times a second; True makes the run be handed back.
            longest: What a script may take here at most, whatever its job's timeout says. One that
                takes longer is TIMED_OUT: handed back, it would begin anew without end.

        Raises:
            UnavailableError: A store did not answer. Leave the message: it comes again.
        """
        try:
            message = decode_message(delivery.body)
        except UndecodableError as error:
            failure = shorten(str(error), 500)
            self._dead_letters.put(delivery.body, failure, dedup=content_id(delivery.body))
            return Handled(Disposition.ACKNOWLEDGE, failure, quarantined=True)
        if stopping():
            delivery.hide(timedelta())
            return Handled(Disposition.LEAVE, "this executor stops")
        host = _Host(delivery, stopping, longest)
        try:
            job = self._jobs.get(message.key.job)
            if job is None or job.uid != message.key.uid or job.state is JobState.CANCELLED:
                return self._without_job(message, delivery)
            return self._skip(job, message) or self._with_job(job, message, host)
        except UndecodableError as error:
            # The job or the run: mended, it goes on. The message waits for that in the queue.
            return Handled(Disposition.LEAVE, shorten(str(error), 500), quarantined=True)

    def _without_job(self, message: RunMessage, delivery: Delivery) -> Handled:
        now = self._clock.now()
        run = self._runs.cancel(message, reason="its job was deleted", now=now)
        if run.state is not RunState.RUNNING:
            self._bury(run, exclusive=message.exclusive)
            return Handled(Disposition.ACKNOWLEDGE, "its job was deleted", run)
        if run.lease_until is not None and run.lease_until > now:
            delivery.hide(run.lease_until - now)
            return Handled(Disposition.LEAVE, f"runs on {run.worker}", run)
        result = Result(AttemptOutcome.WORKER_LOST, "its worker vanished, its job was deleted")
        claim = self._runs.advance(run, run.ended(RunState.CANCELLED, result, now))
        return Handled(Disposition.LEAVE, result.reason, claim.run, lost=claim.taken)

    def _with_job(self, job: Job, message: RunMessage, host: _Host) -> Handled:
        policy = job.definition.retry_policy
        token = self._new_token()
        while True:
            now = self._clock.now()
            claim = self._runs.claim(
                message,
                token=token,
                worker=self._terms.worker,
                pool=self._terms.pool,
                job_revision=job.revision,
                now=now,
                lease_until=now + self._terms.lease,
            )
            if claim.taken:
                return self._work(job, claim.run, host)
            decision = decide_claim(claim.run, message, policy, now)
            match decision.action:
                case ClaimAction.AGAIN:
                    continue
                case ClaimAction.SETTLE:
                    self._settle(job, claim.run)
                    return Handled(Disposition.ACKNOWLEDGE, decision.reason, claim.run)
                case ClaimAction.ACKNOWLEDGE:
                    return Handled(Disposition.ACKNOWLEDGE, decision.reason, claim.run)
                case ClaimAction.WAIT:
                    assert decision.until is not None  # noqa: S101 — for the type checker
                    host.delivery.hide(decision.until - now)
                    return Handled(Disposition.LEAVE, decision.reason, claim.run)
                case ClaimAction.TAKE_OVER:
                    was, to = (
                        claim.run,
                        claim.run.taken_over(
                            dispatch=message.dispatch,
                            token=token,
                            worker=self._terms.worker,
                            now=now,
                            lease_until=now + self._terms.lease,
                        ),
                    )
                    claim = self._runs.advance(was, to)
                    if claim.taken:
                        done = self._work(job, claim.run, host)
                        return _with_loss(done)
                case ClaimAction.CANCEL if claim.run.state is RunState.PENDING:
                    # The next round finds it ended, and settles.
                    self._runs.cancel(message, reason=decision.reason, now=now)
                case ClaimAction.CANCEL | ClaimAction.BURY:
                    state = (
                        RunState.CANCELLED
                        if decision.action is ClaimAction.CANCEL
                        else RunState.DEAD
                    )
                    result = Result(AttemptOutcome.WORKER_LOST, decision.reason)
                    ended = self._end(job, claim.run, state, result, now)
                    if ended is not None:
                        return _with_loss(ended)

    def _skip(self, job: Job, message: RunMessage) -> Handled | None:
        """Put on record that the run is not to start, where that is so and it never has."""
        if message.dispatch > 1:
            return None
        key, now = message.key, self._clock.now()
        covered = decide_covered(job, key, now, self._before(key))
        if covered is not None:
            return Handled(Disposition.ACKNOWLEDGE, covered.reason or "", covered)
        reason = decide_pickup(job, key, now, self._before(key))
        if reason is None:
            return None
        skipped = Run.skipped(
            key, reason, now, pool=self._terms.pool, dispatched_at=message.dispatched_at
        )
        run = self._runs.skip(skipped)
        if run.state is not RunState.SKIPPED:
            return None
        self._settle(job, run)
        return Handled(Disposition.ACKNOWLEDGE, run.reason or reason, run, skipped=True)

    def _before(self, key: RunKey) -> Callable[[], Iterator[Run]]:
        """The records of the job's runs before *key*, the latest first."""
        last = runs_from(key.scheduled_at)
        return lambda: self._runs.between(
            key.job, "0", last, newest_first=True, page=_RECORDS, lenient=True
        )

    def _work(self, job: Job, run: Run, host: _Host) -> Handled:
        """Run the script of a run that is ours, and record what came of it."""
        heart = _Heart(self._runs, run, host, self._clock, self._terms)
        result, verdict = self._attempt(job, run, heart, host.longest)
        if verdict is Verdict.LEASE_LOST:
            return Handled(
                Disposition.LEAVE, "the lease was lost; nothing is recorded", run, None, True
            )
        now = self._clock.now()
        return heart.insist(lambda: self._record(job, run, result, verdict, host, now))

    def _record(
        self,
        job: Job,
        run: Run,
        result: Result,
        verdict: Verdict,
        host: _Host,
        now: datetime,
    ) -> Handled:
        """Write down what came of an attempt. Done again, it finds what it wrote."""
        if verdict is Verdict.HAND_BACK:
            claim = self._runs.advance(run, run.handed_back(result.reason, now))
            host.delivery.hide(timedelta())
            return Handled(Disposition.LEAVE, result.reason, claim.run, None, True)
        ending = decide_ending(run, result, job.definition.retry_policy, now)
        if ending.retry_at is None:
            handled = self._end(job, run, ending.state, result, now)
        else:
            handled = self._retry(job, run, result, ending.retry_at, now)
        if handled is None:
            return Handled(
                Disposition.LEAVE,
                "another worker has the run; nothing is recorded",
                run,
                None,
                True,
            )
        return handled

    def _attempt(
        self, job: Job, run: Run, heart: _Heart, longest: timedelta
    ) -> tuple[Result, Verdict]:
        definition = job.definition
        timeout = min(definition.timeout, longest)
        try:
            url = script_url(
                definition.target, bucket=self._terms.scripts_bucket, tenant=job.key.tenant
            )
            source = self._scripts.fetch(url)
        except (NotFoundError, InvalidInputError) as error:
            return Result(AttemptOutcome.FAILED, str(error), permanent=True), Verdict.GO_ON
        except UnavailableError as error:
            return Result(AttemptOutcome.FAILED, str(error)), Verdict.GO_ON
        call = ScriptCall(
            name=definition.target.handler or url.rsplit("/", 1)[-1].removesuffix(".py"),
            source=source,
            payload=json.dumps(definition.payload),
            timeout=timeout,
            context=_context(job, run, self._clock.now() + timeout),
        )
        return _result(self._runner.run(call, heart.ask), timeout, heart.cancel_reason)

    def _end(
        self,
        job: Job,
        run: Run,
        state: RunState,
        result: Result,
        now: datetime,
    ) -> Handled | None:
        """End the run; None if it is no longer ours to end."""
        claim = self._runs.advance(run, run.ended(state, result, now))
        if not claim.taken:
            return None
        self._settle(job, claim.run)
        return Handled(
            Disposition.ACKNOWLEDGE,
            result.reason,
            claim.run,
            result.outcome,
            result.outcome is not AttemptOutcome.WORKER_LOST,
        )

    def _retry(
        self, job: Job, run: Run, result: Result, at: datetime, now: datetime
    ) -> Handled | None:
        """Have the run dispatched again at *at*: first the due entry, then the record.

        If we die between the two, the entry's message finds the run RUNNING, waits for the lease
        and takes over; the other way round the run would wait for a message that nobody sends.
        """
        entry = DueEntry(
            DueKind.RETRY,
            job.key,
            job.uid,
            at,
            run_id=run.key.run_id,
            dispatch=run.dispatch + 1,
            pool=job.definition.target.pool,
            rank=job.definition.priority.rank,
            exclusive=job.exclusive,
        )
        # Done again, this may be a while after *now*: an entry's bucket is that of its writing.
        if not self._due.put([entry], self._clock.now()):
            raise UnavailableError("The retry could not be stored. Try again.")
        claim = self._runs.advance(run, run.retrying(result, now, not_before=at))
        if not claim.taken:
            return None
        reason = f"{result.reason}; next attempt at {isoformat(at)}"
        return Handled(Disposition.ACKNOWLEDGE, reason, claim.run, result.outcome, True)

    def _settle(self, job: Job, run: Run) -> None:
        """Do what follows from an ended run. Idempotent: a redelivered message does it again."""
        self._bury(run, exclusive=job.exclusive)
        if job.state is JobState.ACTIVE and job.is_last(run.key.scheduled_at):
            self._jobs.complete(job, self._clock.now())

    def _bury(self, run: Run, *, exclusive: bool) -> None:
        """If the run is DEAD, leave its message with the failure in the dead-letter queue."""
        if run.state is not RunState.DEAD:
            return
        message = RunMessage(
            tenant=run.key.job.tenant,
            job_id=run.key.job.job_id,
            run_id=run.key.run_id,
            dispatch=run.dispatch,
            dispatched_at=run.dispatched_at or run.key.scheduled_at,
            exclusive=exclusive,
        )
        self._dead_letters.put(
            message.encode(), run.reason or "", dedup=dedup_id(run.key, run.dispatch)
        )


_AGAIN_AFTER = timedelta(seconds=1)
_RECORDS = 5  # of a job's latest, read at once


@dataclass(frozen=True, slots=True)
class _Host:
    """What an executor's host gives for one message; see `ExecuteRun.handle`."""

    delivery: Delivery
    stopping: Callable[[], bool]
    longest: timedelta


class _Heart:
    """Keeps a run's lease and message alive while its script runs."""

    def __init__(self, runs: RunStore, run: Run, host: _Host, clock: Clock, terms: Terms) -> None:
        self._runs = runs
        self._run = run
        self._delivery = host.delivery
        self._clock = clock
        self._terms = terms
        self._stopping = host.stopping
        self._beat_at = clock.now() + terms.heartbeat
        self._lease_until = run.lease_until or clock.now()
        self.cancel_reason = "cancelled on request"

    def insist(self, write: Callable[[], Handled]) -> Handled:
        """Do *write* until the store answers, as long as the lease stands: what a script has done
        is not thrown away for one refused request.

        Raises:
            UnavailableError: It did not answer in that time.
        """
        while True:
            try:
                return write()
            except UnavailableError:
                if self._clock.now() + _AGAIN_AFTER >= self._lease_until:
                    raise
                self._clock.sleep(_AGAIN_AFTER)

    def ask(self) -> Verdict:
        now = self._clock.now()
        if now >= self._lease_until:
            # Another worker may have the run by now.
            return Verdict.LEASE_LOST
        if self._stopping():
            return Verdict.HAND_BACK
        if now < self._beat_at:
            return Verdict.GO_ON
        try:
            extended = self._runs.extend(self._run, lease_until=now + self._terms.lease)
            if extended is None:
                return Verdict.LEASE_LOST
            self._lease_until = now + self._terms.lease
            self._beat_at = now + self._terms.heartbeat
            self._delivery.hide(self._terms.lease)
        except UnavailableError:
            # The lease still stands; asked again at once until it does not.
            return Verdict.GO_ON
        self.cancel_reason = extended.cancel_reason or self.cancel_reason
        return Verdict.CANCEL if extended.cancel_requested else Verdict.GO_ON


def _with_loss(handled: Handled) -> Handled:
    return replace(handled, lost=True)


def _result(ended: ScriptExit, timeout: timedelta, cancel_reason: str) -> tuple[Result, Verdict]:
    if ended.error is not None:
        outcome, reason = AttemptOutcome.FAILED, ended.error
    elif ended.stopped is Verdict.CANCEL:
        outcome, reason = AttemptOutcome.CANCELLED, cancel_reason
    elif ended.stopped is Verdict.HAND_BACK:
        outcome, reason = AttemptOutcome.HANDED_BACK, "its worker shut down"
    elif ended.timed_out:
        outcome = AttemptOutcome.TIMED_OUT
        reason = f"did not end within {int(timeout.total_seconds())} s"
    elif ended.exit_code == 0:
        outcome, reason = AttemptOutcome.SUCCEEDED, "exit code 0"
    elif ended.exit_code is not None and ended.exit_code < 0:
        outcome, reason = AttemptOutcome.FAILED, f"killed by signal {-ended.exit_code}"
    else:
        outcome, reason = AttemptOutcome.FAILED, f"exit code {ended.exit_code}"
    result = Result(outcome, reason, ended.exit_code, ended.stdout, ended.stderr)
    return result, ended.stopped


def _context(job: Job, run: Run, deadline: datetime) -> dict[str, str]:
    return {
        "NEXTFIRE_EXECUTION_ID": run.key.execution_id,
        "NEXTFIRE_SCHEDULED_AT": isoformat(run.key.scheduled_at),
        "NEXTFIRE_ATTEMPT": str(run.attempt),
        "NEXTFIRE_DEADLINE": isoformat(deadline),
        "NEXTFIRE_JOB_ID": job.key.job_id,
        "NEXTFIRE_TENANT": job.key.tenant,
    }
