"""The use cases of an API request in a history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError, QuotaUsedUpError
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.requests import RequestStore
from nextfire.domain.ports.runs import RunStore
from nextfire.testing.kernel import Actor
from nextfire.usecases.cancel_sequence import CancelSequence
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.idempotent_requests import IdempotentRequest, IdempotentRequests
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_endpoints import ManageEndpoints
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.redrive_sequence import RedriveSequence
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.skip_next import SkipNext
from nextfire.usecases.wake_watchers import WakingJobs, WakingRuns
from tests.world import BUCKET, POOLS

if TYPE_CHECKING:
    from tests.simulation.system import System


class Client:
    """The use cases of an API request."""

    def __init__(self, system: System, actor: Actor, tenant: str) -> None:
        self.system = system
        self.tenant = actor.tenant = tenant
        self.actor = actor
        port, wake = system.wire.port, system.waking(actor)
        jobs = cast("JobStore", WakingJobs(port(actor, "jobs"), wake))
        runs = cast("RunStore", WakingRuns(port(actor, "runs"), wake))
        self.jobs = ManageJobs(
            jobs,
            Limits(POOLS, BUCKET, system.setting.shares.quotas),
            FindUnsent(
                port(actor, "due"), port(actor, "control"), read_shards=system.setting.shards
            ),
        )
        self.backfills = ManageBackfills(
            jobs,
            FindUnsent(
                port(actor, "due"), port(actor, "control"), read_shards=system.setting.shards
            ),
            POOLS,
        )
        self.endpoints = ManageEndpoints(port(actor, "endpoints"), [*POOLS])
        self.requests: RequestStore = port(actor, "requests")
        self.runs_port: RunStore = runs
        self.find_run = FindRun(jobs, runs, retention=timedelta(days=90), clock=actor)
        self.runs = ManageRuns(jobs, runs, self.find_run, pools=POOLS, clock=actor, executor=actor)
        self.request_runs = RequestRuns(jobs, runs, self.find_run, pools=POOLS, clock=actor)
        self.skips = SkipNext(jobs, runs, clock=actor)
        self.sequences = RedriveSequence(jobs, runs, pools=POOLS, clock=actor, executor=actor)
        self.cancel_sequence = CancelSequence(
            jobs, runs, self.find_run, clock=actor, executor=actor
        )

    def once(self, key: str, body: str, do: Callable[[IdempotentRequest], str]) -> str:
        """Answer a request with the idempotency key *key*, like `functions/api/idempotency.py`."""
        answers = IdempotentRequests(self.requests, self.tenant, key)
        asked = answers.begin(body, self.actor.now())
        if asked.answer is not None:
            return asked.answer
        try:
            answer = do(asked)
        except (ConflictError, InvalidInputError, NotFoundError, QuotaUsedUpError):
            if (stored := answers.refuse(asked)) is not None:
                return stored
            raise
        return answers.finish(asked, answer)
