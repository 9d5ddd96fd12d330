"""Start runs on request: now, or one that sends an earlier request again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime

from pydantic import JsonValue

from nextfire.dataclass import dataclass, replace
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import ConflictError, UnavailableError
from nextfire.domain.ids import JobKey, RunKey, first_run_id
from nextfire.domain.instants import MOMENT, cut
from nextfire.domain.job import Job
from nextfire.domain.job_versions import has_occurrence, version_at
from nextfire.domain.occurrences import JobState
from nextfire.domain.pool_names import available
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas, check_payload
from nextfire.domain.replay import Replay, sent_digest
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.check_definition import check_payload_size
from nextfire.usecases.find_run import FindRun, PendingOccurrence
from nextfire.usecases.job_revisions import job_of

REQUESTED = "run on request"
REPLAYED = "sent again on request"
"""Default reasons."""
_MAX_OFFSET = 100 * MOMENT
"""Maximum offset of a requested run from its request: concurrent requests move it."""


@dataclass(frozen=True, slots=True)
class RequestRuns:
    """Starts runs in addition to the schedules of their jobs. `quotas`: each tenant's maximums.
    `check_run_payload`: raises InvalidInputError if the job cannot run with a payload.
    """

    jobs: JobStore
    runs: RunStore
    find: FindRun
    pools: Collection[str]
    clock: Clock
    quotas: TenantQuotas = NO_QUOTAS
    check_run_payload: Callable[[JobDefinition, JsonValue], None] = lambda *_: None

    def run_now(
        self,
        key: JobKey,
        *,
        payload: str | None,
        reason: str | None,
        request: str,
        asked_at: datetime,
        replay_of: Replay | None = None,
    ) -> Run:
        """Start a run of the job now, in addition to its schedule, which is not affected.

        Args:
            key: The job, in any state but CANCELLED.
            payload: JSON that replaces the payload of the job; None: the job's payload at the start
                of the run.
            reason: Why.
            request: Id of the request. A repetition finds the run that the first one created.
            asked_at: When the request was first sent. The run is scheduled for this instant or a
                few milliseconds later: never at an occurrence of the schedule.
            replay_of: The request to send again; None: a new one.

        Returns:
            The record of the run, which may have progressed since.

        Raises:
            NotFoundError: The job does not exist.
            ConflictError: It is CANCELLED, or its pool no longer exists.
            InvalidInputError: The payload is too large, or lacks what the job's template names.
        """
        at = cut(asked_at)
        near = self.runs.between(
            key, first_run_id(at), first_run_id(at + _MAX_OFFSET), lenient=True
        )
        for run in near:
            if run.request == request:
                return run
        size = len(payload.encode()) if payload is not None else 0
        check_payload_size(size)
        check_payload(size, self.quotas.of(key.tenant))
        job = job_of(self.jobs, key)
        if job.state is JobState.CANCELLED:
            raise ConflictError("The job is CANCELLED", "Recreate it: it no longer runs.")
        if payload is not None and replay_of is None:
            self.check_run_payload(job.definition, json.loads(payload))
        check_pool(job, self.pools)
        while at <= cut(asked_at) + _MAX_OFFSET:
            # Not a whole second, so that it never meets an occurrence, even of a later schedule.
            if at.microsecond == 0 or has_occurrence(version_at(job, at) or job, at):
                at += MOMENT
                continue
            run = Run(
                job.run_key(at),
                RunState.PENDING,
                reason=reason or REQUESTED,
                trigger=Trigger.MANUAL,
                request=request,
                request_reason=reason,
                payload=payload,
                replay_of=replay_of,
            )
            entry = job.dispatch_entry(run.key, asked_at, run.dispatch)
            entry = replace(entry, trigger=Trigger.MANUAL)
            claim = self.runs.request(run, entry, self.clock.now())
            if claim.taken:
                return claim.run
            at += MOMENT
        raise UnavailableError("Too many concurrent requests for runs of this job. Try again.")

    def replay(self, key: RunKey, reason: str | None, *, request: str, asked_at: datetime) -> Run:
        """Start a run that sends the latest request of an ended run again: the same bytes, except
        the trace, signatures and authentication. *request*, *asked_at*: as for `run_now`.

        Raises:
            NotFoundError: As for `FindRun.find`.
            ConflictError: It has not ended, its record has no HTTP request, or its job no longer
                exists.
        """
        found = self.find.find(key)
        if isinstance(found, PendingOccurrence) or not found.state.ended:
            raise ConflictError("The execution has not ended", "Wait for its end, or cancel it.")
        sent = [
            Replay(key.run_id, each.number, digest)
            for each in found.attempts
            if (digest := sent_digest(each.call)) is not None
        ]
        if not sent:
            raise ConflictError(
                "The record of the execution has no HTTP request",
                "Only HTTP callbacks can be replayed.",
            )
        return self.run_now(
            key.job,
            payload=found.payload,
            reason=reason or REPLAYED,
            request=request,
            asked_at=asked_at,
            replay_of=found.replay_of or sent[-1],
        )


def check_pool(job: Job, pools: Collection[str]) -> None:
    """Check that the pool of *job* is one of *pools*, which exist.

    Raises:
        ConflictError: The pool no longer exists, or is closed to the tenant.
    """
    pool = job.definition.target.pool
    if pool not in pools:
        raise ConflictError(
            f"Its job names the pool {pool!r}, which no longer exists or is closed to your tenant",
            f"Change target.pool. {available(pools)}",
        )
