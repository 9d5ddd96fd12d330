"""The ports in memory: those of `nextfire.testing.memory`, and those that only these tests use.

Each passes the contract suite of its adapter (tests/integration).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, TypeVar

from nextfire.domain.chain import Batch
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MINUTE, parse_instant
from nextfire.domain.masking import Masker
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor
from nextfire.testing.memory.clock import Clock
from nextfire.testing.memory.control import MemoryControlStore
from nextfire.testing.memory.due import MemoryDueStore
from nextfire.testing.memory.endpoints import MemoryEndpointStore
from nextfire.testing.memory.executors import InlineExecutor
from nextfire.testing.memory.faults import Faults, Killed
from nextfire.testing.memory.files import MemoryEvents, MemoryRunFiles
from nextfire.testing.memory.jobs import MemoryJobStore
from nextfire.testing.memory.joins import MemoryJoinStore
from nextfire.testing.memory.keys import MemoryKeyStore
from nextfire.testing.memory.notices import MemoryNotices
from nextfire.testing.memory.overview import MemoryRunOverview, MemoryRunScan, MemorySegmentStore
from nextfire.testing.memory.queues import (
    MemoryDeadLetters,
    MemoryDelivery,
    MemoryFifo,
    MemoryRunQueue,
)
from nextfire.testing.memory.requests import MemoryBucketStore, MemoryRequestStore
from nextfire.testing.memory.runs import MemoryRunStore
from nextfire.testing.memory.scripts import MemoryScriptShelf, MemoryScriptStore
from nextfire.testing.memory.stores import Stores, memory_stores
from nextfire.testing.memory.values import MemorySecrets

__all__ = [
    "Clock",
    "Faults",
    "InlineExecutor",
    "Killed",
    "LateExecutor",
    "MemoryAuditLog",
    "MemoryBucketStore",
    "MemoryControlStore",
    "MemoryDeadLetters",
    "MemoryDelivery",
    "MemoryDueStore",
    "MemoryEndpointStore",
    "MemoryEvents",
    "MemoryFifo",
    "MemoryJobStore",
    "MemoryJoinStore",
    "MemoryJournal",
    "MemoryKeyStore",
    "MemoryNotices",
    "MemoryRequestStore",
    "MemoryRunFiles",
    "MemoryRunOverview",
    "MemoryRunQueue",
    "MemoryRunScan",
    "MemoryRunStore",
    "MemoryScriptRunner",
    "MemoryScriptShelf",
    "MemoryScriptStore",
    "MemorySecrets",
    "MemorySegmentStore",
    "MovingClock",
    "Script",
    "Stores",
    "memory_stores",
    "raise_killed",
    "show",
]


T = TypeVar("T")

_NO_WAIT = timedelta()


def raise_killed() -> NoReturn:
    """The process dies here: for `Faults.call_before_next`, or for a script meanwhile."""
    raise Killed


class MovingClock(Protocol):
    """The clock on which a script's time passes."""

    def now(self) -> datetime: ...

    def advance(self, by: timedelta = ..., /, **units: float) -> object: ...


class _LateFuture(Future[T]):
    def __init__(self, do: Callable[[], T]) -> None:
        super().__init__()
        self._do = do

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            try:
                self.set_result(self._do())
            except Exception as error:  # noqa: BLE001 — as an executor does
                self.set_exception(error)
        return super().result(timeout)


class LateExecutor(Executor):
    """Runs each call only when its result is requested: the reverse order of concurrent calls."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return _LateFuture(lambda: fn(*args, **kwargs))


def show(deliveries: Sequence[MemoryDelivery]) -> list[str]:
    """Make *deliveries* visible, as `SqsInbox.show` does."""
    for delivery in deliveries:
        delivery.hide(timedelta())
    return []


class MemoryJournal:
    """`Journal`. `held`: the listed messages, in the order of reception."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def hold(self, deliveries: Sequence[Any]) -> None:
        self.held += deliveries

    def release(self, deliveries: Sequence[Any]) -> None:
        self.held = [held for held in self.held if all(held is not each for each in deliveries)]


