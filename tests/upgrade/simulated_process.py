"""A process of a history of two versions, which takes a step whenever the history lets it.

It runs under either version, so it imports only what both have. Its adapters are those of the
embedded stack; its part is in `simulated_parts.py`.

``python -m tests.upgrade.simulated_process FD`` imports a version once, and forks a process for
each connection that it receives on the socket FD.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.endpoint_store import SqliteEndpointStore
from nextfire.adapters.sqlite.events import SqliteEvents
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.join_store import SqliteJoinStore
from nextfire.adapters.sqlite.request_store import SqliteRequestStore
from nextfire.adapters.sqlite.run_queue import SqliteDeadLetters, SqliteInbox, SqliteRunQueue
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.client import ClientError
from nextfire.domain.errors import UnavailableError
from nextfire.testing.kernel import Actor, Kernel
from nextfire.testing.memory.files import MemoryRunFiles
from nextfire.testing.memory.notices import MemoryNotices
from nextfire.testing.memory.values import MemorySecrets
from nextfire.testing.stack import Stack
from tests.upgrade.simulated_parts import PARTS, POOL, START

_LATENCIES = (900, 4_000, 20_000, 300_000)
"""The longest time, in µs, before and after a call."""
_IDLE = {"inbox.receive", "due.read", *(f"control.{each}" for each in (
    "lease", "replace_lease", "cursors", "move_cursor"))}  # fmt: skip
"""Calls that processes make all the time. Faults spare most of them, so that they hit others."""
_SPARED = 0.9


class Process:
    """A process that takes a step whenever the history lets it. *birth*: see `History.start`."""

    def __init__(self, birth: Mapping[str, Any], connection: Connection) -> None:
        self.birth = birth
        self._connection = connection
        self._events: list[tuple[str, ...]] = []
        self.dice = random.Random(birth["seed"])  # noqa: S311 — reproducible
        self.kernel = Kernel(birth["seed"], START)
        self.kernel.run_to(START + timedelta(microseconds=birth["at"]))
        self.actor = Actor(self.kernel, birth["name"])
        self.actor.dies_in = birth["dies_in"]
        self.notices = MemoryNotices()
        database, clock = Database(Path(birth["database"])), self.actor
        self.stores = SimpleNamespace(
            jobs=SqliteJobStore(database, shards=1),
            runs=SqliteRunStore(database, shards=1),
            due=SqliteDueStore(database, shards=1),
            control=SqliteControlStore(database),
            requests=SqliteRequestStore(database),
            endpoints=SqliteEndpointStore(database),
            joins=SqliteJoinStore(database),
            queue=SqliteRunQueue(database, clock=clock, pools=[POOL]),
            inbox=SqliteInbox(database, clock=clock, pool=POOL),
            dead_letters=SqliteDeadLetters(database, clock=clock, pool=POOL),
            events=SqliteEvents(database),
            files=MemoryRunFiles(),
            secrets=MemorySecrets(),
        )
        self.life = self.actor.submit(PARTS[birth["kind"]], self)

    def live(self) -> None:
        """Take the steps that the history orders."""
        while True:
            at, order = self._connection.recv()
            if order == "die":
                _die()
            if order == "stop":
                self.actor.stop()
            self.kernel.run_to(START + timedelta(microseconds=at))
            for defect in (*self.notices.defects, *self._error()):
                self.note("DEFECT", repr(defect))
            self.notices.defects.clear()
            if self.life.done() and not self.actor.tasks:
                self.report(None)
                return
            self.report(self.kernel._planned[0][0])  # noqa: SLF001

    def _error(self) -> Iterator[BaseException | None]:
        if self.life.done() and (error := self.life.exception()) is not None:
            yield error

    def report(self, next_at: int | None) -> None:
        """Report what happened in this step, and the time of the next; None: the process ends."""
        self._connection.send((next_at, self._events))
        self._events = []

    def note(self, *event: str) -> None:
        self._events.append(event)

    # Calls

    def port(self, name: str, port: Any = None) -> Any:
        """See `Simulated`."""
        return Port(self, name, port or getattr(self.stores, name))

    def call(self, call: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call; it may be rejected, lost on either way, or the last of this process."""
        spared = call in _IDLE and self.dice.random() < _SPARED
        self._half_step(call, "before", spared=spared)
        fault = None if spared else self._fault(call)
        if fault in ("rejected", "unsent"):
            if fault == "unsent":
                self.actor.sleep(timedelta(seconds=self.dice.choice([1, 2, 5])))
            raise UnavailableError(f"{call}: {fault}. Try again.")
        answer = do(*args, **kwargs)
        if isinstance(answer, Iterator):
            answer = iter([*answer])
        self.note(call)
        if not spared:
            self._half_step(call, "after")
        if fault == "unanswered":
            raise UnavailableError(f"{call}: no answer. Try again.")
        return answer

    def _half_step(self, call: str, when: str, *, spared: bool = False) -> None:
        self.kernel.pause(self.dice.randint(1, self.dice.choice(_LATENCIES)))
        if not spared and self.actor.half_step():
            self.note("DIES", when, call)
            self.report(None)
            _die()

    def _fault(self, call: str) -> str | None:
        odds = self.dice.random()
        for fault in ("rejected", "unsent", "unanswered"):
            odds -= self.birth["rough"]
            if odds < 0:
                self.note("FAULT", fault, call)
                return fault
        return None


class Port:
    """A port of *process*, whose calls are steps."""

    def __init__(self, process: Process, name: str, port: Any) -> None:
        self._process = process
        self._name = name
        self.port = port

    def __getattr__(self, method: str) -> Any:
        found = getattr(self.port, method)
        if not callable(found):
            return found
        call = f"{self._name}.{method}"
        return lambda *args, **kwargs: self._process.call(call, found, *args, **kwargs)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _live(connection: Connection) -> None:
    birth = connection.recv()
    entropy = random.Random(birth["seed"])  # noqa: S311 — ids must be reproducible
    os.urandom = entropy.randbytes
    random._urandom = entropy.randbytes  # type: ignore[attr-defined] # noqa: SLF001
    random.seed(birth["seed"])
    for defect in birth["defects"]:
        from tests.upgrade import planted  # noqa: PLC0415 — few histories have one

        getattr(planted, defect)()
    Process(birth, connection).live()


def _warm_up() -> None:
    """Import and build, once for all processes, what the first request and the first run need."""
    with Stack() as stack:
        stack.script("warm", lambda _: None)
        stack.put("warm", {"type": "MANUAL", "target": {"handler": "warm"}})
        for change in (stack.pause, stack.resume, stack.run):
            change("warm")
        stack.change("warm", {"payload": 1})
        stack.advance(seconds=10)
        [run] = stack.runs("warm")
        for refused in (stack.client.cancel_execution, stack.client.redrive_execution):
            with suppress(ClientError):
                refused(run.execution_id)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Fork a process for each connection."""
    _warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as given:
        while received := socket.recv_fds(given, 1, 1)[1]:
            [descriptor] = received
            if os.fork() == 0:
                given.close()
                with suppress(EOFError, BrokenPipeError, ConnectionResetError):
                    _live(Connection(descriptor))
                os._exit(0)
            os.close(descriptor)


if __name__ == "__main__":
    main()
