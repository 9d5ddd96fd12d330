"""The embedded stack of a soak test. Its parts and the whole of it are killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from nextfire import Client
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.files.stack_folder import DATA, DATABASE
from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.join_store import SqliteJoinStore
from nextfire.adapters.sqlite.key_store import SqliteKeyStore
from nextfire.adapters.sqlite.run_queue import SqliteRunQueue
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.client.bearer import Bearer
from nextfire.usecases.audit import AuditJobs
from nextfire_cli.local.api_key import provide_key
from nextfire_cli.local.embedded import TENANT, EmbeddedInfo, EmbeddedStack
from nextfire_cli.local.processes import started
from tests.process_tree import children_of, tree_of
from tests.soak.marks import HANDLER, SOURCE
from tests.soak.target import LEASE, ROOT, WORKERS, Kill, Log, now

OTHER_TENANT = "other"
_POOL = "default"
_SLOTS = 16
_WORKER = f"worker-{_POOL}-"
_SUPERVISOR_LIVES = 0.5
_AUDIT_TAKES = timedelta(minutes=5)
_LEFT = {
    "due entries": "SELECT count(*) FROM due",
    "runs": "SELECT count(*) FROM runs "
    "WHERE json_extract(item, '$.state.S') IN ('PENDING', 'RUNNING')",
    "messages": f"SELECT count(*) FROM messages WHERE queue = '{_POOL}'",  # noqa: S608 — a constant
}
_PORTS = 20_000, 32_000
"""Below the ports that Linux assigns."""


class EmbeddedSoakStack:
    """The embedded stack. Implements `Target`. A restart kills all its processes with SIGKILL, as
    does the victim `stack`, which is started again at once.
    """

    victims: Mapping[str, int] = {"worker": 50, "watcher": 15, "api": 15, "auditor": 8, "stack": 12}
    slots: Mapping[str, int] = {_POOL: WORKERS * _SLOTS}
    on_lambda = 0.0
    tenants = (TENANT, OTHER_TENANT)

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self.log = Log()
        self.marks = folder / "marks"
        self._state = folder / "stack"
        self._local = EmbeddedStack(self._state, sources=ROOT)
        self._report = report
        self._gate = threading.RLock()
        self._starter = ThreadPoolExecutor(1)
        """The stack ends with the thread that started it."""
        self._info: EmbeddedInfo | None = None
        """The running stack; None while it is down."""

    def start(self) -> None:
        with self._gate:
            self._state.mkdir(mode=0o711, exist_ok=True)
            self._choose_port()
            starting = self._starter.submit(
                self._local.start, self._report, workers=WORKERS, lease=LEASE
            )
            self._info = starting.result()
            if not self._other_key.exists():
                provide_key(SqliteKeyStore(self._database()), self._other_key, tenant=OTHER_TENANT)
            for tenant, api in zip(self.tenants, self.apis(), strict=True):
                folder = self.marks / tenant
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o1777)  # each script may have its own user
                with api:
                    api.push_script(HANDLER, SOURCE.encode(), pool=_POOL)

    def stop(self) -> None:
        with self._gate:
            self._info = None
            self._local.stop()

    def restart(self, away: Callable[[], None]) -> None:
        with self._gate:
            self._kill_all(Random(), away)  # noqa: S311 — any order

    def apis(self) -> list[Client]:
        with self._gate:  # the supervisor may be starting the stack again
            assert self._info is not None
            keys = self._info.api_key, self._other_key.read_text(encoding="ascii").strip()
            return [Client(self._info.endpoint, auth=Bearer(key)) for key in keys]

    def supervise(self) -> None:
        """Start the stack again if its supervisor gave up."""
        with self._gate:
            if self._info is not None and not self._info.alive:
                self.log.died += self._local.deaths()
                self._report(self.log.died[-1])
                down_at = now()
                self.stop()
                self.start()
                self.log.stops.append((down_at, now()))

    def kill(self, what: str, random: Random) -> Kill | None:
        with self._gate:
            if self._info is None:
                return None
            if what == "stack":
                return self._kill_all(random, lambda: None)
            name = what if what != "worker" else f"{_WORKER}{random.randrange(WORKERS)}"
            pid = self._info.parts().get(name, {}).get("pid")
            if pid is None:  # it is being started again
                return None
            if what != "worker":
                return self._note(Kill(now(), what, pid), [pid])
            workers = children_of(pid)
            if not workers:
                return None
            # Only the worker, or with its supervisor.
            victims = workers if random.random() < _SUPERVISOR_LIVES else [pid, *workers]
            return self._note(Kill(now(), what, pid, _name_of(workers[0])), victims)

    def unfinished(self) -> str | None:
        with self._database().reading("count") as connection:
            left = {what: connection.execute(sql).fetchone()[0] for what, sql in _LEFT.items()}
        return ", ".join(f"{count} {what}" for what, count in left.items() if count) or None

    def audit(self) -> dict[str, Any]:
        database, clock = self._database(), SystemClock()
        pools = {_POOL: timedelta(hours=11)}
        audit = AuditJobs(
            jobs=SqliteJobStore(database),
            due=SqliteDueStore(database),
            runs=SqliteRunStore(database),
            joins=SqliteJoinStore(database),
            queue=SqliteRunQueue(database, clock=clock, pools=pools),
            control=SqliteControlStore(database),
            clock=clock,
            executor=ThreadPoolExecutor(1),
            pools=pools,
            write_shards=1,
            read_shards=1,
            every=timedelta(days=1),
        )
        *_, report = audit.continue_audit(now() + _AUDIT_TAKES, restart=True)
        return dataclasses.asdict(report)

    def _choose_port(self) -> None:
        """Choose a port that no other process gets while the stack is down: clients keep it."""
        file = self._state / DATA / "port"
        if not file.exists():
            file.parent.mkdir(mode=0o700, exist_ok=True)
            file.write_text(str(Random().randrange(*_PORTS)))  # noqa: S311 — any

    @property
    def _other_key(self) -> Path:
        return self._state / "other-key"

    def _database(self) -> Database:
        return Database(self._state / DATA / DATABASE)

    def _kill_all(self, random: Random, away: Callable[[], None]) -> Kill:
        """SIGKILL all processes in a random order, call *away*, and start the stack."""
        assert self._info is not None
        self._report("killing all processes")
        supervisor, at = self._info.processes[0].pid, now()
        # A worker may record that its script was killed before it is killed itself. What the stack
        # says of its parts may be out of date: one may just have been started again.
        for pid in children_of(supervisor):
            self.log.kills += [Kill(at, "worker", pid, _name_of(w)) for w in children_of(pid)]
        tree = tree_of(supervisor)
        kill = self._note(Kill(at, "stack", supervisor), random.sample(tree, len(tree)))
        down_at = now()
        while any(started(pid) for pid in tree):  # until then the API has its port
            time.sleep(0.01)
        self.stop()
        away()
        self.start()
        self.log.stops.append((down_at, now()))
        return kill

    def _note(self, kill: Kill, victims: list[int]) -> Kill:
        self.log.kills.append(kill)
        for victim in victims:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        return kill


def _name_of(worker: int) -> str:
    """The name in the records of the worker process *worker*."""
    return f"{os.uname().nodename}-{worker}"