class MemoryAuditLog:
    """`AuditLog`. `batches`: the appended batches."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._lock = threading.Lock()

    def last(self) -> Batch | None:
        return self.batches[-1] if self.batches else None

    def ids_since(self, last: Batch | None, since: datetime) -> set[str]:
        number = last.number if last else 0
        return {
            event["id"]
            for batch in self.batches[:number]
            if parse_instant(batch.recorded_at) >= since
            for event in batch.events
        }

    def append(self, batch: Batch) -> bool:
        with self._lock:
            if batch.number != len(self.batches) + 1:
                return False
            self.batches.append(batch)
            return True


@dataclass(slots=True)
class Script:
    """How a script behaves: it runs for `lasts`, calls `meanwhile`, then exits.

    `frozen`: the supervisor is suspended together with the script, as in a paused machine, and asks
    for verdicts only when the script has ended.
    """

    exit_code: int = 0
    lasts: timedelta = _NO_WAIT
    meanwhile: Callable[[], object] = lambda: None
    frozen: bool = False
    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    permanent: bool = False
    unavailable: bool = False
    saves: bytes | None = None
    result: bytes | None = None

    def ended(
        self, exit_code: int, *, timed_out: bool = False, stopped: Directive = Directive.CONTINUE
    ) -> ScriptExit:
        """The exit of the script for any cause, with what it printed and its result."""
        return ScriptExit(exit_code, self.stdout, self.stderr, timed_out, stopped, self.result)

    def masked(self, masker: Masker) -> Script:
        """The script with its output and result masked, as a runner shows them."""
        result = None if self.result is None else masker.json(self.result)
        stdout, stderr = masker.text(self.stdout), masker.text(self.stderr)
        return replace(self, stdout=stdout, stderr=stderr, result=result)


@dataclass(slots=True)
class MemoryScriptRunner:
    """`ScriptRunner` that plays the next of `scripts`, or a successful one. It asks for a verdict
    every second.

    `found`: the checkpoint that each script found; `refused`: the answer to each saved checkpoint.
    """

    clock: MovingClock
    scripts: deque[Script] = field(default_factory=deque)
    calls: list[ScriptCall] = field(default_factory=list)
    found: list[bytes | None] = field(default_factory=list)
    refused: list[str | None] = field(default_factory=list)

    def _save(self, checkpoint: bytes, supervisor: Supervisor) -> str | None:
        """As `nextfire_job` does it: again for a minute while the store does not answer."""
        until = self.clock.now() + MINUTE
        while True:
            try:
                return supervisor.save(checkpoint)
            except UnavailableError as error:
                if self.clock.now() >= until:
                    return str(error)
                supervisor.ask()
                self.clock.advance(seconds=1)

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        script = (self.scripts.popleft() if self.scripts else Script()).masked(call.masker)
        ask = supervisor.ask
        self.calls.append(call)
        self.found.append(supervisor.checkpoint())
        if script.error is not None:
            return ScriptExit(
                None,
                "",
                "",
                error=script.error,
                permanent=script.permanent,
                unavailable=script.unavailable,
            )
        if script.stdout:
            supervisor.output("stdout", script.stdout.encode())
        if script.saves is not None:
            self.refused.append(self._save(script.saves, supervisor))
        started_at = self.clock.now()
        if script.frozen:
            self.clock.advance(script.lasts)
        while (worked := self.clock.now() - started_at) < script.lasts:
            if (verdict := ask()) is not Directive.CONTINUE:
                return script.ended(-15, stopped=verdict)
            if worked >= call.timeout:
                return script.ended(-9, timed_out=True)
            self.clock.advance(seconds=1)
        script.meanwhile()
        if (verdict := ask()) is not Directive.CONTINUE:
            return script.ended(-15, stopped=verdict)
        return script.ended(script.exit_code)
