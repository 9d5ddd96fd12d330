"""Histories of two versions: their processes on one SQLite file, with deaths and lost calls.

Each process (`simulated_process.py`) is a real one with the modules of its version. The history
lets one of them take a step at a time, up to its next call of a port, so it depends only on its
seed. Processes start in one version or the other by the course of the history: an update, an
update that is rolled back, or both versions at once.
"""

from __future__ import annotations

import heapq
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Self

from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.instants import floor_minute, to_ms
from nextfire.domain.occurrences import JobState
from tests.upgrade.history_books import Books
from tests.upgrade.history_requests import random_request
from tests.upgrade.simulated_parts import LEASE, START

THIS, EARLIER = "this version", "the earlier version"
COURSES: Mapping[str, Sequence[float]] = {
    "update": (0, 0.3, 0.7, 1),
    "rollback": (0, 0.5, 1, 0.5, 0),
    "both": (0.5,),
    "alone": (1,),
}
"""How probable it is that a new process has this version, phase by phase."""
LENGTH = 120
"""Default duration of the requests and faults, in seconds."""
_REST = 600
"""Maximum duration after that, until nothing is due, queued or running, in seconds."""
_SECOND = 1_000_000
_PROCESS = "tests.upgrade.simulated_process"


class Forks:
    """Starts processes with the modules of one version: those on the search path *sources*. Context
    manager: ends when the processes have ended.
    """

    def __init__(self, sources: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROCESS, str(theirs.fileno())],
            env={"PYTHONPATH": sources, "PYTHONHASHSEED": "0"},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait()

    def start(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [b"+"], [theirs.fileno()])
        return Connection(ours.detach())


@dataclass
class Running:
    """A process. `next_at`: when it takes its next step, in µs; `on_end`: called after its end."""

    name: str
    kind: str
    connection: Connection
    next_at: int
    on_end: Callable[[], object]

    def kill(self) -> None:
        """Let it send itself SIGKILL, unless it did, and wait for its end."""
        with suppress(EOFError, ConnectionError):
            self.connection.send((0, "die"))
            self.connection.recv()
        self.connection.close()


