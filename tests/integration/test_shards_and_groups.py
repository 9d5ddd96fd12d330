"""Shards, groups and watchers that are changed, doubled, killed and skewed, under load.

The stores are the fakes, which pass their adapters' contract suites: these tests cover the order
of calls of many processes, second by second, on one clock.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from functions.watcher import handler as watcher_function
from nextfire.domain.due import bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports.control import Lease
from nextfire.domain.run import RunState
from nextfire.settings import WatcherSettings
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.tick import Dispatch
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.watch import Watch
from tests.builders import at, job_key
from tests.crons import LONG
from tests.fakes import Clock, Faults, Killed, MemoryDueStore, MemoryJobStore
from tests.world import BUCKET, POOLS, World

SECOND = timedelta(seconds=1)
NO_TIME = timedelta()
LIFE = timedelta(seconds=130)
"""The life of a watcher's invocation; each group gets one invocation per minute."""
ON_TIME = timedelta(milliseconds=600)
"""A watcher that ends hands over at the standby's next poll, half a second away."""
_RETRY_SOON = {"maxAttempts": 100, "backoff": "FIXED", "initialDelayMs": 3000}


class AheadClock(Clock):
    """The clock of a machine that is *ahead* of *true*; behind if negative."""

    def __init__(self, true: Clock, ahead: timedelta) -> None:
        super().__init__(true.now())
        self._true, self._ahead = true, ahead

    def now(self) -> datetime:
        return self._true.now() + self._ahead

    def move_to(self, at: datetime) -> datetime:
        return self._true.move_to(at - self._ahead) + self._ahead


class WritingTo:
    """A store as seen by a process with *shards* write shards in its settings."""

    def __init__(self, store: object, due: MemoryDueStore, shards: int) -> None:
        self._store, self._due, self._shards = store, due, shards

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._due.shards = self._shards
            return getattr(self._store, method)(*args, **kwargs)

        return call


def machine(world: World, *, writes: int, ahead: timedelta = NO_TIME) -> World:
    """Another machine of the same world, with its own clock, settings and death."""
    other = copy.copy(world)
    other.faults = Faults()
    other.clock = AheadClock(world.clock, ahead)
    other.due = cast("MemoryDueStore", WritingTo(world.due, world.due, writes))
    other.jobs = cast("MemoryJobStore", WritingTo(world.jobs, world.due, writes))
    limits = Limits(POOLS, scripts_bucket=BUCKET)
    unsent = FindUnsent(
        other.faults.through(other.due, "due"),
        other.faults.through(other.control, "control"),
        read_shards=world.shards,
    )
    other.manage = ManageJobs(other.faults.through(other.jobs, "jobs"), limits, unsent)
    return other


