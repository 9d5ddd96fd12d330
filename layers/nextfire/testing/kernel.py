"""Simulated time, and actors that take turns at every step of it.

An actor is a process: a watcher's Lambda, a worker, an API request. Its threads are greenlets of
one real thread. A task that pauses yields to the next planned event; the seeded dice order the
events of one instant. So a history depends only on its seed and replays exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from nextfire.testing.memory.clock import Clock
from nextfire.testing.memory.faults import Killed

T = TypeVar("T")

SECOND = 1_000_000
"""Instants and durations of the kernel are whole microseconds since its start."""
MAX_STEPS = 400_000
"""Default of `max_steps`, the maximum number of steps of a history: a hundred times the usual."""
_IDLE_SPARED = 0.95
_NO_TIME = timedelta()
_MICROSECOND = timedelta(microseconds=1)


class Task(greenlet):
    """A thread of an actor."""

    def __init__(self, actor: Actor, do: Callable[[], Any], future: SimulatedFuture[Any]) -> None:
        super().__init__(self._live, actor.kernel.hub)
        self.actor = actor
        self.do = do
        self.future = future
        self.turn = 0
        """Counts its resumptions: a plan made for an earlier turn is void."""
        self.interruption: BaseException | None = None
        """Raised in the task when it is resumed, as by a signal handler."""
        self.decides_at: datetime | None = None
        """For a batch of a watcher: the instant for which its decisions are made."""

    def _live(self) -> None:
        """Put the result or the error into the future, except if the process dies."""
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
    """The clock and the planned events. `interleaves`: False runs all port calls of an actor in
    sequence, without other actors in between, as in a sequential test: a violation found this way
    needs no interleaving.
    """

    def __init__(
        self,
        seed: int | str,
        start: datetime,
        *,
        interleaves: bool = True,
        max_steps: float = MAX_STEPS,
    ) -> None:
        self.dice = Random(seed)  # noqa: S311 — no secret
        self.clock = Clock(start)
        self.start = start
        self.at = 0
        self.hub: greenlet = getcurrent()
        self.steps = 0
        self.deaths = 0
        self.events: list[str] | None = None
        """The events of the history, if they are recorded."""
        self._interleaves = interleaves
        self._max_steps = max_steps
        self._until: Callable[[], bool] = bool
        self._planned: list[tuple[int, float, int, Task, int]] = []
        self._numbers = 0

    def log(self, who: str, what: str) -> None:
        if self.events is not None:
            self.events.append(f"{self.clock.now():%H:%M:%S.%f}  {who:<14} {what}")

    def run(self, until: Callable[[], bool]) -> None:
        """Run until *until*, checked after each step, is true or nothing is planned.

        Raises:
            AssertionError: The history exceeds `max_steps`.
        """
        self.hub = getcurrent()
        self._until = until
        while (task := self._next()) is not None:
            task.switch()
        assert self.steps < self._max_steps, f"no end after {self.steps} steps"

    def run_to(self, instant: datetime) -> None:
        """Run all that is planned until *instant*, inclusive; then it is *instant*."""
        at = (instant - self.start) // _MICROSECOND
        self.run(lambda: not self._planned or self._planned[0][0] > at)
        self.at = max(self.at, at)
        self.clock.move_to(max(instant, self.clock.now()))

    def _next(self) -> Task | None:
        """The task of the next event; None at the end."""
        while self._planned and self.steps < self._max_steps and not self._until():
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
        """Resume *task* in *after* µs, unless something else resumes it earlier."""
        self._numbers += 1
        entry = (self.at + after, self.dice.random(), self._numbers, task, task.turn)
        heapq.heappush(self._planned, entry)

    def pause(self, after: int) -> None:
        """Yield to others for *after* µs. Called by a task.

        Raises:
            Killed: The actor has died meanwhile.
        """
        task = current()
        self.plan(task, after)
        self.yield_turn(task)

    def yield_turn(self, task: Task) -> None:
        """Yield to the next task. Returns when it is the turn of *task*, the caller, again.

        Raises:
            Killed: The actor has died meanwhile.
        """
        following = self._next()
        if following is not task:  # directly: by way of the hub takes twice as long
            (self.hub if following is None else following).switch()
        task.actor.raise_if_killed()
        if task.interruption is not None:
            interruption, task.interruption = task.interruption, None
            raise interruption

    def interrupt(self, task: Task, interruption: BaseException) -> None:
        """Resume the waiting *task* with *interruption*."""
        task.interruption = interruption
        self.plan(task, 0)

    def wait(self, futures: Collection[Future[Any]], at_most: timedelta) -> None:
        """Yield until one of *futures* is done, or for *at_most*."""
        task = current()
        waiting = [each for each in futures if isinstance(each, SimulatedFuture)]
        if any(each.done() for each in waiting):
            return
        for each in waiting:
            each.waiting.append(task)
        self.plan(task, int(at_most / timedelta(microseconds=1)))
        try:
            self.yield_turn(task)
        finally:
            for each in waiting:
                each.waiting = [other for other in each.waiting if other is not task]

    def step(self, after: int) -> None:
        """Yield to others between two port calls."""
        if self._interleaves:
            self.pause(after)


def current() -> Task:
    """The running task."""
    task = getcurrent()
    assert isinstance(task, Task), "only a task of an actor may wait"
    return task


class SimulatedFuture(Future[T]):
    """A future whose `result` yields to others until it is available."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self.waiting: list[Task] = []
        self._there = False

    def done(self) -> bool:
        return self._there  # called after every step, so without the lock

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
            self._kernel.yield_turn(task)
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
    """A process and the executor of its threads. `skew`: the offset of its clock in µs.

    A killed process never reaches a port again: each of its pauses raises `Killed`, including those
    in `except` and `finally`.
    """

    def __init__(self, kernel: Kernel, name: str, *, skew: int = 0) -> None:
        self.kernel = kernel
        self.name = name
        self.skew = timedelta(microseconds=skew)
        self.alive = True
        self.stopping = False
        """Whether it was asked to end, as by SIGTERM."""
        self.on_stop: Callable[[], object] = lambda: None
        """Its signal handler."""
        self.on_kill: Callable[[], object] = lambda: None
        """What its parent does when it is killed."""
        self.acts_for: Actor | None = None
        """The dead worker whose runs it hands back, if it is a supervisor."""
        self.tenant: str | None = None
        """The tenant of its request, if it is an API request."""
        self.tasks: dict[Task, None] = {}
        """The tasks that have not ended, in the order of their start, which a set would lose."""
        self.dies_in: int | None = None
        """Half steps (before and after each port call) until it dies; None: it does not die by
        itself.
        """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> SimulatedFuture[T]:
        future: SimulatedFuture[T] = SimulatedFuture(self.kernel)
        task = Task(self, lambda: fn(*args, **kwargs), future)
        self.tasks[task] = None
        self.kernel.plan(task, 0)
        return future

    def raise_if_killed(self) -> None:
        if not self.alive:
            raise Killed

    def half_step(self, *, idle: bool = False) -> bool:
        """Count a half step: before or after a port call. Returns whether the actor dies here;
        *idle* calls count only occasionally.
        """
        self.raise_if_killed()
        if self.dies_in is None or (idle and self.kernel.dice.random() < _IDLE_SPARED):
            return False
        self.dies_in -= 1
        return self.dies_in < 0

    def stop(self) -> None:
        """SIGTERM."""
        self.stopping = True
        self.on_stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.kernel.log(self.name, "DIES")
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
        """Let time pass, like the owner of a clock."""
        self.sleep(by + timedelta(**units))
