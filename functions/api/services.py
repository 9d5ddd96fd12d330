"""The use cases behind the routes, built from the settings of the process, and its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import Any, cast

from functions.api.access import AccessibleJobs, AccessiblePools, AccessibleRuns, check_code
from functions.api.current_request import changed_by
from functions.api.identity import Identity, identify
from functions.api.request_record import RecordingKeyStore, RequestThreadPool
from functions.api.target_checks import check_run_payload, check_targets, target_check
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.errors import NotFoundError
from nextfire.domain.instants import floor_minute
from nextfire.domain.pool_names import available
from nextfire.domain.ports.access import KeyStore
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import RunFiles
from nextfire.settings import ApiSettings
from nextfire.usecases.cancel_sequence import CancelSequence
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.limit_requests import LimitRequests
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_endpoints import ManageEndpoints
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_keys import ManageKeys
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.manage_scripts import ManageScripts
from nextfire.usecases.many_jobs import BulkJobs
from nextfire.usecases.read_logs import ReadLogs
from nextfire.usecases.read_quotas import ReadQuotas
from nextfire.usecases.redrive_sequence import RedriveSequence
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.skip_next import SkipNext
from nextfire.usecases.wake_watchers import WakeWatchers, WakingJobs, WakingRuns
from nextfire.wiring.api import ApiPorts, api_ports
from nextfire.wiring.telemetry import Telemetry

_SIDE_BY_SIDE = 10

telemetry = Telemetry("api")
clock = SystemClock()


class Services:
    """The use cases and stores of the routes, built on the first request of a process. *ports*,
    *given_clock*: by default the adapters and the clock of this process.
    """

    def __init__(
        self, settings: ApiSettings, ports: ApiPorts | None = None, given_clock: Clock | None = None
    ) -> None:
        self.clock = given_clock or clock
        ports = ports or api_ports(settings, changed_by)
        # The wrappers pass on what they do not define, which no type says.
        jobs, runs = _waking(ports, settings, self.clock)
        self.job_store = cast("JobStore", AccessibleJobs(jobs))
        self.runs = cast("RunStore", AccessibleRuns(runs, self.job_store))
        self.files: RunFiles = ports.files
        closed = {n: pool.tenants for n, pool in settings.pools.items() if pool.tenants is not None}
        self.pools = AccessiblePools(settings.pools, closed)
        limits = Limits(
            AccessiblePools({n: pool.max_timeout for n, pool in settings.pools.items()}, closed),
            settings.scripts_bucket,
            settings.quotas,
            target_check(self.pools),
        )
        unsent = FindUnsent(
            ports.due,
            ports.control,
            read_shards=settings.read_shards,
            executor=RequestThreadPool(_SIDE_BY_SIDE),
        )
        self.jobs = ManageJobs(self.job_store, limits, unsent, check=check_code, all_jobs=jobs)
        self.backfills = ManageBackfills(self.job_store, unsent, self.pools)
        side_by_side = RequestThreadPool(_SIDE_BY_SIDE)
        self.many_jobs = BulkJobs(
            self.jobs, self.job_store, clock=self.clock, executor=side_by_side
        )
        self.quotas = ReadQuotas(
            self.job_store, ports.control, settings.quotas, settings.tenant_weights
        )
        self.find_run = FindRun(
            self.job_store,
            self.runs,
            retention=settings.run_retention.shortest,
            clock=self.clock,
            joins=ports.joins,
            quotas=self.quotas,
        )
        self.executions = ManageRuns(
            self.job_store,
            self.runs,
            self.find_run,
            pools=self.pools,
            clock=self.clock,
            executor=side_by_side,
        )
        self.sequences = RedriveSequence(
            self.job_store, self.runs, pools=self.pools, clock=self.clock, executor=side_by_side
        )
        self.cancel_sequence = CancelSequence(
            self.job_store, self.runs, self.find_run, clock=self.clock, executor=side_by_side
        )
        self.request_runs = RequestRuns(
            self.job_store,
            self.runs,
            self.find_run,
            pools=self.pools,
            clock=self.clock,
            quotas=settings.quotas,
            check_run_payload=check_run_payload,
        )
        self.skips = SkipNext(self.job_store, self.runs, clock=self.clock)
        self.logs = ReadLogs(self.find_run, self.files)
        self.scripts = ManageScripts(ports.shelf, self.pools)
        self.scripts_bucket = settings.scripts_bucket
        self.endpoints = ManageEndpoints(ports.endpoints, self.pools)
        self.overview = ports.overview
        self.control = ports.control
        self.watcher_groups = settings.groups
        self.watcher_life = settings.life
        self.requests = ports.requests
        self.note_change = ports.note_change
        self.tenant_quotas = settings.quotas
        self.limit_requests = LimitRequests(ports.buckets, _report_uncounted)
        self.auth = settings.auth
        self.tenant_claim = settings.tenant_claim
        self.iam_rules = settings.iam_rules
        self.keys = ManageKeys(cast("KeyStore", RecordingKeyStore(ports.keys)))
        # Before the first due entry is written there is a cursor at or before its bucket, so the
        # watcher finds it however late it first comes.
        ports.control.seed_cursors(settings.read_shards, floor_minute(self.clock.now()))

    def pool(self, name: str, *, targets: str | None = None) -> str:
        """Return *name* if the caller may use the pool and it runs *targets*: scripts or calls;
        None: any.

        Raises:
            NotFoundError: The pool does not exist, or is closed to the tenant of the caller.
            InvalidInputError: It runs other targets.
        """
        if name not in self.pools:
            raise NotFoundError("pool", name, available(self.pools))
        if targets is not None:
            check_targets(self.pools, name, targets)
        return name


def _waking(ports: ApiPorts, settings: ApiSettings, clock: Clock) -> tuple[JobStore, RunStore]:
    """The stores of *ports*. If watchers sleep, writes of entries that are due soon wake them."""
    if ports.waker is None:
        return ports.jobs, ports.runs
    wake = WakeWatchers(
        ports.control,
        ports.waker,
        clock,
        telemetry,
        shards=settings.write_shards,
        groups=settings.groups,
    )
    waking = WakingJobs(ports.jobs, wake), WakingRuns(ports.runs, wake)
    return cast("tuple[JobStore, RunStore]", waking)


_given: ContextVar[Services | None] = ContextVar("given", default=None)


@cache
def own_services() -> Services:
    """The services of this process, by its environment."""
    return Services(ApiSettings.read())


def services() -> Services:
    """The services of the current request."""
    return _given.get() or own_services()


@contextmanager
def serving(given: Services) -> Iterator[None]:
    """Serve the requests of this context by *given*: `nextfire.testing` has several stacks in one
    process.
    """
    before = _given.set(given)
    try:
        yield
    finally:
        _given.reset(before)


def now() -> datetime:
    given = _given.get()
    return (clock if given is None else given.clock).now()


def identify_event(event: Mapping[str, Any]) -> Identity:
    """The identity of the caller of *event*; see `caller`."""
    known = services()
    return identify(
        event["requestContext"].get("authorizer"),
        tenant_claim=known.tenant_claim,
        iam_rules=known.iam_rules,
    )


def _report_uncounted(error: Exception) -> None:
    telemetry.logger.warning(
        "requests are counted by each process alone", problem=f"{type(error).__name__}: {error}"
    )