class Watcher:
    """One invocation of a group's watcher; steps at the instants that its steps ask for."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        shards: range,
        writes: int,
        group: int = 0,
        ahead: timedelta = NO_TIME,
        ends_at: datetime | None = None,
    ) -> None:
        self.machine = machine(world, writes=writes, ahead=ahead)
        self.faults = self.machine.faults
        self.again_at = world.now
        self.alive = True
        self._world, self._shards, self._ahead, self._ends_at = world, shards, ahead, ends_at
        control = self.faults.through(world.control, "control")
        self.watch = Watch(HoldLease(control, group=group, holder=name), self._dispatcher)

    @property
    def holds(self) -> bool:
        return self.alive and self.watch.holds

    def step(self) -> None:
        """Perform a step; die if `faults` says so."""
        if not self.alive:
            return
        try:
            if self._ends_at is not None and self._world.now >= self._ends_at:
                self.alive = False
                self.watch.end()
                return
            _, again_at = self.watch.step(self.machine.now)
            self.again_at = again_at - self._ahead
        except UnavailableError:
            self.again_at = self._world.now + SECOND / 4
        except Killed:
            self.alive = False

    def _dispatcher(self, lease: Lease) -> Dispatch:
        dispatcher = self.machine.dispatcher(lease.epoch)
        dispatcher._reader._shards = [*self._shards]  # noqa: SLF001 — the world's reader has all shards
        return dispatcher


@dataclass
class Fleet:
    """A deployment: its current settings, the processes started with them, and a load."""

    world: World
    reads: int = 4
    writes: int = 4
    groups: int = 1
    stagger: int = 0
    """Seconds between the invocations of one group and those of the next."""
    watcher_ahead: tuple[timedelta, ...] = (NO_TIME,)
    """The clock offsets of watchers, assigned in turn."""
    executor_ahead: timedelta = NO_TIME
    api_ahead: timedelta = NO_TIME
    watchers: list[Watcher] = field(default_factory=list)
    due: dict[RunKey, datetime] = field(default_factory=dict)
    """Every occurrence that has to run, with its instant."""
    dispatched: dict[RunKey, datetime] = field(default_factory=dict)
    """When each run was first sent, on the true clock."""
    used: set[int] = field(default_factory=set)
    """The shards in which entries were seen."""
    failures: int = 0
    _started: Iterator[int] = field(default_factory=count)
    _seen: int = 0

    @property
    def now(self) -> datetime:
        return self.world.now

    # Processes

    def invoke(self, elapsed: int) -> None:
        """Act as EventBridge in second *elapsed*: once a minute, start a watcher for each group."""
        for group in range(self.groups):
            if elapsed and elapsed % 60 != group * self.stagger % 60:
                continue
            number = next(self._started)
            self.start(
                f"w{number}",
                group=group,
                shards=range(group, self.reads, self.groups),
                ahead=self.watcher_ahead[number % len(self.watcher_ahead)],
                ends_at=self.now + LIFE,
            )

    def start(self, name: str, *, shards: range | None = None, **more: Any) -> Watcher:
        every = range(self.reads) if shards is None else shards
        watcher = Watcher(self.world, name, shards=every, writes=self.writes, **more)
        self.watchers.append(watcher)
        return watcher

    def start_api(self) -> World:
        """A process of the API with the current settings."""
        api = machine(self.world, writes=self.writes, ahead=self.api_ahead)
        self.world.control.seed_cursors(self.reads, floor_minute(api.now))
        return api

    def execute(self) -> None:
        """Have executors with the current settings handle the visible messages."""
        executor = machine(self.world, writes=self.writes, ahead=self.executor_ahead)
        self.failures += sum(bool(s.exit_code) for s in self.world.runner.scripts)
        executor.worker("x").work()
        self.failures -= sum(bool(s.exit_code) for s in self.world.runner.scripts)

    # The load

    def once(self, api: World, job_id: str, due_at: datetime) -> None:
        job = api.register(
            job_id, type="ONCE", schedule=due_at.isoformat(), retryPolicy=_RETRY_SOON
        )
        self._expect(job_id, job.uid, due_at)

    def every(self, api: World, job_id: str, step: timedelta, until: datetime) -> None:
        """An interval job from the next second until *until*."""
        first = api.now.replace(microsecond=0) + SECOND
        job = api.register(
            job_id,
            type="INTERVAL",
            schedule=f"PT{step.seconds}S",
            startAt=first.isoformat(),
            endAt=until.isoformat(),
            retryPolicy=_RETRY_SOON,
            misfire={"policy": "RUN_ALL"},
        )
        due_at = first
        while due_at <= until:
            self._expect(job_id, job.uid, due_at)
            due_at += step

    def _expect(self, job_id: str, uid: str, due_at: datetime) -> None:
        self.due[RunKey(job_key(job_id), run_id(uid, due_at))] = due_at

    # Time

    def live(self, until: datetime, *, each_second: Callable[[], object] = lambda: None) -> None:
        """Let time pass. Watchers step when they are due; executors work, and *each_second* is
        called, at each whole second.
        """
        second_at = self.now
        while self.now < until:
            if self.now >= second_at:
                second_at += SECOND
                each_second()
                self.execute()
            for watcher in self.watchers:
                if watcher.again_at <= self.now:
                    watcher.step()
                    self.check_cursors()
            self._observe()
            waiting = [w.again_at for w in self.watchers if w.alive]
            ahead = min([second_at, until, *waiting])
            self.world.clock.move_to(max(ahead, self.now + timedelta(milliseconds=1)))
            self.watchers = [w for w in self.watchers if w.alive]
        self.execute()

    def _observe(self) -> None:
        log = self.world.queue.log
        for message in log[self._seen :]:
            self.dispatched.setdefault(message.key, self.now)
        self._seen = len(log)
        self.used |= {int(slot.bucket[-3:]) for slot in self.world.due.items}

    # The promises

    def check_cursors(self) -> None:
        """Check that no entry is in a bucket that watchers no longer read."""
        moved = self.world.control.moved
        first = {f"{shard:03d}": bucket_name(minute, shard) for shard, (minute, _) in moved.items()}
        behind = [
            slot
            for slot in self.world.due.items
            if slot.bucket < first.get(slot.bucket[-3:], slot.bucket)
        ]
        assert not behind, f"{behind} are behind {moved}"

    def check(self) -> None:
        """Check that every due occurrence ran in exactly one execution, and nothing else ran."""
        runs = self.world.runs.all
        lost = sorted(due_at for key, due_at in self.due.items() if key not in runs)
        assert not lost, f"{len(lost)} of {len(self.due)} are lost: {lost[:3]}"
        assert runs.keys() == self.due.keys()
        assert {run.state for run in runs.values()} == {RunState.SUCCEEDED}
        assert len(self.world.runner.calls) == len(runs) + self.failures
        ids = [call.environment["NEXTFIRE_EXECUTION_ID"] for call in self.world.runner.calls]
        assert sum(n > 1 for n in Counter(ids).values()) <= self.failures
        assert not self.world.due.items

    @property
    def lateness(self) -> list[timedelta]:
        """How late each run was first sent, in ascending order."""
        return sorted(self.dispatched[key] - due_at for key, due_at in self.due.items())


def under_load(
    fleet: Fleet, *, lasts: int, then: dict[int, Callable[[], object]], new_api: bool = True
) -> None:
    """Live for *lasts* seconds, with a new watcher every minute. *then* maps seconds to
    deployments. Meanwhile jobs are registered, fire and fail. All registered jobs are due before
    the end.
    """
    start = fleet.now
    end = start + lasts * SECOND
    apis = [fleet.start_api()]
    for n in range(12):
        fleet.every(apis[0], f"interval-{n}", (5 + n) * SECOND, end - 10 * SECOND)

    def each_second() -> None:
        elapsed = (fleet.now - start) // SECOND
        if elapsed in then:
            then[elapsed]()
            apis[:] = [fleet.start_api()] if new_api else [machine_of(fleet)]
        fleet.invoke(elapsed)
        if elapsed % 10 == 5:
            fleet.world.script(exit_code=1)  # a due entry retries the run 3 s later
        for n, ahead in enumerate((1.25, 5, 64)):
            due_at = apis[0].now + timedelta(seconds=ahead)
            if due_at < end - 10 * SECOND:
                fleet.once(apis[0], f"once-{elapsed}-{n}", due_at)

    fleet.live(end + 20 * SECOND, each_second=each_second)


def machine_of(fleet: Fleet) -> World:
    return machine(fleet.world, writes=fleet.writes, ahead=fleet.api_ahead)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(World("12:00:20"))


CHANGES = [
    ((1, 3, 1), 23),
    ((3, 1, 8), 0),
    ((2, 5, 3), 23),
    ((1, 3, 1), 0),
    ((3, 1, 8), 23),
    ((2, 5, 3), 0),
]
"""Numbers of groups one after the other, and the stagger of the watchers. The last four: with
NEXTFIRE_LONG only.
"""
CLOCKS = [
    ((-2,), 2, 0),
    ((2,), 0, -2),
    ((-2, 2), 2, -2),
    ((2,), -2, 0),
    ((-2,), 0, 2),
    ((2, -2), 0, 0),
]
"""Seconds by which the clocks of watchers, executors and the API are ahead. The last three: with
NEXTFIRE_LONG only.
"""


class TestMoreShards:
    def test_readers_first_then_writers_a_life_later_delays_nothing(self, fleet: Fleet) -> None:
        under_load(
            fleet,
            lasts=400,
            then={
                70: lambda: setattr(fleet, "reads", 8),
                # An invocation that started just before the deployment lives for 130 s.
                70 + 130: lambda: setattr(fleet, "writes", 8),
            },
        )

        fleet.check()
        assert fleet.used == set(range(8))
        assert fleet.lateness[-1] <= ON_TIME

    @pytest.mark.parametrize("new_api", [True, False], ids=["api seeds", "watchers seed"])
    def test_readers_and_writers_by_one_deploy_delay_and_lose_nothing(
        self, fleet: Fleet, *, new_api: bool
    ) -> None:
        def deploy() -> None:
            fleet.reads = fleet.writes = 8

        under_load(fleet, lasts=400, then={70: deploy}, new_api=new_api)

        fleet.check()
        assert fleet.used == set(range(8))
        # The standby started at 60 took over at 130 and held the lease with its old setting until
        # 190.
        assert timedelta(seconds=100) < fleet.lateness[-1] <= LIFE

    def test_writers_long_before_readers_delay_and_lose_nothing(self, fleet: Fleet) -> None:
        """No deployment does this (the settings are rejected). Its entries are still found, as long
        as the cursors are seeded before they are written.
        """
        fleet.world.control.seed_cursors(8, at("12:00"))
        under_load(
            fleet,
            lasts=400,
            then={
                10: lambda: setattr(fleet, "writes", 8),
                200: lambda: setattr(fleet, "reads", 8),
            },
        )

        fleet.check()
        assert fleet.lateness[-1] > timedelta(seconds=180)


class TestGroups:
    @given(
        st.integers(1, 999).flatmap(lambda n: st.tuples(st.integers(1, min(n, 100)), st.just(n)))
    )
    @settings(max_examples=60 if LONG else 20)
    def test_each_shard_is_read_by_exactly_one_group(self, counts: tuple[int, int]) -> None:
        groups, reads = counts
        with pytest.MonkeyPatch.context() as patch:
            read = [
                shard for group in range(groups) for shard in shards_read(patch, group, *counts)
            ]

        assert sorted(read) == list(range(reads))

    def test_three_groups_on_eight_shards_send_each_run_once_and_in_time(
        self, fleet: Fleet
    ) -> None:
        fleet.reads, fleet.writes, fleet.groups = 8, 8, 3

        under_load(fleet, lasts=280, then={})

        fleet.check()
        assert fleet.lateness[-1] <= ON_TIME
        sent = Counter((message.key, message.dispatch) for message in fleet.world.queue.log)
        assert set(sent.values()) == {1}

    @pytest.mark.parametrize(("counts", "stagger"), CHANGES if LONG else CHANGES[:2])
    def test_the_number_of_groups_is_changed_and_nothing_is_lost(
        self, fleet: Fleet, counts: tuple[int, int, int], stagger: int
    ) -> None:
        fleet.reads = fleet.writes = 8
        fleet.stagger = stagger
        fleet.groups, second, third = counts

        under_load(
            fleet,
            lasts=420,
            then={
                70: lambda: setattr(fleet, "groups", second),
                230: lambda: setattr(fleet, "groups", third),
            },
        )

        fleet.check()
        # A removed group ends with its last invocation. Until the last invocation of the others
        # with the old setting has also ended, its shards may have no reader.
        assert fleet.lateness[-1] <= LIFE
        behind = {fleet.now - minute for minute, _ in fleet.world.control.moved.values()}
        assert max(behind) <= 3 * MINUTE, "the last reader of a shard moves its cursor"

    def test_a_holder_of_an_unplanned_group_does_no_harm(self, fleet: Fleet) -> None:
        intruder = fleet.start("intruder", group=77)

        under_load(fleet, lasts=200, then={})

        assert intruder.holds
        fleet.check()
        assert fleet.lateness[-1] <= ON_TIME
        sent = Counter((message.key, message.dispatch) for message in fleet.world.queue.log)
        assert max(sent.values()) == 2, "both must send for a meaningful test"


class TestClocks:
    @pytest.mark.parametrize(("watchers", "executors", "api"), CLOCKS if LONG else CLOCKS[:3])
    def test_clocks_two_seconds_off_shift_runs_by_two_seconds(
        self, fleet: Fleet, watchers: tuple[int, ...], executors: int, api: int
    ) -> None:
        fleet.watcher_ahead = tuple(SECOND * ahead for ahead in watchers)
        fleet.executor_ahead, fleet.api_ahead = SECOND * executors, SECOND * api

        under_load(fleet, lasts=280, then={})  # checks the cursors at each step

        fleet.check()
        assert fleet.lateness[0] >= -2 * SECOND
        # An occurrence in the API's future, by its slow clock, may have been past when it was
        # stored.
        stored_late = max(-api - 1.25, 0) * SECOND
        assert fleet.lateness[-1] <= 2 * SECOND + stored_late + ON_TIME

    @pytest.mark.parametrize("api", [-2, 0, 2])
    def test_entries_at_the_edge_of_a_minute_are_not_passed(self, fleet: Fleet, api: int) -> None:
        """An API process with a fast clock seeds the cursors; another with a slow clock writes
        entries that are due at once. The late reads of closed buckets find them.
        """
        fleet.world.at("12:00:58.2")
        fleet.api_ahead = 2 * SECOND
        fleet.start_api()
        for _ in range(8):
            writer = machine(fleet.world, writes=4, ahead=SECOND * api)
            for n in range(4):
                job_id = f"edge-{fleet.now:%S%f}-{n}"
                fleet.once(writer, job_id, writer.now + timedelta(milliseconds=1))
            fleet.world.advance(seconds=0.5)
        behind = [slot for slot in fleet.world.due.items if slot.minute < at("12:01")]
        assert bool(behind) == (api < 2), "required for a meaningful test"

        fleet.start("w")
        end = fleet.now + 90 * SECOND
        while fleet.now < end:
            for watcher in fleet.watchers:
                watcher.step()
            fleet.execute()
            fleet.world.advance(seconds=0.5)

        fleet.check()

    def test_a_later_holder_whose_clock_is_behind_still_moves_cursors_in_the_end(
        self, fleet: Fleet
    ) -> None:
        """A shard moves from a group with a fast clock to one with a slow clock and an earlier
        epoch. Cursors stand still while that holder has the lease, but no longer.
        """
        fleet.world.control.seed_cursors(4, at("11:58"))
        ahead = fleet.start("ahead", group=1, ahead=2 * SECOND)
        fleet.live(at("12:00:21"))
        assert ahead.holds
        ahead.alive = False
        behind = fleet.start("behind", ahead=-2 * SECOND)
        fleet.live(at("12:05"))
        stood = dict(fleet.world.control.moved)
        behind.alive = False
        fleet.start("next", ahead=-2 * SECOND)

        fleet.live(at("12:05:10"))

        assert {minute for minute, _ in stood.values()} <= {at("11:58"), at("11:59")}
        assert {minute for minute, _ in fleet.world.control.moved.values()} == {at("12:04")}


class TestDeath:
    def test_a_holder_killed_at_any_call_is_replaced_and_nothing_is_lost(self) -> None:
        for calls in range(10_000):
            fleet = Fleet(World("11:59:58.3"), reads=2, writes=2)
            api = fleet.start_api()
            for n in range(3):
                fleet.every(api, f"interval-{n}", (2 + n) * SECOND, at("12:00:06"))
                fleet.once(api, f"once-{n}", at("12:00:00") + n * SECOND / 2)
            holder = fleet.start("a")
            holder.step()
            fleet.start("b")
            holder.faults.kill_after(calls)
            fleet.live(at("12:00:05"))
            survived = holder.alive
            holder.alive = False

            fleet.live(at("12:00:20"))

            fleet.check()
            assert fleet.lateness[-1] <= 4 * SECOND, f"killed after {calls} calls"
            if survived:
                break
        assert calls > 50, "the test did not reach most calls"

    def test_cursor_and_lease_are_corrupted_and_the_holder_is_killed(self, fleet: Fleet) -> None:
        api = fleet.start_api()
        fleet.start("a")
        fleet.live(at("12:03:00"))
        for watcher in fleet.watchers:
            watcher.alive = False
        for n in range(20):
            fleet.once(api, f"once-{n}", fleet.now + (n + 1) * SECOND)
        fleet.world.clock.advance(minutes=40)  # longer than the set-back of a missing cursor
        for shard in range(4):
            fleet.world.control.spoil_cursor(shard)
        fleet.world.control.spoil_lease(0)
        fleet.start("b")
        fleet.start("c")

        fleet.live(fleet.now + 35 * SECOND)

        fleet.check()
        assert sum(watcher.holds for watcher in fleet.watchers) == 1
        cursors = {minute for minute, _ in fleet.world.control.moved.values()}
        assert cursors == {floor_minute(fleet.now - timedelta(seconds=30))}

    @given(st.data())
    @settings(max_examples=40 if LONG else 15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
    def test_watchers_stopped_killed_and_started_in_any_order_lose_nothing(
        self, data: st.DataObject
    ) -> None:
        """Each watcher may pause for any time between two steps: another watcher, or two, may have
        had its lease before it writes what it had read.
        """
        fleet = Fleet(World("11:59:50"), reads=3, writes=3)
        api = fleet.start_api()
        for n in range(4):
            fleet.every(api, f"interval-{n}", (3 + n) * SECOND, at("12:00:10"))
        offs = st.sampled_from([-2 * SECOND, NO_TIME, 2 * SECOND])
        names = count()

        def start() -> None:
            group = data.draw(st.integers(0, 1), "group")
            fleet.start(f"w{next(names)}", group=group, ahead=data.draw(offs, "ahead"))

        start()
        for _ in range(data.draw(st.integers(10, 60), "turns")):
            turn = data.draw(st.sampled_from(["step"] * 8 + ["start", "kill"]), "turn")
            if turn == "start":
                start()
            else:
                watcher = data.draw(st.sampled_from(fleet.watchers), "watcher")
                if turn == "kill":
                    watcher.faults.kill_after(data.draw(st.integers(0, 12), "calls"))
                watcher.step()
            away = data.draw(st.sampled_from([0, 1, 200, 500, 500, 1000, 3100, 7000]), "away")
            fleet.world.clock.advance(milliseconds=away)
            if data.draw(st.booleans(), "execute"):
                fleet.execute()
            fleet.check_cursors()
        fleet.world.clock.move_to(max(fleet.now, at("12:00:13")))
        fleet.start("last")
        fleet.start("last of the other group", group=1)

        fleet.live(fleet.now + 100 * SECOND)

        fleet.check()


def test_an_outage_of_26_hours_is_caught_up_from_the_stored_cursors() -> None:
    fleet = Fleet(World("12:00:20"))
    api = fleet.start_api()
    fleet.start("before")
    fleet.live(at("12:03"))
    stored = {minute for minute, _ in fleet.world.control.moved.values()}
    assert stored == {at("12:02")}
    fleet.watchers.clear()
    back_at = fleet.now + timedelta(hours=26)
    for n in range(26 * 6):  # every ten minutes of the outage, and at its end
        fleet.once(api, f"missed-{n}", fleet.now + n * timedelta(minutes=10) + SECOND)
    for n in range(20):
        fleet.once(api, f"present-{n}", back_at + n * SECOND)
    fleet.world.clock.move_to(back_at - SECOND)
    fleet.start("a")
    fleet.start("b")

    fleet.live(back_at + 40 * SECOND)

    fleet.check()
    present = {key for key in fleet.due if key.job.job_id.startswith("present")}
    late = {fleet.dispatched[key] - fleet.due[key] for key in present}
    assert max(late) <= 4 * SECOND, "current runs do not wait for all missed runs"
    cursors = {minute for minute, _ in fleet.world.control.moved.values()}
    assert cursors == {floor_minute(fleet.now - timedelta(seconds=30))}


def shards_read(patch: pytest.MonkeyPatch, group: int, groups: int, reads: int) -> list[int]:
    """The shards of *group*, as computed by the deployed function."""
    environment = {
        **dict.fromkeys(("jobs_table", "due_table", "runs_table", "control_table"), "t"),
        "pools": "{}",
        "write_shards": str(reads),
        "read_shards": str(reads),
        "groups": str(groups),
    }
    for name, value in environment.items():
        patch.setenv(f"NEXTFIRE_{name.upper()}", value)
    config = watcher_function.config_of(WatcherSettings.read(), group)
    return list(config.shards)
