"""Calls that fail, and processes that die, where a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from nextfire.domain.errors import UnavailableError

P = TypeVar("P")


T = TypeVar("T")


class Killed(BaseException):
    """The process died here, as by SIGKILL. `except Exception` does not catch it."""


class Faults:
    """A proxy between a use case and its ports: logs the calls and makes chosen ones fail.

    A call is named by its port and method: ``due.put``.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._kill_after: int | None = None
        self._refused: dict[str, int] = {}
        self._unanswered: dict[str, int] = {}
        self._hooks: dict[str, Callable[[], object]] = {}
        self._before: dict[str, Callable[[], object]] = {}

    def kill_after(self, calls: int) -> None:
        """Raise `Killed` after *calls* more calls; 0: instead of the next call."""
        self._kill_after = len(self.calls) + calls

    def refuse(self, call: str, times: int = 1) -> None:
        """Make the next *times* calls of *call* raise `UnavailableError` without effect."""
        self._refused[call] = times

    def lose_answer(self, call: str, times: int = 1) -> None:
        """Make the next *times* calls of *call* take effect and raise `UnavailableError`."""
        self._unanswered[call] = times

    def call_before_next(self, call: str, do: Callable[[], object]) -> None:
        """Run *do* once, before the next *call*."""
        self._hooks[call] = do

    def call_before_each(self, call: str, do: Callable[[], object]) -> None:
        """Run *do* before every *call*, for example to let time pass."""
        self._before[call] = do

    def clear(self) -> None:
        self._kill_after = None
        self._refused.clear()
        self._unanswered.clear()
        self._hooks.clear()
        self._before.clear()

    def through(self, port: P, name: str) -> P:
        """Wrap *port* so that its calls pass through this proxy."""
        return cast("P", _Port(port, name, self))

    def call(self, name: str, do: Callable[[], T]) -> T:
        if self._kill_after is not None and len(self.calls) >= self._kill_after:
            raise Killed
        if name in self._hooks:
            self._hooks.pop(name)()
        self._before.get(name, lambda: None)()
        self.calls.append(name)
        if self._refused.get(name, 0) > 0:
            self._refused[name] -= 1
            raise UnavailableError(f"{name}: refused. Try again.")
        done = do()
        if self._kill_after is not None and len(self.calls) >= self._kill_after:
            raise Killed
        if self._unanswered.get(name, 0) > 0:
            self._unanswered[name] -= 1
            raise UnavailableError(f"{name}: no answer. Try again.")
        return done


class _Port:
    def __init__(self, port: Any, name: str, faults: Faults) -> None:
        self._port, self._name, self._faults = port, name, faults

    def __getattr__(self, method: str) -> Any:
        do = getattr(self._port, method)
        name = f"{self._name}.{method}"
        return lambda *args, **kwargs: self._faults.call(name, lambda: do(*args, **kwargs))
