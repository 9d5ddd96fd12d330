"""One history: a system, what the dice of its seed do to it, and whether it came out right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2s
from typing import Any

from nextfire.domain.due import DueEntry
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey, RunKey, parse_execution_id, run_id
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.job import Job, JobDefinition, JobState
from nextfire.domain.ports import Written
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.schedule import check, occurrences
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted, assert_chained, settle
from tests.builders import a_definition, at
from tests.fakes import InlineExecutor, memory_stores
from tests.judgement import Evidence, Stored, first_sent, told_missed
from tests.simulation.effects import Effects
from tests.simulation.flows import FLOWS, REFUSALS, TENANTS, Asked, Keyed
from tests.simulation.kernel import SECOND, Actor, Kernel, current
from tests.simulation.monitor import Monitor
from tests.simulation.rates import Rates
from tests.simulation.system import Client, Setting, System
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
_AUDIT_EVERY = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a history was: `hit`, what went wrong in it, by call and kind; `scripts`, how many began
    before all was well; `digest`, of its steps.
    """

    seed: int
    hit: Counter[tuple[str, str]]
    scripts: int
    occurrences: int
    steps: int
    digest: int
    violations: list[str]


def _without_rates(quotas: TenantQuotas) -> TenantQuotas:
    """*quotas*, but that nothing waits: or what is due each ten seconds would never be all sent."""
    none = {"runs_per_minute": None}
    own = {tenant: each.model_copy(update=none) for tenant, each in quotas.tenants.items()}
    return quotas.model_copy(update={"tenants": own})


