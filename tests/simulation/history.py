"""One history: a system, the random events of its seed, and the checks of the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2s
from typing import Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey, RunKey, parse_execution_id, run_id
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.runs import Written
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.recurrence import check, occurrences
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.target import TargetKind
from nextfire.testing.kernel import SECOND, Actor, Kernel, current
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, assert_chained, settle
from tests.builders import a_definition, at
from tests.fakes import InlineExecutor, memory_stores
from tests.judgement import Evidence, Stored, first_sent, reported_missed
from tests.simulation.callbacks import URLS, received_at_rest
from tests.simulation.effects import Effects
from tests.simulation.endpoint_flows import ENDPOINT_FLOWS
from tests.simulation.flows import (
    FLOWS,
    REFUSALS,
    REMOVE_POOL,
    TENANTS,
    Flow,
    KeyedCreation,
    ManualRunRequest,
)
from tests.simulation.monitor import Monitor
from tests.simulation.projection import Projection
from tests.simulation.rates import Rates
from tests.simulation.sequence_judge import SequenceJudge
from tests.simulation.sequences import (
    EXITS,
    SEQUENCE_FLOWS,
    SEQUENCES,
    SPOIL,
    SPOILT,
    Sequences,
)
from tests.simulation.system import Client, Setting, System
from tests.simulation.takeovers import check_takeover
from tests.simulation.wire import Journal, Log, Weather, Wire
from tests.world import POOLS, World

START = at("11:59:50")
SCHEDULES: list[dict[str, Any]] = [
    {"type": "CRON", "schedule": "* * * * *"},
    {"type": "CRON", "schedule": "* * * * *"},
    {"type": "CRON", "schedule": "*/5 * * * *"},
    {"type": "CRON", "schedule": "7 * * * *"},
    {"type": "CRON", "schedule": "30 13 * * *", "timezone": "Europe/Berlin"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT15S"},
    {"type": "INTERVAL", "schedule": "PT45S"},
    {"type": "INTERVAL", "schedule": "PT7M"},
    {"type": "ONCE", "schedule": "2026-05-24T12:01:00Z"},
    {"type": "DELAY", "schedule": "PT40S"},
    {
        "type": "DATES",
        "schedule": [f"2026-05-24T{h}:{m}:00Z" for h in range(12, 16) for m in ("02", 10, 11, 40)],
    },
]
QUOTAS = [
    TenantQuotas.model_validate({"tenants": {TENANTS[0]: quotas}})
    for quotas in (
        {"concurrentRuns": 1},
        {"concurrentRuns": 2, "jobs": 2},
        {"runsPerMinute": 4},
        {"runsPerMinute": 9, "concurrentRuns": 1, "jobs": 1},
    )
]
_STEP = timedelta(seconds=2)
_MOMENT = timedelta(milliseconds=1)
_GAPS = [0, 0, 100_000, SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 20 * SECOND]
_JOB_RETENTION = 3 * MINUTE
"""Of ended jobs, in histories with an audit each minute. Longer than a request is repeated."""
_AUDIT_EVERY = timedelta(minutes=15)
_WIDE = 10
"""One history of this many has an audit each minute, and jobs as `_more` makes them."""
CALLING = 20
"""One history of this many has jobs that make calls, among others."""
REMOVING = 9
"""One history of twenty, those of this remainder, has a pool that is removed for a while."""
_MOST = 0.7
SEQUENCED = 7


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a history. `hit`: injected faults by call and kind; `scripts`: number of
    scripts begun before faults ended; `digest`: hash of its steps.
    """

    seed: int
    hit: Counter[tuple[str, str]]
    scripts: int
    occurrences: int
    steps: int
    digest: int
    violations: list[str]


def _without_rates(quotas: TenantQuotas) -> TenantQuotas:
    """*quotas* without rate limits: otherwise jobs due every ten seconds would never be sent in
    full.
    """
    none = {"runs_per_minute": None}
    own = {tenant: each.model_copy(update=none) for tenant, each in quotas.tenants.items()}
    return quotas.model_copy(update={"tenants": own})


def _is_of(run: RunKey, job: Job) -> bool:
    return (run.job, run.uid) == (job.key, job.uid)


