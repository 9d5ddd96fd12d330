"""The processes of the local stack: recorded when they start, ended by their ids.

The record outlives its process, so that a later `up` or `down` ends the processes that a killed one
left. An id is valid only together with the start time of its process. Processes started by others
are ended only if their working or temporary folder belongs to the stack: a cloned repository can
contain such a record.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nextfire.client.folder import write_private
from nextfire_cli.local.state import tail

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PROC = Path("/proc")
_Handlers = dict[signal.Signals, Callable[[int, FrameType | None], object]]


class InterruptedBySignal(SystemExit):
    """SIGTERM or SIGHUP came; raised so that `finally` blocks run before the process ends."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)


@contextlib.contextmanager
def interrupts_raised() -> Generator[None]:
    """Within, SIGTERM and SIGHUP raise `InterruptedBySignal` as Ctrl-C raises KeyboardInterrupt.

    SIGINT does so in the background too: shells without job control start background commands with
    SIGINT ignored. SIGHUP stays ignored if it is: `nohup` asks for that. Does nothing outside the
    main thread, where Python takes no signals.
    """

    def interrupt(signum: int, _frame: object) -> None:
        raise InterruptedBySignal(signum)

    handlers: _Handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: interrupt}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = interrupt
    with _handled(handlers):
        yield


@contextlib.contextmanager
def interrupts_deferred() -> Generator[None]:
    """Within, interrupts wait; the first of them is raised again at the end."""
    pending: list[int] = []
    handlers: _Handlers = {
        sig: lambda signum, _frame: pending.append(signum)
        for sig in _INTERRUPTS
        if signal.getsignal(sig) is not signal.SIG_IGN
    }
    try:
        with _handled(handlers):
            yield
    finally:
        if pending:
            signal.raise_signal(pending[0])


@contextlib.contextmanager
def _handled(handlers: _Handlers) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sig: signal.signal(sig, handler) for sig, handler in handlers.items()}
    try:
        yield
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def started(pid: int, *, zombies: bool = False) -> str | None:
    """The start time of process *pid*, which identifies it together with *pid*; None if ended.
    *zombies*: also of a child that has ended and was not waited for.
    """
    if _PROC.joinpath("self").exists():
        fields = _stat(pid)
        return None if fields is None or (fields[0] == "Z" and not zombies) else fields[19]
    listed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    state, _, start = listed.stdout.strip().partition(" ")
    return start.strip() if start and (zombies or not state.startswith("Z")) else None


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the third on: state, parent, group, session, tty."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


class ProcessRecord(BaseModel):
    """A process that we started. It leads a process group."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: Annotated[int, Field(strict=True, ge=2)]
    """Signals to 1, 0 and below reach many processes."""
    started: str

    @property
    def alive(self) -> bool:
        return started(self.pid) == self.started


_Records = TypeAdapter(list[ProcessRecord])


class Processes:
    """Starts, records and ends processes; *folder* is where all of them keep their files."""

    def __init__(self, record: Path, *, folder: Path) -> None:
        self._record = record
        self._folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._spawned: list[ProcessRecord] = []

    def spawn(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        log: Path,
    ) -> subprocess.Popen[bytes]:
        """Start *command* in its own session; append its output to *log*."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with interrupts_deferred(), log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._children[process.pid] = process
            born = started(process.pid, zombies=True)  # it may have ended already
            if born is not None:
                record = ProcessRecord(name=name, pid=process.pid, started=born)
                self._write([*self.recorded(), record])
                self._spawned.append(record)
        return process

    def recorded(self) -> list[ProcessRecord]:
        """All processes that were started and not yet ended by `end`, dead ones included."""
        try:
            found = _Records.validate_json(self._record.read_bytes())
        except (FileNotFoundError, ValidationError):
            found = []  # `end_strays` finds processes without it
        return [*found, *(record for record in self._spawned if record not in found)]

    def deaths(self, logs: Path) -> list[str]:
        """The processes that ended, except by `end`: each with its name, the path of its log in
        *logs*, and the last lines of the log.
        """
        dead = [each.name for each in self.recorded() if not each.alive]
        found = [(name, logs / f"{name}.log") for name in dead]
        return [f"{name} has ended unexpectedly; see {log}:\n{tail(log)}" for name, log in found]

    def status(self, record: ProcessRecord) -> int | None:
        """The exit status of a child that has ended, negative for a signal; None if unknown."""
        child = self._children.get(record.pid)
        return None if child is None else child.poll()

    def end(self, records: Iterable[ProcessRecord], *, grace: timedelta) -> list[ProcessRecord]:
        """SIGTERM to each leader, and after *grace* SIGKILL to the rest of its group. No signal
        to processes that are not ours or have ended: `end_strays` finds what they left.

        Returns:
            Those that did not end within *grace*.
        """
        with interrupts_deferred():
            ending = list(records)
            ours = [record for record in ending if self._started(record)]
            for record in ours:
                if record.alive:
                    _send(record.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace.total_seconds()
            while any(record.alive for record in ours) and time.monotonic() < deadline:
                time.sleep(0.02)
            late = [record for record in ours if record.alive]
            for record in ours:
                # A live leader of another start time means that the id, and so the group, is new.
                if started(record.pid) in {None, record.started}:
                    _send_group(record.pid, signal.SIGKILL)
                if child := self._children.pop(record.pid, None):
                    child.wait()
            self._spawned = [record for record in self._spawned if record not in ending]
            self._write([record for record in self.recorded() if record not in ending])
        return late

    def end_strays(self) -> None:
        """SIGKILL processes that ours started in their own sessions and left behind.

        They have a working or temporary folder within our folder, and no terminal. Does nothing
        without /proc.
        """
        for entry in _PROC.glob("[0-9]*"):
            fields = _stat(pid := int(entry.name))
            if fields is not None and fields[4] == "0" and self._is_ours(entry):
                _send(pid, signal.SIGKILL)

    def _started(self, record: ProcessRecord) -> bool:
        """Whether the process of *record* was started here, or for this stack by an earlier one."""
        if record.pid in self._children:
            return True
        if not _PROC.joinpath("self").exists():
            return record.alive
        return record.alive and self._is_ours(_PROC / str(record.pid))

    def _is_ours(self, process: Path) -> bool:
        folder = self._folder.resolve()
        try:
            cwd = (process / "cwd").readlink()
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        # A new process may have no environment yet, but has its folder.
        return folder in (cwd, *cwd.parents) or f"TMPDIR={folder}".encode() in environment

    def _write(self, records: Sequence[ProcessRecord]) -> None:
        if not records:
            self._record.unlink(missing_ok=True)
            return
        self._record.parent.mkdir(parents=True, exist_ok=True)
        write_private(self._record, _Records.dump_json(list(records)).decode())


def _send(pid: int, sig: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sig)


def _send_group(group: int, sig: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sig)
