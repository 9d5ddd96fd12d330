"""Make one attempt of a claimed run, and record its outcome."""

from __future__ import annotations

from dataclasses import replace

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.endings import decide_ending
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.ids import RunFolder
from nextfire.domain.job import Job
from nextfire.domain.message import recordable
from nextfire.domain.misfire import too_late_to_begin
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.ports.targets import AttemptResult
from nextfire.domain.run import Run, RunState
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.read_upstream import with_upstream
from nextfire.usecases.record_outcome import RecordOutcome
from nextfire.usecases.run_log import RunLog
from nextfire.usecases.run_supervisor import Host, RunSupervisor


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """Makes attempts of runs that this executor has claimed."""

    ports: ExecutorPorts
    config: ExecutorConfig
    outcomes: RecordOutcome

    def make(self, job: Job, run: Run, host: Host) -> Handled:
        """Make an attempt of a claimed run, and record the outcome."""
        supervisor = self._supervisor(run, host)
        too_late = too_late_to_begin(job, run, self.ports.clock.now())
        if host.given_up is not None:
            reason = host.given_up.reason
            attempted = AttemptResult.failed(reason, unavailable=True, permanent=True)
        elif too_late is not None:
            attempted = AttemptResult.failed(too_late, unavailable=True)
        elif job.definition.target.pool == self.config.pool:
            attempted = self._attempt(job, run, supervisor, host)
        else:
            attempted = _without_pool(job.definition.target.pool)
        if attempted.verdict is Directive.LEASE_LOST:
            return Handled(
                Disposition.LEAVE, "lost the lease; nothing is recorded", run, None, True
            )
        now, result = self.ports.clock.now(), attempted.result
        ending = None
        if attempted.verdict is not Directive.HAND_BACK:
            ending = decide_ending(job, run, result, now)
            if ending.deferred or ending.state is RunState.SKIPPED:
                result = replace(result, outcome=AttemptOutcome.DEFERRED)
            result = replace(result, reason=ending.reason or result.reason)
        followed = ending is None or ending.retry_at is not None
        # During a shutdown time is short, and the hand-back matters more than the log.
        # The next attempt after a redrive replaces the output on the record, too.
        last = ending is not None and ending.state is RunState.SUCCEEDED
        parts = supervisor.close_log(followed=not last, at_once=ending is None)
        result = replace(result, log_parts=parts)
        log = supervisor.log
        if parts and (followed or not log.is_short):
            result = replace(
                result,
                stdout=log.ends("stdout", result.stdout),
                stderr=log.ends("stderr", result.stderr),
            )
        return supervisor.retry(
            lambda: self.outcomes.record(
                job,
                run,
                supervisor.with_value(result, attempted.given),
                ending,
                host,
                now,
            )
        )

    def _attempt(self, job: Job, run: Run, supervisor: RunSupervisor, host: Host) -> AttemptResult:
        try:
            informed = with_upstream(self.ports.jobs, self.ports.runs, job, run, supervisor)
        except (UndecodableError, InvalidInputError, UnavailableError) as error:
            # Deferred: its target has not started.
            reason = recordable(f"the runs of its parents cannot be read: {error}")
            return AttemptResult.failed(reason, unavailable=True)
        return self.ports.target.attempt(job, informed, supervisor, host.longest)

    def _supervisor(self, run: Run, host: Host) -> RunSupervisor:
        folder = RunFolder(run.key, self.config.pool)
        log = RunLog(
            self.ports.files,
            folder,
            run.fence,
            clock=self.ports.clock,
            background=self.ports.background,
            cap=self.config.log_cap,
            inline_cap=self.config.output_cap,
        )
        return RunSupervisor(
            self.ports.runs,
            self.ports.files,
            run,
            host,
            clock=self.ports.clock,
            lease=self.config.lease,
            log=log,
            folder=folder,
        )


def _without_pool(pool: str) -> AttemptResult:
    """The result of an attempt in place of the executors of *pool*, which no longer exists."""
    reason = (
        f"its pool {pool!r} no longer exists. Add the pool to the settings again, or change "
        "target.pool of the job; then redrive the run"
    )
    return AttemptResult.failed(reason, permanent=True)
