"""A process of a history of two versions: a watcher, a worker, an auditor or an API request.

It runs under either version, so it imports only what both have, and none of the other tests. Its
parts are built by the version's own wiring on the adapters of the embedded stack, with the clock
and the scripts of the version's test kit.

``python simulated_process.py FD`` imports the version once, and forks a process for each connection
that it receives on the socket FD.
"""

from __future__ import annotations

import gc
import inspect
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
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
from nextfire.domain.quotas import NO_QUOTAS
from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.script.runner import ScriptTarget
from nextfire.testing.api import BUCKET, client
from nextfire.testing.kernel import SECOND, Actor, Kernel, current
from nextfire.testing.memory.files import MemoryRunFiles
from nextfire.testing.memory.notices import MemoryNotices
from nextfire.testing.memory.values import MemorySecrets
from nextfire.testing.scripts import KitRunner, Scripts
from nextfire.testing.stack import Stack
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.serve_pool import StopWaiting, Threads
from nextfire.wiring.executor import ExecutorPorts
from nextfire.wiring.watcher import WatcherConfig, WatcherPorts, build_watcher
from nextfire.wiring.worker import WorkerPorts, build_worker

START = datetime(2026, 5, 24, 11, 59, 50, tzinfo=UTC)
POOL = "default"
LEASE = timedelta(seconds=12)
_LIFE = timedelta(seconds=125)
_POLL = timedelta(milliseconds=400)
_LATENCIES = (900, 4_000, 20_000, 300_000)
"""The longest time, in µs, before and after a call."""
_IDLE = {"inbox.receive", "due.read", *(f"control.{each}" for each in (
    "lease", "replace_lease", "cursors", "move_cursor"))}  # fmt: skip
