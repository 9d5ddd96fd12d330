"""Record the outcome of an attempt, and do what follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.decisions import is_last
from nextfire.domain.endings import Ending
from nextfire.domain.errors import NotSettledError, UnavailableError
from nextfire.domain.events import execution_dead
from nextfire.domain.ids import dedup_id
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.runs import Claim
from nextfire.domain.retention import RunRetention
from nextfire.domain.run import Run, RunState
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.hand_over import HandOver
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.run_supervisor import Host


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """Records outcomes in the order that a crash at any call survives."""

    ports: ExecutorPorts
    hand_over: HandOver
    retention: RunRetention

    def record(
        self,
        job: Job,
        run: Run,
        result: Result,
        ending: Ending | None,
        host: Host,
        now: datetime,
    ) -> Handled:
        """Record the outcome of an attempt. If *ending* is None, the run is handed back.
        Idempotent: repeated, it finds what it wrote.
        """
        self._pause(job, result)
        handled = (
            self._hand_back(job, run, result, host, now)
            if ending is None
            else self.end(job, run, ending.state, result, now)
            if ending.retry_at is None
            else self.retry(job, run, result, ending.retry_at, now)
        )
        if handled is None:
            return Handled(
                Disposition.LEAVE,
                "another worker has the run; nothing is recorded",
                run,
                None,
                True,
            )
        return handled

    def _hand_back(
        self, job: Job, run: Run, result: Result, host: Host, now: datetime
    ) -> Handled | None:
        """Give up the run: the next worker that receives its message continues it."""
        claim = self.ports.runs.advance(run, run.handed_back(result, now))
        if _refused_for_cancel(claim, run):
            return self.end(job, run, RunState.CANCELLED, _cancelled(result, claim), now)
        host.delivery.hide(timedelta())
        return Handled(Disposition.LEAVE, result.reason, claim.run, None, True)

    def end(
        self,
        job: Job,
        run: Run,
        state: RunState,
        result: Result,
        now: datetime,
    ) -> Handled | None:
        """End the run; None if this worker no longer owns it.

        Raises:
            NotSettledError: It has ended, and what follows is not done.
        """
        lapsed = result.outcome is AttemptOutcome.WORKER_LOST
        kept = self.retention.of(job, state, run.trigger)
        ended = replace(run.ended(state, result, now), kept=kept)
        claim = self.ports.runs.advance(run, ended, lapsed=lapsed)
        if _refused_for_cancel(claim, run):
            result = _cancelled(result, claim)
            ended = run.ended(RunState.CANCELLED, result, now)
            claim = self.ports.runs.advance(run, ended, lapsed=lapsed)
        if not claim.taken:
            return None
        try:
            unreadable = self.settle(job, claim.run, again=False)
        except UnavailableError as error:
            raise NotSettledError(str(error)) from error
        return Handled(
            Disposition.ACKNOWLEDGE,
            unreadable or result.reason,
            claim.run,
            result.outcome,
            result.outcome is not AttemptOutcome.WORKER_LOST,
            quarantined=bool(unreadable),
        )

    def retry(
        self, job: Job, run: Run, result: Result, at: datetime, now: datetime
    ) -> Handled | None:
        """Schedule the next dispatch at *at*: first store the due entry, then the record. None if
        this worker no longer owns the run.

        If we die between the two, the entry's message finds the run RUNNING, waits for the lease
        and takes over. In the reverse order the run would wait for a message that is never sent.
        """
        entry = job.dispatch_entry(run.key, at, run.dispatch + 1)
        # A repetition may come long after *now*: the bucket of an entry depends on its write time.
        if not self.ports.due.put([entry], self.ports.clock.now()):
            raise UnavailableError("The retry could not be stored. Try again.")
        lapsed = result.outcome is AttemptOutcome.WORKER_LOST
        claim = self.ports.runs.advance(
            run, run.retrying(result, now, not_before=at), lapsed=lapsed
        )
        if _refused_for_cancel(claim, run):
            # Cancelled while it failed. The entry's message finds the run ended.
            return self.end(job, run, RunState.CANCELLED, _cancelled(result, claim), now)
        if not claim.taken:
            return None
        reason = f"{result.reason}; next attempt at {isoformat(at)}"
        return Handled(Disposition.ACKNOWLEDGE, reason, claim.run, result.outcome, not lapsed)

    def _pause(self, job: Job, result: Result) -> None:
        """Pause the job if its target asked for it. If the job has changed since it was read, it is
        not paused: the next run asks again.
        """
        if result.pause is not None and job.state is JobState.ACTIVE:
            self.ports.jobs.pause(job, result.pause, self.ports.clock.now())

    def settle(self, job: Job, run: Run, *, again: bool) -> str:
        """Do the follow-up of an ended run. Idempotent: with *again*, a redelivered message repeats
        it. Returns what of its children does not decode, if anything; it does not affect the rest.
        If the death cannot be published, the rest is done before the error is raised: children may
        clean up.
        """
        unpublished: Exception | None = None
        try:
            self.publish_death(run, exclusive=job.exclusive, again=again)
        except Exception as error:  # noqa: BLE001 — raised below
            unpublished = error
        unreadable = self.hand_over.follow(job, run)
        if job.state is JobState.ACTIVE and is_last(job, run):
            self.ports.jobs.complete(job, self.ports.clock.now())
        if unpublished is not None:
            raise unpublished
        return unreadable

    def settled(self, job: Job, run: Run | None, reason: str, *, skipped: bool = False) -> Handled:
        """Settle *run* if it has ended. Its message is acknowledged."""
        unreadable = ""
        if run is not None and run.state.ended:
            unreadable = self.settle(job, run, again=True)
        return Handled(
            Disposition.ACKNOWLEDGE,
            unreadable or reason,
            run,
            skipped=skipped,
            quarantined=bool(unreadable),
        )

    def publish_death(self, run: Run, *, exclusive: bool, again: bool = True) -> None:
        """Publish the death of a DEAD run, once: its message, with the failure, goes to the
        dead-letter queue, and an event is sent. *again*: in the reverse order. The letter was
        probably stored, and an outage of the event bus must not store it with each delivery.
        """
        if run.state is not RunState.DEAD or run.buried == run.dispatch:
            return
        event = execution_dead(run, self.ports.clock.now())
        if again:
            self.ports.events.put(event)
        sent_at = run.dispatched_at or run.key.scheduled_at
        message = RunMessage.of(run.key, run.dispatch, sent_at, exclusive=exclusive)
        self.ports.dead_letters.put(
            message.encode(), run.reason or "", dedup=dedup_id(run.key, run.dispatch)
        )
        if not again:
            self.ports.events.put(event)
        self.ports.runs.mark_death_published(run)


def _refused_for_cancel(claim: Claim, run: Run) -> bool:
    """Whether *claim*, an update of *run*, was refused because a cancel was requested."""
    stored = claim.run
    return (
        not claim.taken
        and stored.fence == run.fence
        and stored.state is RunState.RUNNING
        and stored.cancel_requested
    )


def _cancelled(result: Result, claim: Claim) -> Result:
    return replace(result, reason=claim.run.cancel_reason or result.reason)