class History:
    """The history of a seed. *interleaves*: see `Kernel`. *logs*: record its events."""

    def __init__(  # noqa: PLR0915 — what is known of a history, one by one
        self, seed: int, *, interleaves: bool = True, logs: bool = False
    ) -> None:
        self.seed = seed
        self.kernel = Kernel(seed, START, interleaves=interleaves)
        if logs:
            self.kernel.events = []
        dice = self.kernel.dice
        self.monitor = Monitor(self.kernel)
        shards = dice.choice([1, 1, 2, 3])
        self.setting = Setting(
            shards=shards,
            groups=dice.choice([1, 1, min(2, shards)]),
            workers=dice.choice([1, 1, 2]),
            slots=dice.choice([1, 2]),
            on_lambda=dice.random() < 0.3,
            drag=dice.choice([SECOND, 3 * SECOND, 6 * SECOND]),
            doomed=dice.choice([0.0, 0.1, 0.5]),
            dies_within=dice.choice([30, 200]),
            shares=Shares(
                backlogs=dice.choice([{}, {}, {"default": 3}, {"default": 1, "batch": 2}]),
                quotas=dice.choice([NO_QUOTAS, NO_QUOTAS, *QUOTAS]),
            ),
        )
        self.stores = memory_stores(self.kernel.clock, POOLS, shards=shards)
        self._observe_stores()
        self.weather = Weather(rough=dice.choice([0.0, 0.01, 0.04]))
        ports = dict(vars(self.stores))
        self.wire = Wire(self.kernel, ports, self.weather)
        self.wire.watched = self._watched
        self.effects = Effects(self.monitor, self.setting.shares.quotas)
        self.rates = Rates(self.monitor, self.setting.shares.quotas)
        self.system = System(
            self.kernel, self.wire, self.stores, self.setting, self.monitor, self.effects
        )
        self.stores.endpoints.items = Journal(self.kernel, self.system.endpoints.changed)
        self.all_pools = self.system.pools
        self.moments = dice.choice([8, 14, 24, 40])
        self.vandalised = dice.random() < 0.12
        self.wide = seed % _WIDE == 8
        if self.wide:
            self.system.job_retention = _JOB_RETENTION
            self.system.audit_segments = 3 if seed % (2 * _WIDE) == 8 else 1
        self.calls = seed % CALLING == 3
        self.removing = _MOST if seed % CALLING == REMOVING else 0.2
        """The part of the jobs whose pool may be removed."""
        self.projection = Projection(seed)
        self.sequences = Sequences.of(self) if seed % SEQUENCES == SEQUENCED else None
        if self.sequences is not None:
            self.vandalised, self.system.exits = False, EXITS
        self.changes: Counter[JobKey] = Counter()
        self.cancelled: dict[RunKey, int] = {}
        """The runs whose cancel request was answered, with the number of attempts at that time."""
        self.asked_to_cancel: set[RunKey] = set()
        self.ever: dict[tuple[JobKey, str], list[Stored]] = {}
        """All stored versions of each job."""
        self.vanished: dict[RunKey, Run] = {}
        """The records that were deleted, as they were."""
        self.decided: dict[tuple[RunKey, datetime], datetime] = {}
        """By run and sending time: the instant for which a watcher decided to send it."""
        self.unreadable: set[JobKey] = set()
        """Jobs that were undecodable for a while."""
        self.redriven: dict[RunKey, int] = {}
        """The runs whose redrive was answered, with the dispatch number in the answer."""
        self.asked: list[ManualRunRequest] = []
        self.keyed: list[KeyedCreation] = []
        self.skipped: set[RunKey] = set()
        """The occurrences whose skip was acknowledged."""
        self.unskipped: set[RunKey] = set()
        """The skips that were undone, even before they were acknowledged, and not requested again.
        """
        self.asked_to_skip: set[JobKey] = set()
        self.asked_to_unskip: set[JobKey] = set()
        self.drained: list[tuple[Job, datetime]] = []
        """Jobs as they were when reported as drained, with the time of the report."""
        self.backfills: dict[str, Job | None] = {}
        """By backfill id, the job in the answer; None: not answered."""
        self.junk_entries = 0
        self.junk_messages = 0
        self.copies = 0

    def _observe_stores(self) -> None:
        """Report every change of the stores to the monitor."""
        stores, kernel, monitor = self.stores, self.kernel, self.monitor
        stores.due.items = Journal(kernel, monitor.entry_changed)
        stores.jobs.items = Journal(kernel, self._job_changed)
        stores.runs.items = Journal(kernel, self._run_changed)
        stores.control.leases = Journal(kernel, partial(check_takeover, monitor.wrong))
        stores.queue.log = Log(monitor.accepted)
        stores.due.page = kernel.dice.choice([1, 2, 100])
        for queue in stores.queue.queues.values():
            queue.order = lambda _: kernel.dice.random()
        monitor.watch(stores)

    def _watched(self, actor: Actor, call: str, values: tuple[Any, ...]) -> None:
        args, kwargs, done = values
        self.monitor.call(actor, call, values)
        self.rates.call(actor, call, args, done)
        # If a skip and its undo overlap, the later write counts, whichever is answered first.
        if call == "runs.skip_next" and done is Written.DONE:
            self.unskipped.discard(args[0].key)
        elif call == "runs.unskip" and done is Written.DONE:
            self.unskipped.add(args[0])
        if call == "queue.send" and (decided_at := current().decides_at) is not None:
            for _, message in args[0]:
                self.decided[message.key, message.dispatched_at] = decided_at
        if self.sequences is not None:
            self.sequences.call(call, args)
        if call.startswith("endpoints."):
            self.system.endpoints.call(call, args, done)
        if call.startswith("runs."):
            self.effects.call(actor, call, (*args[:2], kwargs), done)

    def _run_changed(self, key: RunKey, was: Run | None, run: Run | None) -> None:
        if self.sequences is not None:
            self.sequences.run_changed(key, run)
        self.monitor.run_changed(key, was, run)
        self.projection.run_changed(key, run, self.kernel.clock.now())

    def _job_changed(self, key: JobKey, was: Any, job: Any) -> None:
        if job is not None:
            self.ever.setdefault((key, job.uid), []).append(Stored(self.kernel.clock.now(), job))
            self.effects.job_stored(job)
        self.monitor.job_changed(key, was, job)

    # What flows use

    def any_job(self) -> JobKey | None:
        keys = [*self.stores.jobs.items]
        return self.kernel.dice.choice(keys) if keys else None

    def any_run(self, *states: RunState) -> RunKey | None:
        found = [key for key, run in self.stores.runs.items.items() if run.state in states]
        return self.kernel.dice.choice(found) if found else None

    def recent_run(self, key: JobKey | None = None) -> RunKey | None:
        """The run of an occurrence, of the job *key* or of any, that is due about now, or None."""
        key = key or self.any_job()
        if key is None:
            return None
        job = self.stores.jobs.items[key]
        for each in job.upcoming(self.kernel.clock.now() - MINUTE, 1):
            return RunKey(key, run_id(job.uid, each.occurrence.at))
        return None

    def a_schedule(self) -> dict[str, Any]:
        return self.kernel.dice.choice(SCHEDULES)

    def a_definition(self) -> JobDefinition:
        """A random definition."""
        dice = self.kernel.dice
        while True:
            misfire: dict[str, Any] = {"policy": dice.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}
            if dice.random() < 0.2:
                misfire["relevancyWindowSec"] = dice.choice([5, 90, 1_800])
            retries: dict[str, Any] = {"maxAttempts": dice.choice([1, 2, 3])}
            retries["initialDelayMs"] = dice.choice([1_000, 5_000])
            fields = {**self.a_schedule(), "misfire": misfire, "retryPolicy": retries}
            if self.wide:
                fields |= self._more(retries)
            for odds, more in (
                (0.4, {"overlap": dice.choice(["QUEUE", "SKIP", "REPLACE"])}),
                (0.2, {"jitterSec": dice.choice([5, 50])}),
                (0.2, {"maxRuns": dice.choice([1, 2, 7])}),
                (0.1, {"endAt": f"2026-05-24T{dice.choice([12, 13])}:33:00Z"}),
                (self.removing, {"target": {"handler": "report", "pool": "batch"}}),
                (0.2, {"timeoutSec": 30}),
                (0.3, {"priority": dice.choice(["LOW", "HIGH"])}),
            ):
                if dice.random() < odds:
                    fields.update(more)
            if self.calls and dice.random() < _MOST:
                pool = dice.choice(["default", "default", "batch"])
                fields["target"] = {"pool": pool, "http": {"url": dice.choice(URLS)}}
                if dice.random() < _MOST:
                    fields |= {"type": "INTERVAL", "schedule": "PT10S"}
            try:
                definition = a_definition(**fields)
                check(definition.schedule_from(self.kernel.clock.now()))
            except (InvalidInputError, ValueError):
                continue  # it would never fire
            return definition

    def _more(self, retries: dict[str, Any]) -> dict[str, Any]:
        """Fields that only wide histories have: *retries* as a whole among them."""
        dice = self.kernel.dice
        if dice.random() < 0.3:
            retries = retries | {"retryOn": {"states": ["FAILED"]}}
        if dice.random() < 0.3:
            retries = retries | {"jitter": "FULL"}
        bounds = [{}, {}, {"jitterSec": 400}, {"maxRuns": 60}]
        return {"retryPolicy": retries, **dice.choice(bounds)}

    def register(self, key: JobKey, when: dict[str, Any] | None = None) -> None:
        """Create a job; *when* is its schedule, random by default."""
        definition = self.a_definition() if when is None else a_definition(**when)
        uid = self.system.new_uid()

        def ask(client: Client) -> None:
            job = client.jobs.register(key, definition, uid=uid, now=client.actor.now())
            self.monitor.acknowledged(job)

        self.request(key.tenant, f"register {key.job_id} {definition.document()}", ask)

    def request(self, tenant: str, what: str, ask: Callable[[Client], object]) -> None:
        """Send a request to the API; refusals are logged as answers."""
        self.kernel.log(tenant, what)

        def answered(client: Client) -> None:
            try:
                ask(client)
            except REFUSALS as error:
                self.kernel.log(client.actor.name, f"{type(error).__name__}: {error}")
            else:
                self.kernel.log(client.actor.name, "is answered")

        self.system.request(tenant, answered)

    def later(self, after: timedelta, do: Callable[[], object]) -> None:
        """Call *do* after *after*."""
        aws = self.system.aws

        def wait() -> None:
            aws.sleep(after)
            do()

        aws.submit(wait)

    def outage(self, *, timers: bool = False, workers: bool = False, seconds: int) -> None:
        """Stop EventBridge's invocations or the restarts of workers for some time. Processes that
        run already continue.
        """
        system = self.system
        self.kernel.log("outage", f"{'timers ' * timers}{'workers ' * workers}{seconds} s")
        system.timers = system.timers and not timers
        system.works = system.works and not workers

        def over() -> None:
            system.timers = system.timers or timers
            system.works = system.works or workers

        self.later(timedelta(seconds=seconds), over)
        # The next flow begins after it, during it, or at once.
        self.patience = timedelta(seconds=self.kernel.dice.choice([0, seconds // 2, seconds]))

    # The course of a history

    def play(self) -> Outcome:
        """Play the flows, let the system come to rest, and check it."""
        kernel, aws = self.kernel, self.system.aws
        self.patience = timedelta()
        self.stores.control.seed_cursors(self.setting.shards, floor_minute(kernel.clock.now()))
        over = aws.submit(self._begin_flows)
        for group in range(self.setting.groups):
            aws.submit(lambda group=group: self._timer(group))
        aws.submit(self._auditor_timer)
        aws.submit(self._supervise)
        if self.setting.on_lambda:
            aws.submit(self._event_source)
        wrong = self.monitor.violations
        occurrences = 0
        try:
            kernel.run(lambda: over.done() or bool(wrong))
            if over.done():
                over.result()  # a flow that cannot be carried out raises its own error
            at_calls = sum(n for (_, what), n in self.wire.hit.items() if what.startswith("died"))
            self.wire.hit["anywhere", "killed"] = kernel.deaths - at_calls
            self._kill_all()
            wrong += [f"escaped: {each}" for each in self.system.escaped]
            if not wrong:
                occurrences = self._come_to_rest()
        except AssertionError as error:
            wrong.append(str(error).partition("\n")[0])
        return Outcome(
            self.seed,
            self.wire.hit,
            self.effects.begun,
            occurrences,
            kernel.steps,
            self._digest(),
            wrong,
        )

    def flows(self) -> Sequence[Flow]:
        """What may happen."""
        if self.sequences is not None:
            spoilt = self.seed // SEQUENCES % 13 in SPOILT
            return [*SEQUENCE_FLOWS, SPOIL] if spoilt else SEQUENCE_FLOWS
        if self.removing == _MOST:
            return [*FLOWS, REMOVE_POOL]
        return [*FLOWS, *ENDPOINT_FLOWS] if self.calls else FLOWS

    def _begin_flows(self) -> None:
        """Begin random flows."""
        dice, aws = self.kernel.dice, self.system.aws
        flows = self.flows()
        if self.sequences is not None:
            self.sequences.begin(self)
        else:
            for number in range(dice.choice([1, 2, 3])):
                self.register(JobKey(TENANTS[number % 2], f"job{number}"))
        weights = [flow.weight for flow in flows]
        for _ in range(self.moments):
            aws.sleep(timedelta(microseconds=dice.choice(_GAPS)) + self.patience)
            self.patience = timedelta()
            (flow,) = dice.choices(flows, weights)
            self.kernel.log("dice", flow.name)
            flow.begin(self)
        aws.sleep(timedelta(seconds=5))

    def _timer(self, group: int) -> None:
        """EventBridge's rule of a group: about once a minute, occasionally not at all or twice."""
        dice, aws = self.kernel.dice, self.system.aws
        while True:
            if self.system.timers:
                for _ in range(dice.choice([1, 1, 1, 1, 1, 1, 0, 2])):
                    self.system.invoke_watcher(group)
            aws.sleep(timedelta(seconds=60 + dice.choice([0, 0, -0.5, 0.5, 8])))

    def _auditor_timer(self) -> None:
        while True:
            every = MINUTE if self.wide else 5 * MINUTE if self.calls else _AUDIT_EVERY
            self.system.aws.sleep(every)
            if self.system.timers:
                self.system.invoke_auditor(restart=self.wide or self.calls)

    def _supervise(self) -> None:
        """ECS: keeps the desired number of workers running."""
        system, setting = self.system, self.setting
        pools = ["batch"] if setting.on_lambda else ["default", "default", "batch"]
        while True:
            alive = [w for w in system.workers if w.alive and not w.stopping and w.tasks]
            if system.works:
                for number in range(len(alive), setting.workers + 1):
                    system.start_worker(pools[number % len(pools)])
            system.aws.sleep(timedelta(seconds=self.kernel.dice.choice([1, 5, 20])))

    def _event_source(self) -> None:
        """SQS's poller for a pool on Lambda."""
        dice, system = self.kernel.dice, self.system
        while True:
            if system.works:
                system.invoke_executor("default")
            system.aws.sleep(timedelta(seconds=dice.choice([0.2, 1, 2])))

    def _kill_all(self) -> None:
        """Kill all processes: none takes another step."""
        system = self.system
        system.works = False
        for actor in [*system.processes, system.aws]:
            actor.kill()
        self.kernel.run(lambda: False)

    def _digest(self) -> int:
        """Histories with equal digests took the same course."""
        runs = sorted(str(run) for run in self.stores.runs.items.values())
        text = "\n".join([str(self.kernel.steps), str(self.kernel.at), *runs])
        return int.from_bytes(blake2s(text.encode(), digest_size=8).digest(), "big")

    # At rest

    def _come_to_rest(self) -> int:
        """Repair everything, let all that can end do so, then check the records.

        Returns:
            Number of occurrences accounted for.
        """
        self._check_rates()
        world = World(
            stores=self.stores,
            clock=self.kernel.clock,
            shards=self.setting.shards,
            first_epoch=10**15,
            quotas=_without_rates(self.setting.shares.quotas),
        )
        world.call_targets[TargetKind.HTTP] = received_at_rest(self.system.receiver, world.clock)
        self.kernel.log("rest", "all processes are new, no faults")
        for key in [*self.stores.jobs.items]:
            self.stores.jobs.repair(key)
            job = world.job(key)
            if job.state is JobState.PAUSED and job.resumes_at is None:
                world.manage.resume(key, now=world.now)
        if self.monitor.tampered and not self.vandalised:
            self._check_chains_repaired(world)
        if self.vandalised:
            # Runs whose messages were purged stay unfinished without an audit.
            with suppress(AssertionError):
                settle(world, step=_STEP, at_most=500)
        if self.monitor.tampered or self.vandalised:
            # Beyond the auditor's grace period, and again for what it passed over then.
            for later in (31, 0, 31, 0):  # the watchers are behind at first
                world.advance(minutes=later)
                self._audit(world)
                with suppress(AssertionError):
                    settle(world, step=_STEP, at_most=500)
        settle(world, step=_STEP, at_most=3_000)
        if self.junk_entries:  # a malformed key is found when its bucket is closed
            world.advance(minutes=3)
            settle(world, step=_STEP, at_most=3_000)
        sent = first_sent(self.stores.queue.log)
        decided = {
            key: self.decided[key, at] for key, at in sent.items() if (key, at) in self.decided
        }
        # for each id, every job that had it
        for job in [stored[-1].job for stored in self.ever.values()]:
            resumes_at = job.resumes_at if job.state is JobState.PAUSED else None
            assert resumes_at is None or resumes_at > world.now, f"{job.key.job_id} was not resumed"
            tampered = self.vandalised or job.key in self.monitor.tampered
            there = self.stores.jobs.items.get(job.key)
            removed = there is None or there.uid != job.uid
            if job.definition.after or (tampered and (removed or job.state is JobState.CANCELLED)):
                continue  # the judge of sequences handles those with parents;
                # the auditor handles only jobs that are stored and were not deleted
            assert_all_accounted_for(
                world,
                job,
                allow_late_starts=True,
                stray=self.monitor.is_stray,
                evidence=Evidence(
                    self.ever[job.key, job.uid],
                    sent,
                    self.asked_to_cancel.__contains__,
                    decided,
                    vanished=[run for key, run in self.vanished.items() if _is_of(key, job)],
                    missed=reported_missed(self.stores.queue.log, job),
                ),
                purged=self.vandalised,
            )
        occurrences = sum(run.covered for run in self.stores.runs.items.values())
        self.system.receiver.check(self.stores.runs.items)
        self._check_sequences()
        for wrong in self.projection.wrong(self.stores.runs):
            raise AssertionError(wrong)
        self._check_cancelled()
        self._check_redriven()
        self._check_asked()
        self._check_keyed()
        self._check_skipped()
        self._check_drained()
        self._check_backfilled()
        self._check_undecodable()
        self._check_counts()
        self._check_audits(world)
        self.monitor.check_queue_ids()
        assert not self.monitor.violations, self.monitor.violations[0]
        return occurrences

    def _check_chains_repaired(self, world: World) -> None:
        """The watcher that quarantines a broken FIRE entry repairs the chain, without an auditor. A
        parked entry is found in its minute.
        """
        with suppress(AssertionError):
            settle(world, step=_STEP, at_most=500)
        met = max(self._unread_minutes(), default=world.now)
        world.advance(seconds=max((met - world.now).total_seconds(), 0) + 180)
        with suppress(AssertionError):
            settle(world, step=_STEP, at_most=3_000)
        stored = self.stores.jobs.items.keys()  # others were removed after their retention
        for key in (self.monitor.tampered - self.unreadable) & stored:
            assert_chained(world, world.job(key))

    def _unread_minutes(self) -> Iterator[datetime]:
        """The minutes of undecodable entries that no watcher has read yet."""
        for slot, item in self.stores.due.items.items():
            if not isinstance(item, DueEntry):
                minute = slot.bucket.partition("#")[0]
                yield datetime.strptime(minute, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)

    def _audit(self, world: World) -> None:
        audit = AuditJobs(
            jobs=self.stores.jobs,
            due=self.stores.due,
            runs=self.stores.runs,
            queue=self.stores.queue,
            control=self.stores.control,
            joins=self.stores.joins,
            clock=world.clock,
            executor=InlineExecutor(),
            pools=POOLS,
            write_shards=self.setting.shards,
            read_shards=self.setting.shards,
            every=timedelta(days=1),
        )
        for report in audit.continue_audit(world.now + timedelta(minutes=14), restart=True):
            self.system.audits.append(report)
            self.kernel.log("auditor", str(report))

    def _check_sequences(self) -> None:
        if self.sequences is None:
            return
        joins = self.stores.joins
        judge = SequenceJudge(
            self.sequences,
            self.ever,
            self.stores.runs.items,
            lambda run: joins.read(run, range(20)),
        )
        for wrong in (*judge.wrong(), *judge.judge_upstream(self.system.started)):
            raise AssertionError(wrong)

    def _check_rates(self) -> None:
        """The runs sent of a tenant stay within its quota of runs per minute. A watcher may take a
        run at the end of a minute and send it in the next.
        """
        sent = {(m.key, m.dispatch): m for m in reversed(self.stores.queue.log)}.values()
        minutes = Counter((m.tenant, floor_minute(m.dispatched_at)) for m in sent)
        for (tenant, minute), count in minutes.items():
            most = self.setting.shares.quotas.of(tenant).runs_per_minute
            assert most is None or count <= 2 * most, f"{count} runs of {tenant} in {minute}"

    def _check_counts(self) -> None:
        """The counter of a tenant's jobs equals its number of counted jobs."""
        jobs = self.stores.jobs.items.values()
        for tenant in TENANTS:
            counted = [job for job in jobs if job.key.tenant == tenant and job.counted]
            count = self.stores.jobs.counts[tenant]
            assert count == len(counted), f"{len(counted)} jobs of {tenant} count as {count}"
            assert not any(job.state.ended for job in counted), f"{tenant}: an ended job is counted"
            most = self.setting.shares.quotas.of(tenant).jobs
            uncounted = [j for j in jobs if j.key.tenant == tenant and not j.counted]
            forgotten = [job.key.job_id for job in uncounted if not job.state.ended]
            assert most is None or not forgotten, f"{tenant}: {forgotten} are not counted"
            assert most is None or count <= most, f"{tenant} has {count} jobs, more than {most}"

    def _check_audits(self, world: World) -> None:
        """Check that no audit repaired anything in a history without damage."""
        if self.vandalised or self.monitor.tampered or self.unreadable:
            return
        self._audit(world)
        for report in self.system.audits:
            assert not report.repaired, f"an audit repaired undamaged data: {report}"

    def _check_cancelled(self) -> None:
        """Cancelled runs were not retried unless redriven. A run may have succeeded before the
        cancel was noticed.
        """
        for key, attempts in self.cancelled.items():
            run = self.stores.runs.items[key]
            if run.attempt_base:
                continue
            assert run.state in {RunState.CANCELLED, RunState.SUCCEEDED}, (
                f"{key.execution_id} was cancelled and is {run.state}"
            )
            assert len(run.attempts) <= attempts, f"{key.execution_id} was cancelled, but retried"

    def _check_redriven(self) -> None:
        """Redriven runs were sent again."""
        for key, dispatch in self.redriven.items():
            run = self.stores.runs.items[key]
            assert run.attempt_base, (
                f"{key.execution_id} was redriven, but its record does not show it"
            )
            assert run.dispatch >= dispatch, f"{key.execution_id}: dispatch {dispatch} was lost"
            tried = run.attempt > run.attempt_base
            assert tried or run.state is RunState.CANCELLED, f"{key.execution_id} was not redriven"

    def _check_asked(self) -> None:
        """Each manual run was created once, however often it was requested, with its payload."""
        runs = self.stores.runs.items.values()
        for number, asked in enumerate(self.asked, 1):
            made = [run for run in runs if run.request in asked.requests]
            assert len(asked.requests) <= 1, f"request {number} used the tokens {asked.requests}"
            assert len({*asked.answers}) <= 1, f"request {number} got the answers {asked.answers}"
            assert len(made) <= 1, f"request {number} made {[r.key.run_id for r in made]}"
            assert len(made) >= bool(asked.answers), (
                f"request {number} was answered, but made nothing"
            )
            for run in made:
                name = run.key.execution_id
                answers = [*asked.answers, name]
                assert answers[0] == name, f"request {number} was answered {answers[0]}, not {name}"
                assert run.key.job == asked.job
                self._check_payload(run, asked.payload)

    def _check_keyed(self) -> None:
        """Requests under an idempotency key created one job, once, however often they were repeated
        and whatever happened to the job. All answers were equal, and of two bodies one was refused.
        """
        for keyed in self.keyed:
            made = {of: stored for of, stored in self.ever.items() if of[1] in keyed.uids}
            answered = {body: answers for body, answers in keyed.answers.items() if answers}
            assert len(keyed.uids) <= 1, f"{keyed.name} used the uids {keyed.uids}"
            assert len(answered) <= 1, f"{keyed.name}: two bodies were answered, {answered}"
            assert len(made) <= 1, f"{keyed.name} made {[*made]}"
            assert len(made) >= len(answered), f"{keyed.name} was answered, but made nothing"
            for (key, uid), stored in made.items():
                first = [each.job for each in stored if each.job.revision == 1]
                assert len(first) == 1, f"{keyed.name} made {key.job_id} {len(first)} times"
                assert key.tenant == keyed.tenant, f"{keyed.name} made another tenant's job"
                for body, answers in answered.items():
                    assert len({*answers}) == 1, f"{keyed.name} was answered {answers}"
                    assert answers[0].startswith(f"{key.job_id} {uid},"), (
                        f"{keyed.name}: {answers[0]}"
                    )
                    wanted = keyed.bodies[body]
                    assert first[0].definition == wanted, (
                        f"{keyed.name} made the job of another body"
                    )

    def _check_skipped(self) -> None:
        """Skipped occurrences never ran unless the skip was undone. Skips and undos happened only
        to jobs for which they were requested.
        """
        started = {each.execution_id for each in self.system.started}
        for key in self.skipped - self.unskipped:
            run = self.stores.runs.items.get(key)
            assert run is not None, f"{key.execution_id} was to be skipped, but has no record"
            assert run.skip_requested, f"{key.execution_id} was to be skipped, but is {run.state}"
            assert key.execution_id not in started, f"{key.execution_id} was skipped, but ran"
        for key in self.unskipped:
            run = self.stores.runs.items.get(key)
            assert key.job in self.asked_to_unskip, f"{key.execution_id}: undone without a request"
            assert run is None or not run.skip_requested, (
                f"{key.execution_id} is skipped, although that was undone"
            )
        for key, run in self.stores.runs.items.items():
            asked = not run.skip_requested or key.job in self.asked_to_skip
            assert asked, f"{key.execution_id} is skipped without a request"

    def _check_drained(self) -> None:
        """A job reported as drained began no further run of before the drain, unless it was
        redriven.
        """
        for job, reported_at in self.drained:
            until = job.effective_from
            for started in self.system.started:
                key = parse_execution_id(job.key.tenant, started.execution_id)
                if not _is_of(key, job) or started.at <= reported_at or key in self.vanished:
                    continue
                run = self.stores.runs.items[key]
                of_before = run.trigger is Trigger.SCHEDULE and key.scheduled_at <= until
                assert not of_before or run.attempt_base, (
                    f"{key.execution_id} began at {started.at}; its job drained at {reported_at}"
                )

    def _check_backfilled(self) -> None:
        """Each occurrence of an acknowledged backfill has its record, unless the backfill was
        stopped: by a request, a change of the schedule, a pause or a deletion.
        """
        for name, job in self.backfills.items():
            if job is None or job.backfill is None:
                continue
            now = self.stores.jobs.items.get(job.key)
            if now is None:
                continue  # it ended, and was removed after its retention
            assert now.backfilling is None, f"{name} still runs, but the system is at rest"
            versions = {each.job.schedule_version for each in self.ever[job.key, job.uid]}
            stopped = any(
                each.job.backfill is not None
                and (each.job.backfill.backfill_id, each.job.backfill.version) == (name, 0)
                for each in self.ever[job.key, job.uid]
            )
            if stopped or max(versions) > job.schedule_version or now.uid != job.uid:
                continue
            asked = job.backfill
            spans = [
                (run.key.scheduled_at, run.covers_until)
                for key, run in self.stores.runs.items.items()
                if _is_of(key, job)
            ]
            for each in occurrences(job.past_schedule(asked.first), asked.first - _MOMENT):
                if each.at > asked.last:
                    break
                covered = any(first <= each.at <= last for first, last in spans)
                key = RunKey(job.key, run_id(job.uid, each.at))
                assert covered, f"{key.execution_id} is not covered by {name}"

    def _check_payload(self, run: Run, payload: str | None) -> None:
        name = run.key.execution_id
        for started in self.system.started:
            if started.execution_id == name and payload is not None:
                assert started.payload == payload, f"{name} got the payload {started.payload}"

    def _check_undecodable(self) -> None:
        """Undecodable items are kept (invariant 10)."""
        kept = len(self.stores.due.quarantined)
        assert kept >= self.junk_entries, (
            f"{self.junk_entries} entries did not decode, {kept} are kept (invariant 10)"
        )
        letters = {body for body, _ in self.stores.dead_letters.letters}
        for number in range(1, self.junk_messages + 1):
            assert f"junk {number}" in letters or self.vandalised, (
                f"junk {number} is not in the dead-letter queue (invariant 10)"
            )
        for run in self.stores.runs.items.values():
            if run.state is RunState.DEAD:
                published = any(run.key.run_id in body for body in letters)
                # If its message was purged before the death was published, no other part publishes
                # it.
                published = published or (self.vandalised and run.buried != run.dispatch)
                assert published, (
                    f"{run.key.execution_id} is DEAD, but not in the dead-letter queue"
                )