"""Calls that processes make all the time; faults spare most of them, so that they hit the others."""
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
            inbox=_Inbox(SqliteInbox(database, clock=clock, pool=POOL), self),
            dead_letters=SqliteDeadLetters(database, clock=clock, pool=POOL),
            events=SqliteEvents(database),
            files=MemoryRunFiles(),
            secrets=MemorySecrets(),
        )
        self.life = self.actor.submit(getattr(self, birth["kind"]))

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

    def port(self, name: str) -> Any:
        return Port(self, name, getattr(self.stores, name))

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

    # Kinds of processes

    def watcher(self) -> None:
        ports = WatcherPorts(
            **{name: self.port(name) for name in ("jobs", "due", "runs", "queue", "control")},
            clock=self.actor,
            executor=self.actor,
            lanes=self.actor,
        )
        config = WatcherConfig(0, self.actor.name, [0], Shares())
        life, task = build_watcher(ports, config, self.notices), current()
        self.actor.on_stop = lambda: self.kernel.interrupt(task, SystemExit())
        try:
            while True:
                life.live(_LIFE)
        except SystemExit:  # as functions/embedded/parts.py
            life.end()

    def worker(self) -> None:
        scripts, actor = Scripts(), self.actor
        scripts.functions["report"] = self._script
        script = ScriptTarget(
            scripts=scripts,
            bucket=BUCKET,
            runner=KitRunner(scripts, actor),
            secrets=self.port("secrets"),
            job_role=None,
            clock=actor,
        )
        executor = ExecutorPorts(
            **{name: self.port(name) for name in ("jobs", "runs", "due", "files", "queue")},
            **{name: self.port(name) for name in ("dead_letters", "events", "joins")},
            target=TargetsByKind({TargetKind.SCRIPT: script}),
            clock=actor,
            background=actor,
            children=actor,
            quotas=NO_QUOTAS,
        )
        nothing = SimpleNamespace(
            hold=lambda _: None,
            release=lambda _: None,
            deviation=timedelta,
            keep=lambda *, working: None,  # noqa: ARG005
            is_replaced=lambda: False,
        )
        given = {
            "executor": executor,
            "inbox": self.stores.inbox,
            "threads": Threads(
                slots=actor,
                size=2,
                background=actor,
                wait=self.kernel.wait,
                monotonic=lambda: self.kernel.at / SECOND,
            ),
        }
        others = {each.name: nothing for each in fields(WorkerPorts) if each.name not in given}
        ports: Any = WorkerPorts(**given, **others)  # type: ignore[arg-type]
        worker = build_worker(ports, ExecutorConfig(actor.name, POOL, LEASE), self.notices)
        task = current()
        actor.on_stop = lambda: worker.stop() and self.kernel.interrupt(task, StopWaiting())
        worker.serve()

    def _script(self, run: Any) -> None:
        """A script with a random duration and outcome."""
        self.note("SCRIPT", "begins", run.execution_id, str(run.attempt))
        try:
            run.sleep(self.dice.choice(self.birth["lasts"]))
        finally:
            self.note("SCRIPT", "ends", run.execution_id, str(run.attempt))
        raise SystemExit(self.dice.choice(self.birth["exits"]))

    def auditor(self) -> None:
        names = ("jobs", "due", "runs", "queue", "control", "joins")
        audit = AuditJobs(
            **{name: self.port(name) for name in names},
            clock=self.actor,
            executor=self.actor,
            pools=[POOL],
            write_shards=1,
            read_shards=1,
            every=timedelta(days=1),
        )
        until = self.actor.now() + timedelta(minutes=14)
        for report in audit.continue_audit(until, restart=True):
            self.note("AUDIT", str(report.repaired), str(report))

    def api(self) -> None:
        """Make the request (method of the client, arguments) of *birth*."""
        optional = {"advance": self.actor.sleep}
        known = inspect.signature(client).parameters
        stores: Any = self.stores
        method, args, keywords = self.birth["request"]
        try:
            user = client(
                stores,
                lambda _, name: self.port(name),
                self.actor,  # type: ignore[arg-type]
                {POOL: "scripts"},
                max_timeout=timedelta(hours=11),
                quotas=NO_QUOTAS,
                **{name: value for name, value in optional.items() if name in known},
            )
            answer = getattr(user, method)(*args, **keywords)
        except Exception as error:  # noqa: BLE001 — the answer
            self.note("ANSWER", type(error).__name__, str(error))
        else:
            self.note("ANSWER", "OK", getattr(answer, "execution_id", ""))


class Port:
    """A port of *process*, whose calls are steps."""

    def __init__(self, process: Process, name: str, port: Any) -> None:
        self._process = process
        self._name = name
        self._port = port

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._port, method)
        if not callable(found):
            return found
        call = f"{self._name}.{method}"
        return lambda *args, **kwargs: self._process.call(call, found, *args, **kwargs)


class _Inbox:
    """The inbox of *process*, which looks less often for messages than that of the stack."""

    def __init__(self, inbox: Any, process: Process) -> None:
        self._inbox = inbox
        self._port = Port(process, "inbox", inbox)
        self._process = process

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> list[Any]:
        for poll in range(wait // _POLL + 1):
            if poll:
                self._process.actor.sleep(_POLL)
            received = self._port.receive(most, wait=timedelta(), hidden_for=hidden_for)
            if received:
                return [Port(self._process, "delivery", each) for each in received]
        return []

    def acknowledge(self, deliveries: Any) -> Any:
        return self._port.acknowledge([each._port for each in deliveries])  # noqa: SLF001

    def show(self, deliveries: Any) -> Any:
        return self._port.show([each._port for each in deliveries])  # noqa: SLF001


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _live(connection: Connection) -> None:
    birth = connection.recv()
    entropy = random.Random(birth["seed"])  # noqa: S311 — ids must be reproducible
    os.urandom = entropy.randbytes
    random._urandom = entropy.randbytes  # type: ignore[attr-defined] # noqa: SLF001
    random.seed(birth["seed"])
    for defect in birth["defects"]:
        import planted  # type: ignore[import-not-found]  # noqa: PLC0415 — next to this file

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
