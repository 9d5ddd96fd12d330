"""Histories whose calls are made a second time, on SQLite. All answers must be equal.

The course of a history and its faults are those of the simulation in memory. Its end is not judged
again: equal answers have the same consequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from greenlet import getcurrent

from nextfire.domain.instants import cut, floor_minute
from nextfire.domain.ports.pages import Page
from nextfire.testing.kernel import Task
from tests.simulation.brief import brief
from tests.simulation.flow import Flow
from tests.simulation.history import History
from tests.simulation.sqlite_processes import PORTS, Answer, SqliteProcesses, answer_of
from tests.simulation.wire import LAZY

_UNSEEN = {"spoil a job", "spoil a link", "junk entry", "vandal"}
"""Flows that change the memory of the stores without a call."""


class MirroredHistory(History):
    """The history of *seed*, mirrored in the file *path*."""

    def __init__(self, seed: int, path: Path) -> None:
        super().__init__(seed)
        self.vandalised = False
        self.processes = SqliteProcesses(path, shards=self.setting.shards, seed=seed)
        self.wire.ports = {
            name: _Mirrored(self, name, port) if name in PORTS else port
            for name, port in self.wire.ports.items()
        }

    def play(self) -> Any:
        with self.processes:
            minute = floor_minute(self.kernel.clock.now())
            self.ask("control", "seed_cursors", self.setting.shards, minute)
            return super().play()

    def flows(self) -> Sequence[Flow]:
        return [flow for flow in super().flows() if flow.name not in _UNSEEN]

    def ask(self, port: str, method: str, *args: Any, **kwargs: Any) -> Answer:
        """Make a call on SQLite, in the process of the current actor."""
        task = getcurrent()
        caller = task.actor.name if isinstance(task, Task) else "test"
        return self.processes.call(caller, port, method, args, kwargs)

    def _kill_all(self) -> None:
        """After all processes were killed, what they acknowledged is in the file."""
        super()._kill_all()
        self.processes.kill_all()
        stores = self.stores
        for key, job in stores.jobs.items.items():
            self._expect("jobs", "get", key, found=job)
        for run_key, run in stores.runs.items.items():
            self._expect("runs", "get", run_key, found=run)
        slots = {*stores.due.items}
        self._expect("due", "occupied", slots, found=slots)

    def _come_to_rest(self) -> int:
        return 0  # in memory only, as the history without a mirror does

    def _expect(self, port: str, method: str, *args: Any, found: Any) -> None:
        self.compare(
            f"{port}.{method} at the end", args, Answer(found), self.ask(port, method, *args)
        )

    def compare(self, call: str, args: Any, ours: Answer, theirs: Answer) -> None:
        """Note a violation if SQLite's answer is not the one of the memory."""
        mine, other = _plain(ours.value), _plain(theirs.value)
        if (ours.error, mine) != (theirs.error, other):
            self.monitor.violations.append(
                f"{call} {brief(args)}: in memory {ours.error or mine!r}, "
                f"on SQLite {theirs.error or other!r}"
            )


class _Mirrored:
    """A port in memory whose calls are repeated on SQLite."""

    def __init__(self, history: MirroredHistory, name: str, memory: Any) -> None:
        self._history = history
        self._name = name
        self._memory = memory

    def __copy__(self) -> Any:
        """A copy for stale reads, which SQLite does not have."""
        return copy(self._memory)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)
        found = getattr(self._memory, method)
        return self._twice(method, found) if callable(found) else found

    def _twice(self, method: str, do: Any) -> Any:
        call = f"{self._name}.{method}"

        def both(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("cursor") is not None:
                return do(*args, **kwargs)  # opaque: each store has its own
            if call in LAZY:  # compared as of now; later pages see later writes
                ours = answer_of(lambda: do(*args, **kwargs))
                self._check(call, method, args, kwargs, ours)
                return do(*args, **kwargs)
            try:
                value = do(*args, **kwargs)
            except Exception as error:
                self._check(call, method, args, kwargs, Answer(error=type(error).__name__))
                raise
            self._check(call, method, args, kwargs, Answer(value))
            return value

        return both

    def _check(self, call: str, method: str, args: Any, kwargs: Any, ours: Answer) -> None:
        theirs = self._history.ask(self._name, method, *args, **kwargs)
        self._history.compare(call, args, ours, theirs)


def _plain(value: Any) -> Any:
    """*value* without what may differ: types of collections, opaque cursors, and fractions of a
    millisecond, which are not stored.
    """
    match value:
        case str() | Enum():
            return value
        case datetime():
            return cut(value)
        case Page():
            return [*map(_plain, value.items)], value.cursor is None
        case Mapping():
            return {repr(_plain(key)): _plain(each) for key, each in value.items()}
        case AbstractSet():
            return sorted(repr(_plain(each)) for each in value)
        case Sequence() | Iterator():
            return [_plain(each) for each in value]
    if is_dataclass(value):
        return type(value), *(_plain(getattr(value, each.name)) for each in fields(value))
    return value
