"""The layer between actors and ports: it lets time pass, yields to other actors and injects faults.

A call may be refused (throttled), done without an answer, neither done nor answered, partly done
(batches), or answered with stale data (where the contract allows eventually consistent reads). The
actor may die before it and after it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from nextfire.domain.due import DueEntry, Slot
from nextfire.domain.errors import UnavailableError
from nextfire.testing.kernel import SECOND, Actor, Kernel
from tests.fakes import Killed
from tests.simulation.brief import brief

EVENTUAL: Mapping[str, str] = {
    "jobs.get_many": "items",
    "due.read": "items",
    "runs.peek": "items",
    "runs.list_dead": "items",
    "control.lease": "leases",
    "endpoints.get": "items",
}
"""The reads that may be stale unless they are consistent, and the attribute of the fake that holds
the data.
"""

LAZY = {"due.read", "runs.between"}
"""Answered page by page; each page is a step and may fail."""

_POLLS = {"inbox.receive", "due.read"}
"""Logged only if they return something."""
IDLE = {*_POLLS, "control.lease", "control.replace_lease", "control.cursors", "control.move_cursor"}
"""Calls that processes make all the time, with or without work: the majority of calls. They fail
less often, so that faults hit the others, too.
"""
_SPARED = 0.8
_LATENCIES = [0] * 12 + [1_000, 3_000, 8_000, 20_000, 60_000, 300_000]
_TIMEOUTS = [SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND]
_LAGS = [100_000, 500_000, SECOND, 2 * SECOND]
_REMEMBERED = 3 * SECOND
_NOTHING = object()


class Journal(dict[Any, Any]):
    """A fake's items that report each change and can be read as of a moment ago."""

    def __init__(self, kernel: Kernel, changed: Callable[[Any, Any, Any], None]) -> None:
        super().__init__()
        self._kernel = kernel
        self._changed = changed
        self._past: deque[tuple[int, Any, Any]] = deque()

    def __setitem__(self, key: Any, value: Any) -> None:
        was = self._remember(key)
        super().__setitem__(key, value)
        self._changed(key, was, value)

    def __delitem__(self, key: Any) -> None:
        was = self._remember(key)
        super().__delitem__(key)
        self._changed(key, was, None)

    def pop(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def as_of(self, ago: int) -> dict[Any, Any]:
        """The items *ago* µs ago, at most `_REMEMBERED`."""
        held = dict(self)
        for at, key, was in reversed(self._past):
            if at <= self._kernel.at - ago:
                break
            if was is _NOTHING:
                held.pop(key, None)
            else:
                held[key] = was
        return held

    def _remember(self, key: Any) -> Any:
        at = self._kernel.at
        was = self.get(key, _NOTHING)
        self._past.append((at, key, was))
        while self._past[0][0] < at - _REMEMBERED:
            self._past.popleft()
        return None if was is _NOTHING else was


class Log(list[Any]):
    """The accepted messages, in order. Reports each new message."""

    def __init__(self, accepted: Callable[[Any], None]) -> None:
        super().__init__()
        self._accepted = accepted

    def append(self, message: Any) -> None:
        super().append(message)
        self._accepted(message)


@dataclass(slots=True)
class Weather:
    """Fault probabilities of each call. `slow`: the call takes seconds. `rough`: additional
    probability that a call that is not idle is refused, unsent or unanswered; `clear` keeps it.
    """

    refused: float = 0.0
    unanswered: float = 0.0
    unsent: float = 0.0
    partial: float = 0.0
    stale: float = 0.0
    slow: float = 0.0
    rough: float = 0.0

    def clear(self) -> None:
        for each in fields(self):
            if each.name != "rough":
                setattr(self, each.name, 0.0)


class Wire:
    """Connects all actors with all ports. `hit` counts the injected faults by call and kind."""

    def __init__(self, kernel: Kernel, ports: Mapping[str, Any], weather: Weather) -> None:
        self.kernel = kernel
        self.ports = ports
        self.weather = weather
        self.hit: Counter[tuple[str, str]] = Counter()
        self.watched: Callable[[Actor, str, Any], None] = lambda *_: None

    def port(self, actor: Actor, name: str, port: Any = None) -> Any:
        """Wrap *port*, default: the port called *name*, for *actor*."""
        return _Port(self, actor, name, self.ports[name] if port is None else port)

    def call(
        self, actor: Actor, call: str, port: Any, method: str, /, *args: Any, **kwargs: Any
    ) -> Any:
        if call in LAZY:
            return self._pages(actor, call, port, method, args, kwargs)
        fault = self._before(actor, call)
        done = self._do(call, port, method, args, kwargs)
        self.watched(actor, call, (args, kwargs, done))
        return self._after(actor, call, fault, done, args)

    def _before(self, actor: Actor, call: str) -> str | None:
        """Let time pass before a call and inject faults. Returns the fault to inject after the
        call.

        Raises:
            UnavailableError: The call is not done.
            Killed: The actor died.
        """
        kernel, weather = self.kernel, self.weather
        idle = call in IDLE
        self._half_step(actor, call, "died before", idle=idle)
        kernel.step(self._latency(call))
        self._half_step(actor, call, "died before", idle=idle)
        odds = kernel.dice.random()
        if idle:
            if odds < _SPARED:
                return None
            odds = (odds - _SPARED) / (1 - _SPARED)
        rough = 0.0 if idle else weather.rough
        odds -= weather.refused + rough
        if odds < 0:
            self._inject(actor, call, "refused")
            raise UnavailableError(f"{call}: refused. Try again.")
        odds -= weather.unsent + rough
        if odds < 0:
            self._inject(actor, call, "unsent")
            kernel.pause(kernel.dice.choice(_TIMEOUTS))
            raise UnavailableError(f"{call}: no answer. Try again.")
        odds -= weather.unanswered + rough
        return "unanswered" if odds < 0 else None

    def _half_step(self, actor: Actor, call: str, when: str, *, idle: bool) -> None:
        if actor.half_step(idle=idle):
            self._count(call, when)
            actor.kill()
            raise Killed

    def _do(self, call: str, port: Any, method: str, args: Any, kwargs: Any) -> Any:
        dice, weather = self.kernel.dice, self.weather
        partial = weather.partial + 2 * weather.rough
        if partial and call in _PARTIAL and dice.random() < partial:
            self._count(call, "partial")
            return _PARTIAL[call](self, port, *args, **kwargs)
        stale = weather.stale and call in EVENTUAL and dice.random() < weather.stale
        if stale and not kwargs.get("consistent"):
            port = self._stale_copy(call, port)
        return getattr(port, method)(*args, **kwargs)

    def _after(self, actor: Actor, call: str, fault: str | None, done: Any, args: Any) -> Any:
        kernel = self.kernel
        if fault is not None:
            self._inject(actor, call, fault)
            kernel.pause(kernel.dice.choice(_TIMEOUTS))
            raise UnavailableError(f"{call}: no answer. Try again.")
        if kernel.events is not None and (done or call not in _POLLS):
            kernel.log(actor.name, f"{call} {brief(args)} -> {brief(done)}")
        kernel.step(self._latency(call))
        self._half_step(actor, call, "died after", idle=call in IDLE)
        return done

    def _pages(
        self, actor: Actor, call: str, port: Any, method: str, args: Any, kwargs: Any
    ) -> Iterator[Any]:
        dice, weather = self.kernel.dice, self.weather
        page = getattr(port, "page", None) or kwargs.get("page", 100)
        stale = weather.stale and call in EVENTUAL and not kwargs.get("consistent")
        if stale and dice.random() < weather.stale:
            port = self._stale_copy(call, port)
        found, ended = getattr(port, method)(*args, **kwargs), False
        while not ended:
            fault = self._before(actor, call)
            items = []
            for item in found:
                items.append(item)
                if len(items) == page:
                    break
            ended = len(items) < page
            self.watched(actor, call, (args, kwargs, items))
            yield from self._after(actor, call, fault, items, args)

    def _latency(self, call: str) -> int:
        dice = self.kernel.dice
        if self.weather.slow and dice.random() < self.weather.slow:
            self._count(call, "slow")
            return dice.randrange(SECOND, 8 * SECOND)
        return dice.choice(_LATENCIES)

    def _stale_copy(self, call: str, port: Any) -> Any:
        """A copy of *port* with its data of a moment ago."""
        self._count(call, "stale")
        name = EVENTUAL[call]
        past = copy(port)
        setattr(past, name, getattr(port, name).as_of(self.kernel.dice.choice(_LAGS)))
        return past

    def _inject(self, actor: Actor, call: str, what: str) -> None:
        self._count(call, what)
        self.kernel.log(actor.name, f"{call}: {what.upper()}")

    def _count(self, call: str, what: str) -> None:
        self.hit[call, what] += 1

    def some(self, things: list[Any]) -> list[Any]:
        """A random part of *things*."""
        return [each for each in things if self.kernel.dice.random() < 0.5]


class _Port:
    def __init__(self, wire: Wire, actor: Actor, name: str, port: Any) -> None:
        self._wire = wire
        self._actor = actor
        self._name = name
        self._port = port

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        if not callable(getattr(self._port, method)):
            return getattr(self._port, method)
        call = f"{self._name}.{method}"
        bound = partial(self._wire.call, self._actor, call, self._port, method)
        setattr(self, method, bound)
        return bound


# Batches that are partly done, or reported as partly done


def _put_some(wire: Wire, due: Any, entries: Any, now: Any) -> set[DueEntry]:
    going = wire.some(sorted(entries, key=lambda entry: (entry.sort_key, entry.job.tenant)))
    done = due.put(going, now) if going else set()
    return set(wire.some(sorted(done, key=lambda entry: (entry.sort_key, entry.job.tenant))))


def _delete_some(wire: Wire, due: Any, slots: Any) -> set[Slot]:
    deleted = due.delete(wire.some(sorted(slots, key=_place)))
    return set(wire.some(sorted(deleted, key=_place)))


def _place(slot: Slot) -> tuple[str, str]:
    return slot.bucket, slot.sort_key


def _send_some(wire: Wire, queue: Any, messages: Any) -> set[int]:
    going = wire.some([*range(len(messages))])
    done = queue.send([messages[index] for index in going])
    return set(wire.some([going[index] for index in sorted(done)]))


def _get_some(wire: Wire, jobs: Any, keys: Any, *, consistent: bool = False) -> Any:
    some = wire.some(sorted(keys, key=lambda key: (key.tenant, key.job_id)))
    return jobs.get_many(some, consistent=consistent)


_PARTIAL: Mapping[str, Callable[..., Any]] = {
    "due.put": _put_some,
    "due.delete": _delete_some,
    "queue.send": _send_some,
    "jobs.get_many": _get_some,
}
