"""Processes of a history: how they start and die, and what they began."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nextfire.domain.errors import UnavailableError
from nextfire.testing.kernel import SECOND, Actor, Kernel
from nextfire.usecases.dispatch.gates import Shares
from tests.fakes import Killed
from tests.simulation.hosts import SimulatedDelivery
from tests.simulation.wire import Wire

_REQUEST = 16
"""Number of half steps within which a request dies, if it does: about as many as most requests
have.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """The configuration of a history's stack. `drag`: the longest delay of a watcher's loop, in µs;
    `doomed`: the probability that a process dies by itself, within `dies_within` half steps;
    `memory`: the entries that a watcher may hold.
    """

    shards: int
    groups: int
    workers: int
    slots: int
    on_lambda: bool
    drag: int
    doomed: float
    dies_within: int
    shares: Shares
    memory: int


@dataclass(slots=True)
class Started:
    """A script that ran, or a request that was sent."""

    execution_id: str
    attempt: int
    worker: str
    payload: str
    at: datetime
    upstream: str | None = None


class Processes:
    """Starts processes. `escaped`: errors that escaped from a process, and duties that its loop
    missed.
    """

    def __init__(self, kernel: Kernel, wire: Wire, setting: Setting) -> None:
        self.kernel = kernel
        self.wire = wire
        self.setting = setting
        self.escaped: list[str] = []
        self.workers: list[Actor] = []
        self.watchers: list[Actor] = []
        self.requests: list[Actor] = []
        self.started: list[Started] = []
        self._names = count(1)

    def process(self, kind: str) -> Actor:
        """A new process with its own clock; it may be doomed to die by itself."""
        dice = self.kernel.dice
        actor = Actor(
            self.kernel, f"{kind}-{next(self._names)}", skew=dice.randint(-SECOND, SECOND)
        )
        if dice.random() < self.setting.doomed:
            within = _REQUEST if kind == "api" else self.setting.dies_within
            actor.dies_in = dice.randrange(within)
        return actor

    def start(
        self, actor: Actor, do: Callable[[], Any], *, survives_outages: bool = False
    ) -> Future[Any]:
        """Run *do* in *actor*. Unhandled errors are recorded in `escaped`."""

        def guarded() -> Any:
            try:
                return do()
            except Killed:
                raise
            except Exception as error:
                if isinstance(error, UnavailableError) and not survives_outages:
                    raise
                self.escaped.append(f"{actor.name}: {type(error).__name__}: {error}")
                self.kernel.log(actor.name, f"ESCAPED {error!r}")
                raise

        return actor.submit(guarded)

    @property
    def processes(self) -> list[Actor]:
        """The live processes that may be killed."""
        self.workers = [each for each in self.workers if each.alive and each.tasks]
        self.watchers = [each for each in self.watchers if each.alive]
        self.requests = [each for each in self.requests if each.alive and each.tasks]
        return [*self.workers, *self.watchers, *self.requests]

    def drag(self) -> timedelta:
        most = self.setting.drag
        return timedelta(microseconds=self.kernel.dice.randrange(most)) if most else timedelta()

    def began(
        self,
        actor: Actor,
        execution_id: str,
        attempt: int,
        payload: str,
        upstream: str | None = None,
    ) -> None:
        """Note that *actor* began a script or a call."""
        now = self.kernel.clock.now()
        self.started.append(Started(execution_id, attempt, actor.name, payload, now, upstream))

    def check_handed_back(self, actor: Actor, stay: Sequence[SimulatedDelivery]) -> None:
        """Check that of the messages of a group that stay, all but the first were made visible."""
        groups = set()
        for delivery in stay:
            if delivery.group in groups and not delivery.handed_back:
                self.escaped.append(f"{actor.name}: {delivery.message_id} was not handed back")
            groups.add(delivery.group)
