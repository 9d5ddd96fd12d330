"""Cancel a run of a sequence and all runs below it that have not ended."""

from __future__ import annotations

from concurrent.futures import Executor

from nextfire.dataclass import dataclass, replace
from nextfire.domain.awaited import run_at
from nextfire.domain.cancel_plan import CancelAction, CancelStep, plan_cancel
from nextfire.domain.ids import RunKey
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.manage_runs import CANCELLED
from nextfire.usecases.read_parents import records_near
from nextfire.usecases.read_sequence import read_whole_sequence


@dataclass(frozen=True, slots=True)
class CancelSequence:
    """Cancels a part of a sequence at one logical time. `executor`: writes several runs
    concurrently.
    """

    jobs: JobStore
    runs: RunStore
    find: FindRun
    clock: Clock
    executor: Executor

    def plan(self, key: RunKey) -> list[CancelStep]:
        """What `cancel` would do now. Changes nothing.

        Raises:
            NotFoundError: The job of *key* does not exist, or it has another uid; or no job of the
                sequence has a run at that logical time, and none is due.
            ConflictError: The sequence has too many jobs.
            UnavailableError: It was not read in time.
            UndecodableError: A run does not decode.
        """
        nodes = read_whole_sequence(self.jobs, self.runs, key, self.clock)
        if all(node.run is None for node in nodes):
            self.find.find(key)
        steps = plan_cancel(nodes, key.job.job_id)
        absent = [step.node.key for step in steps if _is_to_prevent(step)]
        covers = dict(zip(absent, self.executor.map(self._range_over, absent), strict=True))
        nodes = [replace(node, run=node.run or covers.get(node.key)) for node in nodes]
        return plan_cancel(nodes, key.job.job_id)

    def cancel(self, key: RunKey, reason: str | None) -> list[CancelStep]:
        """Carry out `plan`, and return it. Runs without a record are first: they get a CANCELLED
        record, so the end of a parent starts none of them. If the call ends in between, repeat it.

        Raises:
            NotFoundError, ConflictError, UnavailableError, UndecodableError: As `plan`.
        """
        steps, because = self.plan(key), reason or CANCELLED
        chosen = [step.node for step in steps if step.action is CancelAction.CANCEL]
        absent = [step.node.key for step in steps if _is_to_prevent(step)]
        started = list(self.executor.map(lambda each: self._prevent(each, because), absent))
        runs = [*(node.run for node in chosen), *started]
        left = [run for run in runs if run is not None and not run.state.ended]
        list(self.executor.map(lambda run: self._stop(run, because), left))
        return steps

    def _range_over(self, key: RunKey) -> Run | None:
        """The record that covers the missed occurrence *key*: it must not get a second one."""
        at = key.scheduled_at
        run = run_at([*records_near(self.runs, key.job, at)], at)
        return run if run is not None and run.key.uid == key.uid else None

    def _prevent(self, key: RunKey, reason: str) -> Run:
        """Make a run CANCELLED that has no record. Returns the stored record, if it got one."""
        now = self.clock.now()
        return self.runs.cancel(RunMessage.of(key, 1, now), reason=reason, now=now)

    def _stop(self, run: Run, reason: str) -> None:
        self.runs.stop(run, reason=reason, now=self.clock.now())


def _is_to_prevent(step: CancelStep) -> bool:
    """Whether *step* gives a run its first record, so that it never starts."""
    return step.action is CancelAction.CANCEL and step.node.run is None
