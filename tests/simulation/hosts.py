"""What hosts provide to the loops of processes: clocks, inboxes, threads, a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.control import Lease
from nextfire.testing.kernel import SECOND, Actor, Kernel, SimulatedFuture, current
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.handled import Handled
from nextfire.usecases.watcher_life import WatcherLife
from tests.fakes import MemoryDelivery, MemoryFifo, show

if TYPE_CHECKING:
    from tests.simulation.system import System

_POLLS = [SECOND // 5, SECOND, 2 * SECOND, 4 * SECOND]
"""How long after a message arrives a long poll may notice it."""
_MICROSECOND = timedelta(microseconds=1)
_WAKE_UPS_LOST = 0.1
"""Probability that Lambda accepts an invocation and never makes it."""


@dataclass(frozen=True, slots=True)
class DelayedClock:
    """The clock of a loop that is delayed each time it sleeps."""

    actor: Actor
    drag: Callable[[], timedelta]

    def now(self) -> datetime:
        return self.actor.now()

    def sleep(self, duration: timedelta) -> None:
        self.actor.sleep(duration + self.drag())


@dataclass(frozen=True, slots=True)
class ServiceClock:
    """`ServiceClock` that knows the true time."""

    actor: Actor

    def deviation(self) -> timedelta:
        return self.actor.skew


class WatchedControl:
    """A watcher's `ControlStore`. `held`: whether the last turn held the lease; `asked_to_release`:
    whether the watcher has requested its release since.
    """

    def __init__(self, control: Any) -> None:
        self._control = control
        self.held = False
        self.asked_to_release = False

    def __getattr__(self, method: str) -> Any:
        return getattr(self._control, method)

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        self.asked_to_release = self.asked_to_release or to.released
        return bool(self._control.replace_lease(group, was, to))


@dataclass(frozen=True, slots=True)
class SimulatedWaker:
    """`Waker` by asynchronous invocations, of which some are lost."""

    system: System

    def wake(self, group: int) -> None:
        dice, aws = self.system.kernel.dice, self.system.aws
        if dice.random() < _WAKE_UPS_LOST:
            self.system.kernel.log("aws", f"the wake-up of group {group} is lost")
            return
        after = timedelta(seconds=dice.choice([0.05, 0.3, 2]))

        def invoke() -> None:
            aws.sleep(after)
            self.system.invoke_watcher(group, woken=True)

        aws.submit(invoke)


@dataclass(frozen=True, slots=True)
class Watching:
    """A watcher's process."""

    group: int
    actor: Actor
    life: WatcherLife
    control: WatchedControl


class NoTask:
    """`TaskProtection` and `TaskDeployment` outside of ECS."""

    def keep(self, *, working: bool) -> None:
        pass

    def is_replaced(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class RecordedNotices:
    """Notices of a process. Errors other than an outage are defects."""

    system: System
    actor: Actor

    def wake_up_lost(self, why: Exception) -> None:
        self.warn("a watcher was not woken", why)

    def warn(self, what: str, why: Exception | str) -> None:
        self.system.kernel.log(self.actor.name, f"{what}: {why}")
        if isinstance(why, Exception) and not isinstance(why, UnavailableError):
            self.system.escaped.append(f"{self.actor.name}: {type(why).__name__}: {why}")

    def fail(self, what: str, why: Exception | str) -> None:
        self.system.kernel.log(self.actor.name, f"{what}: ESCAPED {why!r}")
        self.system.escaped.append(f"{self.actor.name}: {type(why).__name__}: {why}")

    def handled(self, handled: Handled) -> None:
        what = f"{handled.disposition.value}: {handled.reason}"
        self.system.kernel.log(self.actor.name, what)

    def took_lease(self, group: int, lease: Lease) -> None:
        self.system.kernel.log(self.actor.name, f"holds the lease of {group}, epoch {lease.epoch}")

    def tick(self, report: TickReport) -> None:
        pass

    def flush(self) -> None:
        pass


class SimulatedDelivery:
    """`FifoDelivery` of a process. `handed_back`: whether the process made it visible."""

    def __init__(self, system: System, actor: Actor, delivery: MemoryDelivery) -> None:
        self.body = delivery.body
        self.token = delivery.token
        self.message_id = delivery.message_id
        self.group = delivery.group
        self.receives = delivery.receives
        self.delivery = delivery
        self.handed_back = False
        self._port = system.wire.port(actor, "delivery", delivery)

    def hide(self, duration: timedelta) -> None:
        self.handed_back = self.handed_back or not duration
        self._port.hide(duration)


class SimulatedInbox:
    """`Inbox` of a process."""

    def __init__(self, system: System, actor: Actor, pool: str) -> None:
        self._system = system
        self._actor = actor
        queue = _LongPolled(system.kernel, system.stores.queue.queues[pool])
        self._port = system.wire.port(actor, "inbox", queue)

    def receive(
        self, most: int, *, wait: timedelta, hidden_for: timedelta
    ) -> list[SimulatedDelivery]:
        received = self._port.receive(most, wait=wait, hidden_for=hidden_for)
        return [SimulatedDelivery(self._system, self._actor, each) for each in received]

    def acknowledge(self, deliveries: Sequence[SimulatedDelivery]) -> list[str]:
        self._port.acknowledge([each.delivery for each in deliveries])
        return []

    def show(self, deliveries: Sequence[SimulatedDelivery]) -> list[str]:
        self._port.show([each.delivery for each in deliveries])
        return []


@dataclass(frozen=True, slots=True)
class _LongPolled:
    """The remote end of an inbox."""

    kernel: Kernel
    queue: MemoryFifo

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> list[MemoryDelivery]:
        until = self.kernel.at + wait // _MICROSECOND
        while True:
            received = self.queue.receive(most, hidden_for=hidden_for)
            if received or self.kernel.at >= until:
                return received
            self.kernel.pause(min(self.kernel.dice.choice(_POLLS), until - self.kernel.at))

    def acknowledge(self, deliveries: Sequence[MemoryDelivery]) -> None:
        for delivery in deliveries:
            delivery.acknowledge()

    def show(self, deliveries: Sequence[MemoryDelivery]) -> None:
        show(deliveries)


@dataclass(frozen=True, slots=True)
class Slots(Executor):
    """The slots of a worker. Checks that each batch handed back what it had to."""

    system: System
    actor: Actor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> SimulatedFuture[Any]:
        def checked() -> Any:
            stay = fn(*args, **kwargs)
            self.system.check_handed_back(self.actor, stay)
            return stay

        return self.actor.submit(checked)


@dataclass(frozen=True, slots=True)
class Lanes(Executor):
    """The threads of a watcher that carry out batches. Each notes the instant for which its batch
    is decided, however long the sending takes.
    """

    actor: Actor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> SimulatedFuture[Any]:
        _, now = args

        def noted() -> Any:
            current().decides_at = now
            return fn(*args, **kwargs)

        return self.actor.submit(noted)
