"""The parts of a history of two versions: a watcher, a worker, an auditor, an API request.

They run under either version, so this module imports only what both have. They are built by the
version's own wiring, with the clock and the scripts of the version's test kit.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

from nextfire.domain.quotas import NO_QUOTAS
from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.script.runner import ScriptTarget
from nextfire.testing.api import BUCKET, client
from nextfire.testing.kernel import SECOND, Actor, Kernel, current
from nextfire.testing.memory.notices import MemoryNotices
from nextfire.testing.scripts import KitRunner, Scripts
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.serve_pool import StopWaiting, Threads
from nextfire.wiring import executor as wiring_executor
from nextfire.wiring import watcher as wiring_watcher
from nextfire.wiring.worker import WorkerPorts, build_worker

# The modules in which both versions have them.
ExecutorPorts: Any = vars(wiring_executor)["ExecutorPorts"]
WatcherPorts: Any = vars(wiring_watcher)["WatcherPorts"]
START = datetime(2026, 5, 24, 11, 59, 50, tzinfo=UTC)
POOL = "default"
LEASE = timedelta(seconds=12)
_SAVES = 0.3
"""How probable it is that a script saves a checkpoint."""
_LIFE = timedelta(seconds=125)
_POLL = timedelta(milliseconds=400)


class Simulated(Protocol):
    """A process. *birth*: see `History.start`."""

    birth: Mapping[str, Any]
    dice: Random
    kernel: Kernel
    actor: Actor
    notices: MemoryNotices
    stores: Any

    def port(self, name: str, port: Any = None) -> Any:
        """The port *name*, whose calls are steps; *port*: default, the store of that name."""

    def note(self, *event: str) -> None:
        """Report an event to the history."""


def watcher(process: Simulated) -> None:
    ports = WatcherPorts(
        **{name: process.port(name) for name in ("jobs", "due", "runs", "queue", "control")},
        clock=process.actor,
        executor=process.actor,
        lanes=process.actor,
    )
    config = wiring_watcher.WatcherConfig(0, process.actor.name, [0], Shares())
    life, task = wiring_watcher.build_watcher(ports, config, process.notices), current()
    process.actor.on_stop = lambda: process.kernel.interrupt(task, SystemExit())
    try:
        while True:
            life.live(_LIFE)
    except SystemExit:  # as functions/embedded/parts.py
        life.end()


def worker(process: Simulated) -> None:
    scripts, actor = Scripts(), process.actor
    scripts.functions["report"] = lambda run: _script(process, run)
    script = ScriptTarget(
        scripts=scripts,
        bucket=BUCKET,
        runner=KitRunner(scripts, actor),
        secrets=process.port("secrets"),
        job_role=None,
        clock=actor,
    )
    executor = ExecutorPorts(
        **{name: process.port(name) for name in ("jobs", "runs", "due", "files", "queue")},
        **{name: process.port(name) for name in ("dead_letters", "events", "joins")},
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
        "inbox": _Inbox(process.stores.inbox, process),
        "threads": Threads(
            slots=actor,
            size=2,
            background=actor,
            wait=process.kernel.wait,
            monotonic=lambda: process.kernel.at / SECOND,
        ),
    }
    others = {each.name: nothing for each in fields(WorkerPorts) if each.name not in given}
    ports: Any = WorkerPorts(**given, **others)  # type: ignore[arg-type]
    worker = build_worker(ports, ExecutorConfig(actor.name, POOL, LEASE), process.notices)
    task = current()

    def stop() -> None:
        if worker.stop():
            process.kernel.interrupt(task, StopWaiting())

    actor.on_stop = stop
    worker.serve()


def _script(process: Simulated, run: Any) -> dict[str, str]:
    """A script with a random duration and outcome."""
    dice, attempt = process.dice, str(run.attempt)
    process.note("SCRIPT begins", run.execution_id, attempt, str(run.checkpoint))
    for parent in run.upstream.values():
        if parent["state"] == "SUCCEEDED" and parent["result"] != {"of": parent["executionId"]}:
            process.note("DEFECT", f"{run.execution_id} was passed {parent}")
    try:
        if dice.random() < _SAVES:
            process.note("SCRIPT saves", run.execution_id, attempt)
            run.save_checkpoint(attempt)
            process.note("SCRIPT saved", run.execution_id, attempt)
        run.sleep(dice.choice(process.birth["lasts"]))
    finally:
        process.note("SCRIPT ends", run.execution_id, attempt)
    if code := dice.choice(process.birth["exits"]):
        raise SystemExit(code)
    return {"of": run.execution_id}


def auditor(process: Simulated) -> None:
    names = ("jobs", "due", "runs", "queue", "control", "joins")
    audit = AuditJobs(
        **{name: process.port(name) for name in names},
        clock=process.actor,
        executor=process.actor,
        pools=[POOL],
        write_shards=1,
        read_shards=1,
        every=timedelta(days=1),
    )
    until = process.actor.now() + timedelta(minutes=14)
    for report in audit.continue_audit(until, restart=True):
        process.note("AUDIT", str(report.repaired), str(report))


def api(process: Simulated) -> None:
    """Make the request (method of the client, arguments) of *birth*."""
    optional = {"advance": process.actor.sleep}
    known = inspect.signature(client).parameters
    stores: Any = process.stores
    method, args, keywords = process.birth["request"]
    try:
        user = client(
            stores,
            lambda _, name: process.port(name),
            process.actor,  # type: ignore[arg-type]
            {POOL: "scripts"},
            max_timeout=timedelta(hours=11),
            quotas=NO_QUOTAS,
            **{name: value for name, value in optional.items() if name in known},
        )
        answer = getattr(user, method)(*args, **keywords)
    except Exception as error:  # noqa: BLE001 — the answer
        process.note("ANSWER", type(error).__name__, str(error))
    else:
        process.note("ANSWER", "OK", getattr(answer, "execution_id", getattr(answer, "job_id", "")))


class _Inbox:
    """The inbox of *process*, which looks less often for messages than that of the stack."""

    def __init__(self, inbox: Any, process: Simulated) -> None:
        self._port = process.port("inbox", inbox)
        self._process = process

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> list[Any]:
        for poll in range(wait // _POLL + 1):
            if poll:
                self._process.actor.sleep(_POLL)
            received = self._port.receive(most, wait=timedelta(), hidden_for=hidden_for)
            if received:
                return [self._process.port("delivery", each) for each in received]
        return []

    def acknowledge(self, deliveries: Any) -> Any:
        return self._port.acknowledge([each.port for each in deliveries])

    def show(self, deliveries: Any) -> Any:
        return self._port.show([each.port for each in deliveries])


PARTS = {"watcher": watcher, "worker": worker, "auditor": auditor, "api": api}
