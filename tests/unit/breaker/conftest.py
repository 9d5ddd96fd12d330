"""A circuit breaker with a clock that tests move, and a store that can fail."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from nextfire.domain.endpoints import OPENS_AFTER, Endpoint, EndpointKey
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.breaker import Breaker
from tests.builders import NOON
from tests.fakes import Clock, MemoryEndpointStore

HOST = "api.example.com:443"
KEY = EndpointKey("calls", "acme", HOST)
SECOND = timedelta(seconds=1)


class Store(MemoryEndpointStore):
    """A store that can fail, and that can return old states."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.takes = 0.0
        self.stale: Endpoint | None = None

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:
        time.sleep(self.takes)  # other threads continue
        found = super().get(key, consistent=consistent)
        self._fail()
        return self.stale or found

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        self._fail()
        return super().replace(was, to)

    def _fail(self) -> None:
        if self.failing:
            raise UnavailableError("no answer")

    @property
    def calls(self) -> tuple[int, int]:
        """The number of reads and of writes since the last call."""
        found = self.reads, self.writes
        self.reads = self.writes = 0
        return found


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def breaker(store: Store, clock: Clock, errors: list[Exception]) -> Breaker:
    return Breaker(store, "calls", clock, on_error=errors.append)


def starts(breaker: Breaker, clock: Clock, run: str = "run") -> bool:
    return breaker.admit("acme", HOST, run, clock.now()) is None


def fail(breaker: Breaker, times: int = OPENS_AFTER) -> None:
    for _ in range(times):
        breaker.report("acme", HOST, "down")
