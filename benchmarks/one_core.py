"""A deterministic model of a watcher: one core, calls that overlap, a simulated clock.

`Watcher` runs the real dispatcher on the in-memory stores. Its tasks are greenlets of the
simulation's kernel: a task that waits for a call gives way to the others, so calls overlap as they
do on threads. Each call first uses the core, which serves one task at a time, then takes its
latency. The same arguments always produce the same history.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from benchmarks.counting_queue import CountingQueue
from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import floor_minute, to_ms
from nextfire.domain.job import Job
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.queues import RunQueue
from nextfire.testing.kernel import Actor, Kernel, SimulatedFuture
from nextfire.usecases.dispatch.tick import BUDGET, Dispatch
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from tests.fakes import MemoryDueStore, MemoryJobStore, MemoryRunStore, Stores, memory_stores
from tests.world import World

P = TypeVar("P")
T = TypeVar("T")

THREADS = 16
"""Threads of the dispatcher's executor, as in `functions/watcher`."""
LANES = 16
"""Batches in flight, as in `functions/watcher`."""
BATCH = 100
"""Entries per batch call to which `BATCH_TAKES` applies; twice as many take twice as long."""
SINGLE_TAKES = 10
"""Milliseconds per call for one item, and per page of `runs.between`."""
BATCH_TAKES = {
    "jobs.get_many": 40,
    "queue.send": 60,
    "due.put": 50,
    "due.delete": 50,
    "due.mark_held": 50,
}
"""Milliseconds per batch call that `BATCH_TAKES` does not list."""
OTHER_BATCH_TAKES = 50
PAGE_TAKES = 20
"""Milliseconds per page of `due.read`."""
PAGE = 1_000

ENTRY_CPU = {
    "jobs.get_many": 40,
    "queue.send": 60,
    "due.put": 50,
    "due.delete": 50,
    "due.mark_held": 50,
}
"""Microseconds of the core per entry of a batch call; 200 in total for an ordinary run."""
OTHER_ENTRY_CPU = 50
SINGLE_CPU = 300
"""Microseconds of the core per call for one item, and per page."""
BACKGROUND = ("control.", "due.read", "queue.backlog")
"""Calls at a fixed rate, independent of the number of runs: their CPU cost is not scaled."""
_AFTER_TROUBLE = timedelta(milliseconds=250)
LIFE = timedelta(minutes=1)
_US = timedelta(microseconds=1)


class Core(Actor):
    """A process with one core and a bounded number of threads. *scale*: factor by which it is
    slower than the watcher of the model, so that fewer jobs saturate it.
    """

    def __init__(self, kernel: Kernel, *, scale: float) -> None:
        super().__init__(kernel, "watcher")
        self._scale = scale
        self._free_at = 0
        self._queued: deque[Callable[[], object]] = deque()
        self._running = 0
        self.used = 0
        """Microseconds of core time used so far."""
        self.calls: Counter[str] = Counter()

    def submit(
        self, fn: Callable[..., T], /, *args: object, **kwargs: object
    ) -> SimulatedFuture[T]:
        """Run *fn* on a thread as soon as one is free."""
        future: SimulatedFuture[T] = SimulatedFuture(self.kernel)

        def carry_out() -> None:
            try:
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(fn(*args, **kwargs))
                    except Exception as error:  # noqa: BLE001 — as an executor does
                        future.set_exception(error)
            finally:
                self._running -= 1
                self._start()

        self._queued.append(carry_out)
        self._start()
        return future

    def _start(self) -> None:
        while self._queued and self._running < THREADS:
            self._running += 1
            super().submit(self._queued.popleft())

    def spend(self, call: str, cpu: int, latency: int) -> None:
        """Use the core for *cpu* µs as soon as it is free, then wait *latency* µs."""
        self.calls[call] += 1
        scaled = cpu if call.startswith(BACKGROUND) else int(cpu * self._scale)
        self.used += scaled
        self._free_at = max(self._free_at, self.kernel.at) + scaled
        self.kernel.pause(self._free_at - self.kernel.at + latency)


class _Lanes(Executor):
    """Separate threads of the process *core* for the batches in flight."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        return Actor.submit(self._core, fn, *args, **kwargs)


class CostedPorts:
    """Replaces `World.faults`: every call through it takes time."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def through(self, port: P, name: str) -> P:
        return cast("P", _Port(self.core, port, name))


