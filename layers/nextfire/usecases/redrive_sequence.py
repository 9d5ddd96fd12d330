"""Redrive a sequence from one of its runs on."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.errors import ConflictError, NotFoundError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.redrive_plan import (
    Definition,
    RedriveAction,
    RedriveStep,
    check_definitions,
    plan_redrive,
)
from nextfire.domain.run import Run
from nextfire.domain.run_graph import RunNode
from nextfire.usecases.manage_runs import JOB_DELETED, REDRIVEN
from nextfire.usecases.read_sequence import read_whole_sequence
from nextfire.usecases.request_runs import check_pool


@dataclass(frozen=True, slots=True)
class RedriveSequence:
    """Starts runs of a sequence again, and keeps what succeeded. `executor`: reads several jobs, or
    writes several runs, concurrently.
    """

    jobs: JobStore
    runs: RunStore
    pools: Collection[str]
    clock: Clock
    executor: Executor

    def plan(
        self,
        key: RunKey,
        link: str,
        *,
        downstream: bool,
        definition: Definition = Definition.CURRENT,
    ) -> list[RedriveStep]:
        """What `redrive` would do now. Changes nothing.

        Raises:
            NotFoundError: The job of *key* does not exist, or it has another uid.
            InvalidInputError: *link* is not a job of the sequence of *key*.
            ConflictError: *definition* is RUN, and a job has changed, see `check_definitions`; or
                the sequence has too many jobs.
            UnavailableError: It was not read in time.
            UndecodableError: A run does not decode.
        """
        nodes = read_whole_sequence(self.jobs, self.runs, key, self.clock)
        steps = plan_redrive(nodes, link, downstream=downstream)
        if definition is Definition.RUN:
            check_definitions(steps)
        return steps

    def redrive(
        self,
        key: RunKey,
        link: str,
        *,
        downstream: bool,
        reason: str | None,
        definition: Definition = Definition.CURRENT,
        asked_at: datetime | None = None,
    ) -> list[RedriveStep]:
        """Carry out `plan`, and return it: first the runs that follow are made to await their
        parents, then the others start. If the call ends in between, those await parents that have
        not started again yet: repeat it. Of concurrent calls, one starts a run. *asked_at*: when
        this request was first sent, if it is a repetition; it does not start a run again that has
        started since then.

        Raises:
            NotFoundError, InvalidInputError, UnavailableError, UndecodableError: As `plan`.
            ConflictError: As `plan`; or a job was deleted, or its pool no longer exists. Nothing
                was changed.
        """
        steps = self.plan(key, link, downstream=downstream, definition=definition)
        starts = [
            step
            for step in steps
            if step.action is RedriveAction.RUN and not _has_started(step.node, link, asked_at)
        ]
        jobs = list(self.executor.map(lambda step: self._job(step.node.key), starts))
        for job in jobs:
            check_pool(job, self.pools)
        waiting = [
            step.node
            for step in steps
            if step.must_await and not _has_started(step.node, link, asked_at)
        ]
        # All of them before the first start: a parent may end at once.
        list(self.executor.map(lambda node: self._await_parents(node, link), waiting))
        ended = [step.node.run for step in starts if step.node.run]
        list(self.executor.map(lambda run, job: self._start(run, job, reason), ended, jobs))
        return steps

    def _job(self, key: RunKey) -> Job:
        job = self.jobs.get(key.job)
        if job is None or job.uid != key.uid:
            raise NotFoundError("execution", key.execution_id)
        if job.state is JobState.CANCELLED:
            raise ConflictError(*JOB_DELETED)
        return job

    def _await_parents(self, node: RunNode, link: str) -> None:
        if node.run is not None:
            # It stays on the record if the rule decides against a start.
            reason = (
                f"redriven from {link}: starts again after its parents if {node.rule} allows it"
            )
            self.runs.await_parents(node.run, node.run.awaiting_parents(reason))

    def _start(self, run: Run, job: Job, reason: str | None) -> None:
        now = cut(self.clock.now())
        to = run.redriven(reason or REDRIVEN, now)
        entry = job.dispatch_entry(run.key, now, to.dispatch)
        # If it is refused, another request has started the run.
        self.runs.redrive(to, entry, now, was=run.state)


def _has_started(node: RunNode, link: str, since: datetime | None) -> bool:
    """Whether the first attempt of a run, or the first since its last redrive, was made since
    *since*. The run of *link* counts only if a user has redriven it: it may have begun on its own.
    """
    run = node.run
    if run is None or since is None or (node.key.job.job_id == link and not run.restarted):
        return False
    begun = [each.started_at for each in run.since_redrive]
    return bool(begun) and min(begun) >= cut(since)
