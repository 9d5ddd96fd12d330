"""Processes that make the calls of a history on one SQLite file, and are killed in between."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Self

from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.endpoint_store import SqliteEndpointStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.join_store import SqliteJoinStore
from nextfire.adapters.sqlite.request_store import SqliteRequestStore
from nextfire.adapters.sqlite.run_store import SqliteRunStore

PORTS: Mapping[str, Callable[[Database, int], Any]] = {
    "jobs": lambda database, shards: SqliteJobStore(database, shards=shards),
    "due": lambda database, shards: SqliteDueStore(database, shards=shards),
    "runs": lambda database, shards: SqliteRunStore(database, shards=shards),
    "control": lambda database, _: SqliteControlStore(database),
    "requests": lambda database, _: SqliteRequestStore(database),
    "endpoints": lambda database, _: SqliteEndpointStore(database),
    "joins": lambda database, _: SqliteJoinStore(database),
}
"""The stores by the names of the simulation. The queues are not among them: the simulation orders
the groups of a queue at random.
"""
_PROCESSES = 3
_KILLED = 0.01
"""Probability that a process is killed before a call."""
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call. `error`: the name of the exception's class; None if it returned."""

    value: Any = None
    error: str | None = None


def answer_of(do: Callable[[], Any]) -> Answer:
    """Call *do*; an iterator is read to its end."""
    try:
        value = do()
        return Answer([*value] if isinstance(value, Iterator) else value)
    except Exception as error:  # noqa: BLE001 — it is the answer
        return Answer(error=type(error).__name__)


class SqliteProcesses:
    """Processes with the stores in the file *path*. `kills`: number of SIGKILLs. Context manager:
    ends all of them.
    """

    def __init__(self, path: Path, *, shards: int, seed: int) -> None:
        self._path = path
        self._shards = shards
        self._dice = Random(f"{seed} processes")  # noqa: S311 — reproducible
        self._running: dict[int, tuple[multiprocessing.Process, Connection]] = {}
        self._homes: dict[str, int] = {}
        self.kills = 0
        self.calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    def call(self, caller: str, port: str, method: str, args: Any, kwargs: Any) -> Answer:
        """Make a call in the process of *caller*, after a kill of some process, or of none."""
        self.calls += 1
        if self._running and self._dice.random() < _KILLED:
            self._kill(self._dice.choice([*self._running]))
        home = self._homes.setdefault(caller, len(self._homes) % _PROCESSES)
        if home not in self._running:
            self._running[home] = self._start()
        _, connection = self._running[home]
        connection.send((port, method, args, kwargs))
        answer: Answer = connection.recv()
        return answer

    def kill_all(self) -> None:
        for home in [*self._running]:
            self._kill(home)

    def _kill(self, home: int) -> None:
        process, connection = self._running.pop(home)
        process.kill()
        process.join()
        connection.close()
        self.kills += 1

    def _start(self) -> tuple[multiprocessing.Process, Connection]:
        ours, theirs = _FORK.Pipe()
        process = _FORK.Process(target=_serve, args=(theirs, self._path, self._shards), daemon=True)
        process.start()
        theirs.close()
        return process, ours  # type: ignore[return-value] # of the context


def _serve(connection: Connection, path: Path, shards: int) -> None:
    """Answer calls until the caller ends."""
    database = Database(path)
    stores = {name: make(database, shards) for name, make in PORTS.items()}
    while True:
        try:
            port, method, args, kwargs = connection.recv()
        except EOFError:
            return
        do = getattr(stores[port], method)
        connection.send(answer_of(lambda do=do, a=args, k=kwargs: do(*a, **k)))  # type: ignore[misc]
