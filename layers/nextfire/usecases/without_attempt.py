"""Handle the messages that lead to no attempt: the run is skipped, its job was deleted, or the
message is about its parents or children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.decisions import decide_covered, decide_pickup, range_over
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import HAND_OVER_DISPATCH, TIME_DISPATCH, RunMessage
from nextfire.domain.ports.queues import Delivery
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.earlier_runs import earlier_runs
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.hand_over import HandOver
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.past_deadline import past_deadline
from nextfire.usecases.record_outcome import RecordOutcome
from nextfire.usecases.timed_runs import JOIN_END_DISPATCH

_ON_REQUEST = 5
"""Number of records of runs on request after which it is checked whether this run is one too."""


@dataclass(frozen=True, slots=True)
class WithoutAttempt:
    """Handles the messages whose run must not start."""

    ports: ExecutorPorts
    pool: str
    hand_over: HandOver
    outcomes: RecordOutcome

    def handle(self, job: Job, message: RunMessage) -> Handled | None:
        """Return what was done instead of an attempt; None if the run may start."""
        return (
            self._end_join(job, message)
            or self._begin_timed(job, message)
            or self._hand_over_again(job, message)
            or self._skip(job, message)
        )

    def of_deleted_job(self, message: RunMessage, delivery: Delivery) -> Handled:
        """End the run of a job that was deleted or CANCELLED."""
        if message.dispatch in (JOIN_END_DISPATCH, HAND_OVER_DISPATCH):
            return Handled(Disposition.ACKNOWLEDGE, "its job was deleted")
        now = self.ports.clock.now()
        covered = range_over(message.key, self._near_ranges(message.key))
        if covered is not None and self.ports.runs.get(message.key) is None:
            return Handled(Disposition.ACKNOWLEDGE, covered.reason or "", covered)
        first = message.model_copy(update={"dispatch": 1})
        of_time = message.dispatch == TIME_DISPATCH
        run = self.ports.runs.cancel(
            first if of_time else message, reason="its job was deleted", now=now
        )
        if run.state is not RunState.RUNNING:
            self.outcomes.publish_death(run, exclusive=message.exclusive)
            return Handled(Disposition.ACKNOWLEDGE, "its job was deleted", run)
        if run.lease_until is not None and run.lease_until > now:
            delivery.hide(run.lease_until - now)
            return Handled(Disposition.LEAVE, f"runs on {run.worker}", run)
        result = Result(AttemptOutcome.WORKER_LOST, "its worker vanished, its job was deleted")
        ended = run.ended(RunState.CANCELLED, result, now)
        claim = self.ports.runs.advance(run, ended, lapsed=True)
        return Handled(Disposition.LEAVE, result.reason, claim.run, lost=claim.taken)

    def _skip(self, job: Job, message: RunMessage) -> Handled | None:
        """Record the run as skipped, if it must not start and was never claimed."""
        key, now = message.key, self.ports.clock.now()
        # A second dispatch may be the first to reach an executor: the auditor repeats lost
        # messages, and runs of moved jobs are passed on.
        known = self.ports.runs.get(key) if message.dispatch > 1 else None
        if known is not None and known.state.ended:  # do not count it, or probe with it
            return self.outcomes.settled(job, known, f"has ended {known.state}")
        if known is not None and known.fence > 0:
            return None
        covered = decide_covered(job, key, now, lambda: self._near_ranges(key))
        # A run that was claimed keeps its record, and this message continues it.
        if covered is not None and self.ports.runs.get(key) is None:
            # The writer of the range may have died before it completed the job.
            return self.outcomes.settled(job, covered, covered.reason or "")
        reason = past_deadline(self.ports.jobs, self.ports.runs, job, key, now) or decide_pickup(
            job, key, now, self._before(key), dispatched_at=message.dispatched_at
        )
        if reason is None:
            return None
        at = message.dispatched_at
        run = self.ports.runs.skip(Run.skipped(key, reason, now, pool=self.pool, dispatched_at=at))
        if run.state is RunState.PENDING and run.on_request and not run.restarted:
            # Only its record has the trigger; only a few runs need this second check.
            reason = decide_pickup(job, key, now, self._before(key), trigger=run.trigger)
            if reason is not None:
                run = self.ports.runs.skip(
                    run.passed_over(reason, now, pool=self.pool, dispatched_at=at)
                )
        if run.state is not RunState.SKIPPED:
            return None
        return self.outcomes.settled(job, run, run.reason or reason or "", skipped=True)

    def _end_join(self, job: Job, message: RunMessage) -> Handled | None:
        """Handle the end of a join, which is never the start of a run."""
        if message.dispatch != JOIN_END_DISPATCH:
            return None
        ended = self.hand_over.end_join(job, message)
        return self.outcomes.settled(job, ended.run, ended.reason, skipped=ended.skipped)

    def _begin_timed(self, job: Job, message: RunMessage) -> Handled | None:
        """Handle the time of a run with parents, which is never the start of the run."""
        if message.dispatch != TIME_DISPATCH:
            return None
        key = message.key
        covered = decide_covered(job, key, self.ports.clock.now(), lambda: self._near_ranges(key))
        if covered is not None and self.ports.runs.get(key) is None:
            return self.outcomes.settled(job, covered, covered.reason or "")
        begun = self.hand_over.begin_timed(job, message)
        return self.outcomes.settled(job, begun.run, begun.reason, skipped=begun.skipped)

    def _hand_over_again(self, job: Job, message: RunMessage) -> Handled | None:
        """Hand over a run whose child did not decode before."""
        if message.dispatch != HAND_OVER_DISPATCH:
            return None
        return self.outcomes.settled(job, self.ports.runs.get(message.key), "handed over again")

    def _near_ranges(self, key: RunKey) -> Iterator[Run]:
        """The records before *key*, the latest first, as far as one of them may be a range over it.

        A range never covers a run on request, which has a record from the start. So the late runs
        of a job with a thousand runs on request do not read a thousand records each.
        """
        on_request = 0
        for run in earlier_runs(self.ports.runs, key):
            if run.trigger is Trigger.MANUAL:
                on_request += 1
                if on_request == _ON_REQUEST and self.ports.runs.get(key) is not None:
                    return
            yield run

    def _before(self, key: RunKey) -> Callable[[], Iterator[Run]]:
        """The records of the job's runs before *key*, the latest first. Each call reads again."""
        return lambda: earlier_runs(self.ports.runs, key)
