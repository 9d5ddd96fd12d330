"""Simulated time, and actors that take turns at every step of it.

An actor is a process: a watcher's Lambda, a worker, an API request. Its threads are greenlets of
one real thread. Whoever pauses gives the turn to whatever is to happen next; among what happens at
one instant the seeded dice choose. So a history depends on its seed alone, and replays exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from tests.fakes import Clock, Killed

T = TypeVar("T")

SECOND = 1_000_000
"""Instants and durations of the kernel are whole microseconds since its start."""
MOST_STEPS = 400_000
"""Of a history; a hundred times what most of them have."""
_UNHURRIED = 0.95
_NO_TIME = timedelta()


class Task(greenlet):
    """A thread of an actor."""

    def __init__(self, actor: Actor, do: Callable[[], Any], future: SimulatedFuture[Any]) -> None:
        super().__init__(self._live, actor.kernel.hub)
        self.actor = actor
        self.do = do
        self.future = future
        self.turn = 0
        """Counts its resumptions: what was planned for an earlier one is void."""
        self.interruption: BaseException | None = None
        """Raised in it when it is resumed, as by a signal handler."""
        self.decides_at: datetime | None = None
        """Of a batch of a watcher: the instant that its decisions are made for."""

    def _live(self) -> None:
        """Whatever it ends with is the future's, save the death of the process."""
        if not self.future.set_running_or_notify_cancel():
            self.actor.tasks.pop(self, None)
            return
        try:
            outcome = self.do()
        except Killed:
            self.actor.tasks.pop(self, None)
        except Exception as error:  # noqa: BLE001 — as an executor does
            self.actor.tasks.pop(self, None)
            self.future.set_exception(error)
        else:
            self.actor.tasks.pop(self, None)
            self.future.set_result(outcome)


class Kernel:
    """The clock, and what is planned. `interleaves`: False lets nobody in between two port calls of
    an actor, as in a test that lets one do its work and then the next. What is found then needs no
    interleaving.
    """

    def __init__(self, seed: int | str, start: datetime, *, interleaves: bool = True) -> None:
        self.dice = Random(seed)  # noqa: S311 — no secret
        self.clock = Clock(start)
        self.start = start
        self.at = 0
        self.hub: greenlet = getcurrent()
        self.steps = 0
        self.deaths = 0
        self.events: list[str] | None = None
        """What happened, if anybody is to read it."""
        self._interleaves = interleaves
        self._until: Callable[[], bool] = bool
        self._planned: list[tuple[int, float, int, Task, int]] = []
        self._numbers = 0

    def tell(self, who: str, what: str) -> None:
        if self.events is not None:
            self.events.append(f"{self.clock.now():%H:%M:%S.%f}  {who:<14} {what}")

    def run(self, until: Callable[[], bool]) -> None:
        """Go on until *until*, asked after each step, or until nothing is planned.

        Raises:
            AssertionError: It comes to no end.
        """
        self.hub = getcurrent()
        self._until = until
        while (task := self._next()) is not None:
            task.switch()
        assert self.steps < MOST_STEPS, f"no end after {self.steps} steps"

    def _next(self) -> Task | None:
        """Whose turn it is now; None if it is the end."""
        while self._planned and self.steps < MOST_STEPS and not self._until():
            at, _, _, task, turn = heapq.heappop(self._planned)
            if turn != task.turn or task.dead:
                continue
            if at > self.at:
                self.at = at
                self.clock.move_to(self.start + timedelta(microseconds=at))
            self.steps += 1
            task.turn += 1
            return task
        return None

    def plan(self, task: Task, after: int) -> None:
        """Resume *task* in *after* µs, unless something else does before."""
        self._numbers += 1
        entry = (self.at + after, self.dice.random(), self._numbers, task, task.turn)
        heapq.heappush(self._planned, entry)

    def pause(self, after: int) -> None:
        """Give the turn to others for *after* µs. Called by a task.

        Raises:
            Killed: The actor has died meanwhile.
        """
        task = current()
        self.plan(task, after)
        self.give_way(task)

    def give_way(self, task: Task) -> None:
        """Let go on whose turn it is. Returns when it is the turn of *task*, which calls this.

        Raises:
            Killed: The actor has died meanwhile.
        """
        following = self._next()
        if following is not task:  # straight to it: by way of the hub takes twice as long
            (self.hub if following is None else following).switch()
        task.actor.look_alive()
        if task.interruption is not None:
            interruption, task.interruption = task.interruption, None
            raise interruption

    def interrupt(self, task: Task, interruption: BaseException) -> None:
        """Resume *task*, which waits, with *interruption*."""
        task.interruption = interruption
        self.plan(task, 0)

    def wait(self, futures: Collection[Future[Any]], at_most: timedelta) -> None:
        """Give the turn to others until one of *futures* is done, or for *at_most*."""
        task = current()
        waiting = [each for each in futures if isinstance(each, SimulatedFuture)]
        if any(each.done() for each in waiting):
            return
        for each in waiting:
            each.waiting.append(task)
        self.plan(task, int(at_most / timedelta(microseconds=1)))
        try:
            self.give_way(task)
        finally:
            for each in waiting:
                each.waiting = [other for other in each.waiting if other is not task]

    def step(self, after: int) -> None:
        """Give the turn to others, amid what an actor does."""
        if self._interleaves:
            self.pause(after)