class History:
    """A seed's history. *interleaves*: see `Kernel`. *told*: keep its events to be read."""

    def __init__(self, seed: int, *, interleaves: bool = True, told: bool = False) -> None:
        self.seed = seed
        self.kernel = Kernel(seed, START, interleaves=interleaves)
        if told:
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
        self._keep_books()
        self.weather = Weather(rough=dice.choice([0.0, 0.01, 0.04]))
        ports = dict(vars(self.stores))
        self.wire = Wire(self.kernel, ports, self.weather)
        self.wire.watched = self._watched
        self.effects = Effects(self.monitor, self.setting.shares.quotas)
        self.rates = Rates(self.monitor, self.setting.shares.quotas)
        self.system = System(self.kernel, self.wire, self.stores, self.setting, self.effects)
        self.moments = dice.choice([8, 14, 24, 40])
        self.vandalised = dice.random() < 0.12
        self.changes: Counter[JobKey] = Counter()
        self.cancelled: dict[RunKey, int] = {}
        """The runs whose cancelling was answered, with the attempts that they had by then."""
        self.asked_to_cancel: set[RunKey] = set()
        self.ever: dict[tuple[JobKey, str], list[Stored]] = {}
        """By job all that it was."""
        self.decided: dict[tuple[RunKey, datetime], datetime] = {}
        """By what a watcher sent, and when, at which instant it had decided so."""
        self.unreadable: set[JobKey] = set()
        """The jobs that could not be read for a while."""
        self.redriven: dict[RunKey, int] = {}
        """The runs whose redriving was answered, with the dispatch that was given."""
        self.asked: list[Asked] = []
        self.keyed: list[Keyed] = []
        self.skipped: set[RunKey] = set()
        """The occurrences of which it was answered that they are to be skipped."""
        self.unskipped: set[RunKey] = set()
        """Those of which that was undone, also before it was answered, and not asked for again."""
        self.asked_to_skip: set[JobKey] = set()
        self.asked_to_unskip: set[JobKey] = set()
        self.drained: list[tuple[Job, datetime]] = []
        """Of jobs as they were: from when on it was told that nothing of before was left."""
        self.backfills: dict[str, Job | None] = {}
        """By what was asked for the job as it was then; None if that was not answered."""
        self.junk_entries = 0
        self.junk_messages = 0
        self.copies = 0

    def _keep_books(self) -> None:
        """Have every change of the stores told to the monitor."""
        stores, kernel, monitor = self.stores, self.kernel, self.monitor
        stores.due.items = Journal(kernel, monitor.entry_changed)
        stores.jobs.items = Journal(kernel, self._job_changed)
        stores.runs.items = Journal(kernel, monitor.run_changed)
        stores.control.leases = Journal(kernel, lambda *_: None)
        stores.queue.log = Log(monitor.accepted)
        stores.due.page = kernel.dice.choice([1, 2, 100])
        for queue in stores.queue.queues.values():
            queue.order = lambda _: kernel.dice.random()
        monitor.watch(stores)

    def _watched(self, actor: Actor, call: str, values: tuple[Any, ...]) -> None:
        args, kwargs, done = values
        self.monitor.call(actor, call, values)
        self.rates.call(actor, call, args, done)
        # Of a skip and an undo under way at once the later write counts, whoever is answered first.
        if call == "runs.skip_next" and done is Written.DONE:
            self.unskipped.discard(args[0].key)
        elif call == "runs.unskip" and done is Written.DONE:
            self.unskipped.add(args[0])
        if call == "queue.send" and (decided_at := current().decides_at) is not None:
            for _, message in args[0]:
                self.decided[message.key, message.dispatched_at] = decided_at
        if call.startswith("runs."):
            self.effects.call(actor, call, (*args[:2], kwargs), done)

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
        """The run of an occurrence, of the job *key* or of any, that is due about now, if there is
        one.
        """
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
        """Of a job that may do anything."""
        dice = self.kernel.dice
        while True:
            misfire: dict[str, Any] = {"policy": dice.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}
            if dice.random() < 0.2:
                misfire["relevancyWindowSec"] = dice.choice([5, 90, 1_800])
            retries: dict[str, Any] = {"maxAttempts": dice.choice([1, 2, 3])}
            retries["initialDelayMs"] = dice.choice([1_000, 5_000])
            fields = {**self.a_schedule(), "misfire": misfire, "retryPolicy": retries}
            for odds, more in (
                (0.4, {"overlap": dice.choice(["QUEUE", "SKIP", "REPLACE"])}),
                (0.2, {"jitterSec": dice.choice([5, 50])}),
                (0.2, {"maxRuns": dice.choice([1, 2, 7])}),
                (0.1, {"endAt": f"2026-05-24T{dice.choice([12, 13])}:33:00Z"}),
                (0.2, {"target": {"handler": "report", "pool": "batch"}}),
                (0.2, {"timeoutSec": 30}),
                (0.3, {"priority": dice.choice(["LOW", "HIGH"])}),
            ):
                if dice.random() < odds:
                    fields.update(more)
            try:
                definition = a_definition(**fields)
                check(definition.schedule_from(self.kernel.clock.now()))
            except (InvalidInputError, ValueError):
                continue  # it would never fire
            return definition

    def register(self, key: JobKey, when: dict[str, Any] | None = None) -> None:
        """Make a job; *when* it fires, if the dice are not to say."""
        definition = self.a_definition() if when is None else a_definition(**when)
        uid = self.system.new_uid()

        def ask(client: Client) -> None:
            job = client.jobs.register(key, definition, uid=uid, now=client.actor.now())
            self.monitor.acknowledged(job)

        self.request(key.tenant, f"register {key.job_id} {definition.document()}", ask)

    def request(self, tenant: str, told: str, ask: Callable[[Client], object]) -> None:
        """Ask the API for something; refusals are answers."""
        self.kernel.tell(tenant, told)

        def answered(client: Client) -> None:
            try:
                ask(client)
            except REFUSALS as error:
                self.kernel.tell(client.actor.name, f"{type(error).__name__}: {error}")
            else:
                self.kernel.tell(client.actor.name, "is answered")

        self.system.request(tenant, answered)

    def later(self, after: timedelta, do: Callable[[], object]) -> None:
        """Have something happen in a while."""
        aws = self.system.aws

        def wait() -> None:
            aws.sleep(after)
            do()

        aws.submit(wait)

    def outage(self, *, timers: bool = False, workers: bool = False, seconds: int) -> None:
        """Have EventBridge invoke nobody, or no worker be restarted, for some time. The black-out
        lasts: whoever has begun goes on through it only if it is alive.
        """
        system = self.system
        self.kernel.tell("outage", f"{'timers ' * timers}{'workers ' * workers}{seconds} s")
        system.timers = system.timers and not timers
        system.works = system.works and not workers

        def over() -> None:
            system.timers = system.timers or timers
            system.works = system.works or workers

        self.later(timedelta(seconds=seconds), over)
        # What comes next begins after it, or amid it, or at once.
        self._patience = timedelta(seconds=self.kernel.dice.choice([0, seconds // 2, seconds]))

    # The course of things

    def play(self) -> Outcome:
        """Let it happen, let it come to rest, and look."""
        kernel, aws = self.kernel, self.system.aws
        self._patience = timedelta()
        self.stores.control.seed_cursors(self.setting.shards, floor_minute(kernel.clock.now()))
        over = aws.submit(self._direct)
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
                over.result()  # a flow that cannot be carried out is an error of its own
            at_calls = sum(n for (_, what), n in self.wire.hit.items() if what.startswith("died"))
            self.wire.hit["anywhere", "killed"] = kernel.deaths - at_calls
            self._end_all()
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

    def _direct(self) -> None:
        """The dice's part."""
        dice, aws = self.kernel.dice, self.system.aws
        for number in range(dice.choice([1, 2, 3])):
            self.register(JobKey(TENANTS[number % 2], f"job{number}"))
        weights = [flow.weight for flow in FLOWS]
        for _ in range(self.moments):
            aws.sleep(timedelta(microseconds=dice.choice(_GAPS)) + self._patience)
            self._patience = timedelta()
            (flow,) = dice.choices(FLOWS, weights)
            self.kernel.tell("dice", flow.name)
            flow.begin(self)
        aws.sleep(timedelta(seconds=5))

    def _timer(self, group: int) -> None:
        """EventBridge's rule of a group: about each minute, now and then none or two."""
        dice, aws = self.kernel.dice, self.system.aws
        while True:
            if self.system.timers:
                for _ in range(dice.choice([1, 1, 1, 1, 1, 1, 0, 2])):
                    self.system.invoke_watcher(group)
            aws.sleep(timedelta(seconds=60 + dice.choice([0, 0, -0.5, 0.5, 8])))

    def _auditor_timer(self) -> None:
        while True:
            self.system.aws.sleep(_AUDIT_EVERY)
            if self.system.timers:
                self.system.invoke_auditor()

    def _supervise(self) -> None:
        """ECS: as many workers as there are to be."""
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

    def _end_all(self) -> None:
        """Whatever runs is killed: nothing of it happens after this."""
        system = self.system
        system.works = False
        for actor in [*system.processes, system.aws]:
            actor.kill()
        self.kernel.run(lambda: False)

    def _digest(self) -> int:
        """Two histories with the same went the same way."""
        runs = sorted(str(run) for run in self.stores.runs.items.values())
        text = "\n".join([str(self.kernel.steps), str(self.kernel.at), *runs])
        return int.from_bytes(blake2s(text.encode(), digest_size=8).digest(), "big")

    # At rest

    def _come_to_rest(self) -> int:
        """With everything well again, let all end that is to end; then look at the records.

        Returns:
            How many occurrences were accounted for.
        """
        self._check_rates()
        world = World(
            stores=self.stores,
            clock=self.kernel.clock,
            shards=self.setting.shards,
            first_epoch=10**15,
            quotas=_without_rates(self.setting.shares.quotas),
        )
        self.kernel.tell("rest", "all processes are new, all is well")
        for key in [*self.stores.jobs.items]:
            self.stores.jobs.mend(key)
            job = world.job(key)
            if job.state is JobState.PAUSED and job.resumes_at is None:
                world.manage.resume(key, now=world.now)
        if self.monitor.meddled and not self.vandalised:
            self._check_mended(world)
        if self.vandalised:
            # What was purged from a queue rests for ever, if nobody audits.
            with suppress(AssertionError):
                settle(world, step=_STEP, at_most=500)
        if self.monitor.meddled or self.vandalised:
            # Beyond the auditor's grace; and again for what it let pass then.
            for later in (31, 0, 31, 0):  # the watchers are behind at first
                world.advance(minutes=later)
                self._audit(world)
                with suppress(AssertionError):
                    settle(world, step=_STEP, at_most=500)
        settle(world, step=_STEP, at_most=3_000)
        if self.junk_entries:  # a key that is no instant is met when its bucket is closed
            world.advance(minutes=3)
            settle(world, step=_STEP, at_most=3_000)
        sent = first_sent(self.stores.queue.log)
        decided = {
            key: self.decided[key, at] for key, at in sent.items() if (key, at) in self.decided
        }
        for job in [ever[-1].job for ever in self.ever.values()]:  # of each id all that had it
            resumes_at = job.resumes_at if job.state is JobState.PAUSED else None
            assert resumes_at is None or resumes_at > world.now, f"{job.key.job_id} was not resumed"
            meddled = self.vandalised or job.key in self.monitor.meddled
            if meddled and job.state is JobState.CANCELLED:
                continue  # the auditor looks after living jobs only
            assert_all_accounted(
                world,
                job,
                picked_up_late=True,
                stray=self.monitor.is_stray,
                evidence=Evidence(
                    self.ever[job.key, job.uid],
                    sent,
                    self.asked_to_cancel.__contains__,
                    decided,
                    missed=told_missed(self.stores.queue.log, job),
                ),
                purged=self.vandalised,
            )
        occurrences = sum(run.covered for run in self.stores.runs.items.values())
        self._check_cancelled()
        self._check_redriven()
        self._check_asked()
        self._check_keyed()
        self._check_skipped()
        self._check_drained()
        self._check_backfilled()
        self._check_undecodable()
        self._check_counts()
        self.monitor.check_queue_ids()
        assert not self.monitor.violations, self.monitor.violations[0]
        return occurrences

    def _check_mended(self, world: World) -> None:
        """Whoever sets a spoilt FIRE entry aside mends the chain, without an auditor. One that
        was parked is met in its minute.
        """
        with suppress(AssertionError):
            settle(world, step=_STEP, at_most=500)
        met = max(self._unread_minutes(), default=world.now)
        world.advance(seconds=max((met - world.now).total_seconds(), 0) + 180)
        with suppress(AssertionError):
            settle(world, step=_STEP, at_most=3_000)
        for key in self.monitor.meddled - self.unreadable:
            assert_chained(world, world.job(key))

    def _unread_minutes(self) -> Iterator[datetime]:
        """The minutes of what does not read as an entry, and nobody has met yet."""
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
            clock=world.clock,
            executor=InlineExecutor(),
            pools=POOLS,
            write_shards=self.setting.shards,
            read_shards=self.setting.shards,
            every=timedelta(days=1),
        )
        for report in audit.continue_audit(world.now + timedelta(minutes=14), restart=True):
            self.kernel.tell("auditor", str(report))

    def _check_rates(self) -> None:
        """No more of a tenant was sent than its quota of runs per minute. A watcher may take a run
        at the end of a minute and send it in the next.
        """
        sent = {(m.key, m.dispatch): m for m in reversed(self.stores.queue.log)}.values()
        minutes = Counter((m.tenant, floor_minute(m.dispatched_at)) for m in sent)
        for (tenant, minute), count in minutes.items():
            most = self.setting.shares.quotas.of(tenant).runs_per_minute
            assert most is None or count <= 2 * most, f"{count} runs of {tenant} in {minute}"

    def _check_counts(self) -> None:
        """As many jobs of a tenant are counted as there are."""
        jobs = self.stores.jobs.items.values()
        for tenant in TENANTS:
            counted = [job for job in jobs if job.key.tenant == tenant and job.counted]
            count = self.stores.jobs.counts[tenant]
            assert count == len(counted), f"{len(counted)} jobs of {tenant} count as {count}"
            assert not any(job.state.ended for job in counted), f"{tenant}: one that ended counts"
            most = self.setting.shares.quotas.of(tenant).jobs
            uncounted = [j for j in jobs if j.key.tenant == tenant and not j.counted]
            forgotten = [job.key.job_id for job in uncounted if not job.state.ended]
            assert most is None or not forgotten, f"{tenant}: {forgotten} do not count"
            assert most is None or count <= most, f"{tenant} has {count} jobs, more than {most}"

    def _check_cancelled(self) -> None:
        """What was cancelled was not tried again, unless it was redriven. It may have done well
        before that was seen.
        """
        for key, attempts in self.cancelled.items():
            run = self.stores.runs.items[key]
            if run.attempt_base:
                continue
            assert run.state in {RunState.CANCELLED, RunState.SUCCEEDED}, (
                f"{key.execution_id} was cancelled and is {run.state}"
            )
            assert len(run.attempts) <= attempts, f"{key.execution_id} was cancelled, tried again"

    def _check_redriven(self) -> None:
        """What was redriven was sent again."""
        for key, dispatch in self.redriven.items():
            run = self.stores.runs.items[key]
            assert run.attempt_base, f"{key.execution_id} was redriven and does not know it"
            assert run.dispatch >= dispatch, f"{key.execution_id}: dispatch {dispatch} is gone"
            tried = run.attempt > run.attempt_base
            assert tried or run.state is RunState.CANCELLED, f"{key.execution_id} was not redriven"

    def _check_asked(self) -> None:
        """What was asked for became one run, however often it was asked, with what it was given."""
        runs = self.stores.runs.items.values()
        for number, asked in enumerate(self.asked, 1):
            made = [run for run in runs if run.request in asked.requests]
            assert len(asked.requests) <= 1, f"request {number} came as {asked.requests}"
            assert len({*asked.answers}) <= 1, f"request {number} had {asked.answers}"
            assert len(made) <= 1, f"request {number} made {[r.key.run_id for r in made]}"
            assert len(made) >= bool(asked.answers), f"request {number} was answered, made nothing"
            for run in made:
                name = run.key.execution_id
                told = [*asked.answers, name]
                assert told[0] == name, f"request {number} was told {told[0]}, not {name}"
                assert run.key.job == asked.job
                self._check_payload(run, asked.payload)

    def _check_keyed(self) -> None:
        """What was asked for under a key became one job, made once, whatever became of it, however
        often it was asked; all had one answer; and of two things one was refused.
        """
        for keyed in self.keyed:
            made = {of: stored for of, stored in self.ever.items() if of[1] in keyed.uids}
            answered = {body: told for body, told in keyed.answers.items() if told}
            assert len(keyed.uids) <= 1, f"{keyed.name} went by {keyed.uids}"
            assert len(answered) <= 1, f"{keyed.name}: two bodies were answered, {answered}"
            assert len(made) <= 1, f"{keyed.name} made {[*made]}"
            assert len(made) >= len(answered), f"{keyed.name} was answered, and made nothing"
            for (key, uid), stored in made.items():
                first = [each.job for each in stored if each.job.revision == 1]
                assert len(first) == 1, f"{keyed.name} made {key.job_id} {len(first)} times"
                assert key.tenant == keyed.tenant, f"{keyed.name} made another tenant's job"
                for body, told in answered.items():
                    assert len({*told}) == 1, f"{keyed.name} was answered {told}"
                    assert told[0].startswith(f"{key.job_id} {uid},"), f"{keyed.name}: {told[0]}"
                    wanted = keyed.bodies[body]
                    assert first[0].definition == wanted, f"{keyed.name} made another's job"

    def _check_skipped(self) -> None:
        """What was answered to be skipped never ran, unless that was undone. Neither was done to a
        job of which nobody had asked it.
        """
        started = {each.execution_id for each in self.system.scripts_started}
        for key in self.skipped - self.unskipped:
            run = self.stores.runs.items.get(key)
            assert run is not None, f"{key.execution_id} was to be skipped, and has no record"
            assert run.skip_requested, f"{key.execution_id} was to be skipped and is {run.state}"
            assert key.execution_id not in started, f"{key.execution_id} was skipped, and ran"
        for key in self.unskipped:
            run = self.stores.runs.items.get(key)
            assert key.job in self.asked_to_unskip, f"{key.execution_id}: nobody asked to undo it"
            assert run is None or not run.skip_requested, (
                f"{key.execution_id} was not to be skipped any more, and is"
            )
        for key, run in self.stores.runs.items.items():
            asked = not run.skip_requested or key.job in self.asked_to_skip
            assert asked, f"{key.execution_id} is skipped, and nobody asked for it"

    def _check_drained(self) -> None:
        """What was told to have drained began nothing more of before, unless it was redriven."""
        for job, told_at in self.drained:
            until = job.effective_from
            for started in self.system.scripts_started:
                key = parse_execution_id(job.key.tenant, started.execution_id)
                if (key.job, key.uid) != (job.key, job.uid) or started.at <= told_at:
                    continue
                run = self.stores.runs.items[key]
                of_before = run.trigger is Trigger.SCHEDULE and key.scheduled_at <= until
                assert not of_before or run.attempt_base, (
                    f"{key.execution_id} began at {started.at}; its job had drained at {told_at}"
                )

    def _check_backfilled(self) -> None:
        """What was answered to be made up for has its record, unless that was stopped: by a
        request, a change of *when*, a pause or a deletion.
        """
        for name, job in self.backfills.items():
            if job is None or job.backfill is None:
                continue
            now = self.stores.jobs.items[job.key]
            assert now.backfilling is None, f"{name} goes on, and all is at rest"
            versions = {each.job.schedule_version for each in self.ever[job.key, job.uid]}
            stopped = any(
                each.job.backfill is not None
                and (each.job.backfill.backfill_id, each.job.backfill.version) == (name, 0)
                for each in self.ever[job.key, job.uid]
            )
            if stopped or max(versions) > job.schedule_version or now.uid != job.uid:
                continue
            asked = job.backfill
            for each in occurrences(job.past_schedule(asked.first), asked.first - _MOMENT):
                if each.at > asked.last:
                    break
                key = RunKey(job.key, run_id(job.uid, each.at))
                covered = any(
                    run.key.job == job.key
                    and run.key.uid == job.uid
                    and run.key.scheduled_at <= each.at <= run.covers_until
                    for run in self.stores.runs.items.values()
                )
                assert covered, f"{key.execution_id} was to be made up for by {name}"

    def _check_payload(self, run: Run, payload: str | None) -> None:
        name = run.key.execution_id
        for started in self.system.scripts_started:
            if started.execution_id == name and payload is not None:
                assert started.payload == payload, f"{name} was given {started.payload}"

    def _check_undecodable(self) -> None:
        """What does not decode is kept (invariant 10)."""
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
                told = any(run.key.run_id in body for body in letters)
                # Its message may be gone before anybody told of it: nobody else does.
                told = told or (self.vandalised and run.buried != run.dispatch)
                assert told, f"{run.key.execution_id} died and is not in the dead-letter queue"
