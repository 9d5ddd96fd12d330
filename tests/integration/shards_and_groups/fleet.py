"""A deployment under load, with the runs that are due, those that were sent, and how late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nextfire.domain.due import bucket_name
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import floor_minute
from nextfire.domain.run import RunState
from tests.builders import job_key
from tests.integration.shards_and_groups.machines import NO_TIME, SECOND, Watcher, machine
from tests.world import World

LIFE = timedelta(seconds=130)
"""The life of a watcher's invocation; each group gets one invocation per minute."""
ON_TIME = timedelta(milliseconds=600)
"""A watcher that ends hands over at the standby's next poll, half a second away."""
_RETRY_SOON = {"maxAttempts": 100, "backoff": "FIXED", "initialDelayMs": 3000}


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