class _Port:
    def __init__(self, core: Core, port: object, name: str) -> None:
        self._core, self._port, self._name = core, port, name

    def __getattr__(self, method: str) -> object:
        do, call, core = getattr(self._port, method), f"{self._name}.{method}", self._core
        if not callable(do):
            return do

        def costed(*args: object, **kwargs: object) -> object:
            count = _batch_size(args)
            if count is None:
                core.spend(call, SINGLE_CPU, SINGLE_TAKES * 1000)
            else:
                calls = max(-(-count // BATCH), 1)
                takes = BATCH_TAKES.get(call, OTHER_BATCH_TAKES) * calls
                core.spend(call, ENTRY_CPU.get(call, OTHER_ENTRY_CPU) * count, takes * 1000)
            return do(*args, **kwargs)

        def paged(*args: object, **kwargs: Any) -> Iterator[object]:  # noqa: ANN401
            found, takes = None, PAGE_TAKES if call == "due.read" else SINGLE_TAKES
            size = PAGE if call == "due.read" else kwargs.get("page", 100)
            while True:
                core.spend(call, SINGLE_CPU, takes * 1000)
                found = do(*args, **kwargs) if found is None else found
                page = [*islice(found, size)]
                yield from page
                if len(page) < size:
                    return

        chosen = paged if call in {"due.read", "runs.between"} else costed
        setattr(self, method, chosen)
        return chosen


def _batch_size(args: Sequence[Any]) -> int | None:
    """The number of items of a batch call; None for a call for one item."""
    is_key = bool(args) and isinstance(args[0], JobKey)
    is_batch = bool(args) and isinstance(args[0], list | set | frozenset | dict | tuple)
    return len(args[0]) if is_batch and not is_key else None


class _Items(dict[Slot, Any]):
    """The due table, with its keys in order per bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_of: dict[str, list[str]] = {}
        self.stored: dict[str, dict[str, StoredEntry]] = {}

    def __setitem__(self, slot: Slot, item: DueEntry) -> None:
        if slot not in self:
            insort(self.keys_of.setdefault(slot.bucket, []), slot.sort_key)
        self.stored.setdefault(slot.bucket, {})[slot.sort_key] = StoredEntry(slot, item)
        super().__setitem__(slot, item)

    def __delitem__(self, slot: Slot) -> None:
        super().__delitem__(slot)
        del self.stored[slot.bucket][slot.sort_key]
        keys = self.keys_of[slot.bucket]
        del keys[bisect_left(keys, slot.sort_key)]

    def pop(self, slot: Slot, default: object = None) -> object:
        item = self.get(slot, default)
        if slot in self:
            del self[slot]
        return item


class SortedDueStore(MemoryDueStore):
    """`MemoryDueStore` for many entries: reading a page does not sort the whole table."""

    def __init__(self, *, shards: int = 1) -> None:
        super().__init__(shards=shards)
        self._items = _Items()
        self.items = cast("dict[Slot, DueEntry | Mapping[str, str]]", self._items)

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,  # noqa: ARG002
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,  # noqa: ARG002
    ) -> Iterator[StoredEntry | BrokenEntry]:
        bucket = bucket_name(minute, shard)
        first = "" if since is None else f"{to_ms(since):013d}"
        first = first if after is None else f"{after.sort_key}\0"
        limit = None if before is None else f"{to_ms(before):013d}"
        while True:
            keys = self._items.keys_of.get(bucket, [])
            start = bisect_left(keys, first)
            end = len(keys) if limit is None else bisect_left(keys, limit)
            found = keys[start : min(start + PAGE, end)]
            if not found:
                return
            stored = self._items.stored[bucket]
            yield from [stored[key] for key in found]
            first = f"{found[-1]}\0"


class _Jobs(MemoryJobStore):
    """`MemoryJobStore` of jobs without payload; their history is not read."""

    def get_many(
        self,
        keys: Collection[JobKey],
        *,
        consistent: bool = False,  # noqa: ARG002
    ) -> Mapping[JobKey, Job | Exception]:
        return {key: self.items[key] for key in keys if key in self.items}


class Watcher:
    """The real dispatcher of one group in the model, starting at *now*.

    *life*: after that, the next watcher takes over. *budget*: maximum of entries in its memory.
    """

    def __init__(
        self,
        now: datetime,
        *,
        scale: float,
        shards: int = 4,
        life: timedelta = LIFE,
        budget: int = BUDGET,
    ) -> None:
        self._life, self._budget = life, budget
        self.kernel = Kernel("one core", now)
        self.core = Core(self.kernel, scale=scale)
        due = SortedDueStore(shards=shards)
        jobs = _Jobs(due)
        stores: Stores = memory_stores(self.kernel.clock, ("default",), shards=shards)
        stores.due, stores.jobs, stores.runs = due, jobs, MemoryRunStore(due, jobs)
        self.queue = CountingQueue(self.kernel.clock.now)
        self.world = world = World(clock=self.kernel.clock, stores=stores, shards=shards)
        self.due, self.jobs, self.runs = due, jobs, stores.runs
        queue: RunQueue = self.queue
        world.queue = cast("Any", queue)
        world.faults = cast("Any", CostedPorts(self.core))
        self._lives = 0

    def watched_since(self, at: datetime) -> None:
        """Start from the cursors that a watcher left at *at*."""
        for shard in range(self.world.shards):
            self.world.control.moved[shard] = (floor_minute(at), 1)

    def watch(self, until: datetime) -> None:
        """Dispatch until *until*. The next call continues the work in flight."""
        if not self._lives:
            self._lives = 1
            Actor.submit(self.core, self._live)
        kernel = self.kernel
        while (now := kernel.clock.now()) < until:
            kernel.steps = 0  # its limit is for shorter simulations
            end_at = min(now + LIFE, until)
            kernel.run(partial(self._is_past, end_at))

    def _is_past(self, at: datetime) -> bool:
        return self.kernel.clock.now() >= at

    def _live(self) -> None:
        control, core = self.world.faults.through(self.world.control, "control"), self.core
        while True:
            lease = HoldLease(control, group=0, holder=f"watcher-{self._lives}")
            watch = Watch(lease, self._dispatcher)
            self._lives += 1
            end_at = core.now() + self._life
            while (now := core.now()) < end_at:
                try:
                    _, again_at = watch.step(now)
                except UnavailableError:
                    again_at = now + _AFTER_TROUBLE
                wait = max(min(again_at, end_at) - core.now(), timedelta())
                self.kernel.pause(max(wait // _US, 1))
            watch.finish()
            watch.end()

    def _dispatcher(self, lease: Lease) -> Dispatch:
        return self.world.dispatcher(
            lease.epoch,
            executor=self.core,
            lanes=_Lanes(self.core),
            at_once=LANES,
            budget=self._budget,
        )