def current() -> Task:
    """The task that runs."""
    task = getcurrent()
    assert isinstance(task, Task), "only a task of an actor may wait"
    return task


class SimulatedFuture(Future[T]):
    """A future whose `result` lets others go on until it is there."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self.waiting: list[Task] = []
        self._there = False

    def done(self) -> bool:
        return self._there  # asked after every step, so without the lock of threads

    def cancel(self) -> bool:
        self._there = self._there or super().cancel()
        return self.cancelled()

    def result(self, timeout: float | None = None) -> T:
        until = None if timeout is None else self._kernel.at + int(timeout * SECOND)
        while not self.done() and (until is None or self._kernel.at < until):
            task = current()
            self.waiting.append(task)
            if until is not None:
                self._kernel.plan(task, until - self._kernel.at)
            self._kernel.give_way(task)
        return super().result(0)

    def set_result(self, result: T) -> None:
        super().set_result(result)
        self._there = True
        self._wake()

    def set_exception(self, exception: BaseException | None) -> None:
        super().set_exception(exception)
        self._there = True
        self._wake()

    def _wake(self) -> None:
        for task in self.waiting:
            self._kernel.plan(task, 0)


class Actor(Executor):
    """A process, and the executor of its threads. `skew`: how far its clock is off, in µs.

    What is killed never reaches a port again: every pause of it raises `Killed`, those in `except`
    and `finally` included.
    """

    def __init__(self, kernel: Kernel, name: str, *, skew: int = 0) -> None:
        self.kernel = kernel
        self.name = name
        self.skew = timedelta(microseconds=skew)
        self.alive = True
        self.stopping = False
        """Told to end, as by SIGTERM."""
        self.on_stop: Callable[[], object] = lambda: None
        """Its signal handler."""
        self.on_kill: Callable[[], object] = lambda: None
        """What its parent does when it is killed."""
        self.acts_for: Actor | None = None
        """The dead worker whose runs it gives back, if it is a supervisor."""
        self.tenant: str | None = None
        """Whose request it carries out, if it is one."""
        self.tasks: dict[Task, None] = {}
        """Those that have not ended, in the order of their beginning, which a set would lose."""
        self.dies_in: int | None = None
        """Half steps (before a port call, after it) until it dies; None: not by itself."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> SimulatedFuture[T]:
        future: SimulatedFuture[T] = SimulatedFuture(self.kernel)
        task = Task(self, lambda: fn(*args, **kwargs), future)
        self.tasks[task] = None
        self.kernel.plan(task, 0)
        return future

    def look_alive(self) -> None:
        if not self.alive:
            raise Killed

    def half_step(self, *, idle: bool = False) -> bool:
        """Come to a port call, or from it. Returns whether the actor is to die here; an *idle* call
        brings its death nearer but now and then.
        """
        self.look_alive()
        if self.dies_in is None or (idle and self.kernel.dice.random() < _UNHURRIED):
            return False
        self.dies_in -= 1
        return self.dies_in < 0

    def stop(self) -> None:
        """SIGTERM."""
        self.stopping = True
        self.on_stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.kernel.tell(self.name, "DIES")
        self.kernel.deaths += 1
        self.alive = False
        for task in self.tasks:
            self.kernel.plan(task, 0)
        self.on_kill()

    # The clock of its machine

    def now(self) -> datetime:
        return self.kernel.clock.now() + self.skew

    def sleep(self, duration: timedelta) -> None:
        self.kernel.pause(max(int(duration / timedelta(microseconds=1)), 0))

    def advance(self, by: timedelta = _NO_TIME, /, **units: float) -> None:
        """Let time pass, as one who owned the clock would."""
        self.sleep(by + timedelta(**units))