class History:
    """The history of *seed*, with the file *database*. *course*: one of `COURSES`. *defects*:
    functions of `planted.py`, which are called in the processes of this version.
    """

    def __init__(
        self,
        seed: int,
        forks: Mapping[str, Forks],
        database: Path,
        *,
        course: str | None = None,
        length: int = LENGTH,
        defects: Sequence[str] = (),
    ) -> None:
        self.dice = Random(seed)  # noqa: S311 — reproducible
        self.course = course or [*COURSES][seed % 3]
        self.events: list[str] = []
        self.hit: Counter[tuple[str, str]] = Counter()
        self.at = 0
        self.running: list[Running] = []
        self.versions: dict[str, str] = {}
        """Of each process, by its name."""
        self.wrong: str | None = None
        self._forks = forks
        self._defects = defects
        self._path = database
        self._length = length * _SECOND
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count(1)
        self._calm = False
        self._out: tuple[str | None, int] = None, 0
        """Of which kind no process runs, until when."""
        self._rough = self.dice.choice([0.0, 0.01, 0.03])
        self._doomed = self.dice.choice([0.2, 0.6])
        store = Database(database)
        SqliteControlStore(store).seed_cursors(1, floor_minute(START))
        self.books = Books(store, self.now)

    def now(self) -> Any:
        return START + timedelta(microseconds=self.at)

    def log(self, who: str, *what: str) -> None:
        self.events.append(f"{self.now():%H:%M:%S.%f}  {who:<12} {' '.join(what)}")

    # Time

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        at = self.at + int(seconds * _SECOND)
        heapq.heappush(self._timers, (at, next(self._numbers), do))

    def run_to(self, at: int) -> None:
        """Let processes and timers take their turns until *at*."""
        while True:
            first = min(self.running, key=lambda each: each.next_at, default=None)
            timer_at = self._timers[0][0] if self._timers else at
            if first is not None and first.next_at < min(at, timer_at):
                self.at = max(self.at, first.next_at)
                self._step(first)
            elif self._timers and timer_at < at:
                self.at, _, do = heapq.heappop(self._timers)
                do()
            else:
                self.at = at
                return

    def _step(self, process: Running, order: str | None = None) -> None:
        """Let *process* take a step, and note what it reports."""
        process.connection.send((self.at, order))
        next_at, events = process.connection.recv()
        for event in events:
            self.log(process.name, *event)
            if event[0] in ("DIES", "FAULT"):
                self.hit[event[-1], " ".join(event[:-1])] += 1
        self.books.note(process.name, events)
        if next_at is None:
            self._end(process)
        else:
            process.next_at = next_at

    def _end(self, process: Running) -> None:
        process.kill()
        self.running.remove(process)
        self.books.gone(process.name)
        process.on_end()

    # Processes

    def share(self) -> float:
        """How probable it is now that a new process has this version."""
        phases = COURSES[self.course]
        return phases[min(self.at * len(phases) // self._length, len(phases) - 1)]

    def start(self, kind: str, on_end: Callable[[], object] = int, request: Any = None) -> Running:
        """Start a process, doomed or not."""
        dice = self.dice
        version = THIS if dice.random() < self.share() else EARLIER
        short = kind in ("api", "auditor")
        doomed = not self._calm and dice.random() < (0.1 if short else self._doomed)
        birth = {
            "name": f"{kind}-{next(self._numbers)}",
            "kind": kind,
            "at": self.at,
            "seed": dice.getrandbits(64),
            "database": str(self._path),
            "dies_in": dice.randrange(16 if short else 150) if doomed else None,
            "rough": 0.0 if self._calm else self._rough,
            "lasts": [0] if self._calm else [0, 0, 1, 3, 25],
            "exits": [0] if self._calm else [0, 0, 0, 1],
            "request": request,
            "defects": self._defects if version is THIS else (),
        }
        connection = self._forks[version].start()
        connection.send(birth)
        process = Running(birth["name"], kind, connection, self.at, on_end)
        self.log(process.name, "STARTS in", version)
        self.versions[process.name] = version
        self.running.append(process)
        return process

    def keep(self, kind: str) -> None:
        """Keep a process of *kind* running: each is stopped or killed one day, and replaced."""
        dice, (out, until) = self.dice, self._out
        if self._calm:
            self.start(kind)
            return
        if out == kind and self.at < until:
            self.later((until - self.at) / _SECOND, lambda: self.keep(kind))
            return

        def again() -> None:
            if not self._calm:
                self.later(dice.choice([0.1, 1, 5, 20]), lambda: self.keep(kind))

        process = self.start(kind, again)

        def replace() -> None:
            if process not in self.running or self._calm:
                return
            if dice.random() < 0.5:
                self.log(process.name, "IS STOPPED")
                self._step(process, "stop")
            else:
                self.log(process.name, "IS KILLED")
                self._end(process)

        self.later(dice.choice([10, 20, 40, 80]), replace)

    def _outage(self) -> None:
        """In two of three histories no watcher, or no worker, runs for longer than it takes until
        an occurrence is missed.
        """
        kind = self.dice.choice(["watcher", "worker", None])
        if kind is not None:
            self.log("outage", kind)
            self._out = kind, self.at + self.dice.randint(62, 80) * _SECOND
            for process in [each for each in self.running if each.kind == kind]:
                self._end(process)

    def request(self, method: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.log("user", method, *map(str, args), *map(str, keywords.values()))
        self.start("api", request=(method, args, keywords))

    # The course of a history

    def play(self) -> None:
        """Play it, let the system come to rest, and judge."""
        try:
            for kind in ("watcher", "watcher", "worker", "worker"):
                self.keep(kind)
            self.later(1, self._some_request)
            self.later(5, self._deliver_again)
            self.later(self.dice.uniform(60, 110), lambda: self.start("auditor"))
            self.later(self.dice.uniform(10, 35), self._outage)
            self.run_to(self._length)
            self._come_to_rest()
            self.books.judge()
        except AssertionError as error:
            self.wrong = str(error).partition("\n")[0]
        finally:
            for process in self.running:
                process.kill()
            self.running.clear()

    def _some_request(self) -> None:
        """Make a random request, and plan the next one."""
        self.request(*random_request(self.dice, self.now(), self.books))
        self.later(self.dice.choice([0.1, 1, 3, 8]), self._some_request)

    def _deliver_again(self) -> None:
        """Make a message visible that is being processed, as a queue that delivers it twice."""
        hidden = "SELECT number FROM messages WHERE hidden_until > ? ORDER BY number"
        with self.books.database.writing("deliver again") as connection:
            now = to_ms(self.now())
            if found := connection.execute(hidden, (now,)).fetchall():
                [number] = self.dice.choice(found)
                connection.execute(
                    "UPDATE messages SET hidden_until = ? WHERE number = ?", (now, number)
                )
                self.log("queue", f"delivers {number} again")
        self.later(self.dice.choice([1, 5, 20]), self._deliver_again)

    def _come_to_rest(self) -> None:
        """New processes without faults, until nothing is due, queued or running."""
        self._calm = True
        self._timers.clear()
        self.log("rest", "all processes are new, no faults")
        for process in [*self.running]:
            self._end(process)
        for kind in ("watcher", "worker", "worker"):
            self.keep(kind)
        for key, job in self.books.jobs().items():
            if job.state is JobState.PAUSED:
                self.request("resume_job", (key.job_id,), {})
        self.run_to(self.at + 2 * int(LEASE.total_seconds()) * _SECOND)
        for _ in range(_REST):
            if not self.books.open():
                return
            self.run_to(self.at + _SECOND)
        raise AssertionError(f"not at rest: {self.books.open()}")
