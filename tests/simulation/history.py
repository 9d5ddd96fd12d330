"""One history: a system, the random events of its seed, and the checks of the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import blake2s
from typing import Any
from unittest.mock import patch

from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports.runs import Written
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.run import Run, RunState
from nextfire.domain.upcoming_runs import upcoming_runs
from nextfire.testing.kernel import SECOND, Actor, Kernel, current
from nextfire.usecases.dispatch import holding
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.tick import BUDGET
from tests.builders import a_definition, at
from tests.evidence import Stored
from tests.fakes import memory_stores
from tests.simulation.at_rest import come_to_rest
from tests.simulation.client import Client
from tests.simulation.edge_flows import sequence_flows
from tests.simulation.effects import Effects
from tests.simulation.endpoint_flows import ENDPOINT_FLOWS
from tests.simulation.flow import REFUSALS, TENANTS, Flow
from tests.simulation.flows import FLOWS, REMOVE_POOL
from tests.simulation.invocations import auditor_timer, event_source, supervise, timer
from tests.simulation.monitor import Monitor
from tests.simulation.processes import Setting
from tests.simulation.projection import Projection
from tests.simulation.random_jobs import MOST, random_definition
from tests.simulation.rates import Rates
from tests.simulation.redrives import begin_redrives
from tests.simulation.requested import Requested
from tests.simulation.sequences import EXITS, SEQUENCES, Sequences
from tests.simulation.system import System
from tests.simulation.takeovers import check_takeover
from tests.simulation.wire import Journal, Log, Weather, Wire
from tests.world import POOLS

START = at("11:59:50")
QUOTAS = [
    TenantQuotas.model_validate({"tenants": {TENANTS[0]: quotas}})
    for quotas in (
        {"concurrentRuns": 1},
        {"concurrentRuns": 2, "jobs": 2},
        {"runsPerMinute": 4},
        {"runsPerMinute": 9, "concurrentRuns": 1, "jobs": 1},
    )
]
_GAPS = [0, 0, 100_000, SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 20 * SECOND]
_JOB_RETENTION = 3 * MINUTE
"""Of ended jobs, in histories with an audit each minute. Longer than a request is repeated."""
_WIDE = 10
"""One history of this many has an audit each minute, and jobs as `_more` makes them."""
CALLING = 20
"""One history of this many has jobs that make calls, among others."""
REMOVING = 9
"""One history of twenty, those of this remainder, has a pool that is removed for a while."""
SEQUENCED = 7
CROWDED = 5
"""One history of ten, those of this remainder, has watchers with batches of two entries, and memory
for two or three: more is due than they can hold.
"""


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


class History(Requested):
    """The history of a seed. *interleaves*: see `Kernel`. *logs*: record its events."""

    def __init__(self, seed: int, *, interleaves: bool = True, logs: bool = False) -> None:
        super().__init__()
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
            memory=2 + seed // _WIDE % 2 if seed % _WIDE == CROWDED else BUDGET,
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
        self.removing = MOST if seed % CALLING == REMOVING else 0.2
        """The part of the jobs whose pool may be removed."""
        self.projection = Projection(seed)
        self.sequences = Sequences.of(self) if seed % SEQUENCES == SEQUENCED else None
        if self.sequences is not None:
            self.vandalised, self.system.exits = False, EXITS
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
        elif was is not None:
            self.removed[key, was.uid] = self.kernel.clock.now()
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
        since = self.kernel.clock.now() - MINUTE
        found = (each.occurrence.at for each in upcoming_runs(job, since, 100))
        at = next((at for at in found if job.due_at(at) > since), None)  # waits for none before it
        return None if at is None else job.run_key(at)

    def register(self, key: JobKey, when: dict[str, Any] | None = None) -> None:
        """Create a job; *when* is its schedule, random by default."""
        definition = random_definition(self) if when is None else a_definition(**when)
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
        if self.setting.memory == BUDGET:
            return self._play()
        with patch.multiple(holding, BATCH=2, _SPARE_PART=1, _SPARE_OF_FULL=1):
            return self._play()

    def _play(self) -> Outcome:
        kernel, aws = self.kernel, self.system.aws
        self.patience = timedelta()
        self.stores.control.seed_cursors(self.setting.shards, floor_minute(kernel.clock.now()))
        over = aws.submit(self._begin_flows)
        for group in range(self.setting.groups):
            aws.submit(lambda group=group: timer(self, group))
        aws.submit(lambda: auditor_timer(self))
        aws.submit(lambda: supervise(self))
        if self.setting.on_lambda:
            aws.submit(lambda: event_source(self))
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
            return sequence_flows(self.seed)
        if self.removing == MOST:
            return [*FLOWS, REMOVE_POOL]
        return [*FLOWS, *ENDPOINT_FLOWS] if self.calls else FLOWS

    def _begin_flows(self) -> None:
        """Begin random flows."""
        dice, aws, flows = self.kernel.dice, self.system.aws, self.flows()
        begin_redrives(self)
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

    def _come_to_rest(self) -> int:
        return come_to_rest(self)
