"""Processes of the simulation meet at each port call, and die there."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from greenlet import getcurrent

from nextfire.testing.kernel import SECOND, Actor, Kernel, Task
from tests.builders import at
from tests.fakes import Killed
from tests.simulation.history import History
from tests.simulation.wire import Weather, Wire

TRIES = 80
"""Number of seeds; a few of them reveal each planted defect."""


def read_then_write(name: str, method: str) -> Callable[[History], None]:
    """Plant an adapter that checks whether it may write and writes ten seconds later."""

    def plant(history: History) -> None:
        store, kernel = getattr(history.stores, name), history.kernel
        transaction = history.stores.runs._lock  # noqa: SLF001

        def racy(*args: Any, **kwargs: Any) -> Any:
            # Nothing comes in between of a change of a run and its job, or of the setup.
            if transaction.locked() or not isinstance(getcurrent(), Task):
                return getattr(type(store), method)(store, *args, **kwargs)
            seen = copy(store)
            seen.items = dict(store.items)
            before = dict(seen.items)
            answer = getattr(type(store), method)(seen, *args, **kwargs)
            kernel.step(10 * SECOND)
            for key, value in seen.items.items():
                if before.get(key) is not value:
                    store.items[key] = value
            return answer

        setattr(store, method, racy)

    return plant


RACES = {
    "a claim that checks, then writes": read_then_write("runs", "claim"),
    "an outcome that checks the fence, then writes": read_then_write("runs", "advance"),
    "a change of a job that checks the revision, then writes": read_then_write("jobs", "update"),
}


@pytest.mark.parametrize("race", RACES.values(), ids=[*RACES])
def test_a_planted_race_is_found_by_interleaving_and_by_nothing_else(
    race: Callable[[History], None],
) -> None:
    def violated(seed: int, *, interleaves: bool) -> bool:
        history = History(seed, interleaves=interleaves)
        race(history)
        return bool(history.play().violations)

    found = next((seed for seed in range(TRIES) if violated(seed, interleaves=True)), None)
    assert found is not None
    assert not any(violated(seed, interleaves=False) for seed in range(found + 1))


class _Counter:
    def __init__(self) -> None:
        self.calls = 0

    def touch(self) -> None:
        self.calls += 1


def test_a_dead_process_never_reaches_a_port() -> None:
    kernel = Kernel(1, at("12:00"))
    port = _Counter()
    wire = Wire(kernel, {"port": port}, Weather())
    actor = Actor(kernel, "doomed")
    seen = wire.port(actor, "port")
    ends: list[str] = []

    def work() -> None:
        try:
            seen.touch()
            kernel.pause(10 * SECOND)
        except Killed:
            ends.append("except")
            seen.touch()
        finally:
            ends.append("finally")
            seen.touch()

    actor.submit(work)
    other = Actor(kernel, "other")

    def kill() -> None:
        kernel.pause(5 * SECOND)
        actor.kill()

    other.submit(kill)
    kernel.run(lambda: False)
    assert ends == ["except", "finally"]
    assert port.calls == 1


@pytest.mark.parametrize("half_steps", range(3))
def test_a_process_dies_before_or_after_a_call(half_steps: int) -> None:
    kernel = Kernel(1, at("12:00"))
    port = _Counter()
    actor = Actor(kernel, "doomed")
    actor.dies_in = half_steps
    seen = Wire(kernel, {"port": port}, Weather()).port(actor, "port")
    actor.submit(seen.touch)
    kernel.run(lambda: False)
    assert not actor.alive
    assert port.calls == (1 if half_steps == 2 else 0)
