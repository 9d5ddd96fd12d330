"""A program under its keeper, from the executor's side: start it, supervise it, end it."""

from __future__ import annotations

import logging
import marshal
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from enum import IntEnum
from math import inf
from pathlib import Path
from types import ModuleType

from nextfire.adapters import process_table
from nextfire.adapters.script_streams import Pump, Source, Stream
from nextfire.domain.ports import Verdict

_log = logging.getLogger(__name__)

_ASK_EVERY = 0.2  # seconds, like all of these
_STARTED_WITHIN = 30.0
_GONE_WITHIN = 10.0


def compiled(*modules: ModuleType) -> bytes:
    """The code of *modules*, by name, for `keeper.BOOT`."""
    code = []
    for module in modules:
        file = Path(str(module.__file__))
        code.append((module.__name__, compile(file.read_text(encoding="utf-8"), file, "exec")))
    return marshal.dumps(code)


class KeptProgram:
    """A program under its keeper, as the executor knows it."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, *, adopts: bool
    ) -> None:
        self._process = process
        self._control = control
        self._adopts = adopts
        self._report = b""
        self._reports = Stream(control.fileno(), self._hear)
        self.sources: list[Source] = [self._reports]
        self.started = False
        self.exited = False
        self.exit_code: int | None = None
        self.not_started: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing of it lives, or its keeper is gone."""
        return self._reports.ended

    def terminate(self) -> None:
        """SIGTERM to the program's group."""
        self._order(b"T")

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self._order(b"K")

    def kill_keeper(self) -> None:
        """SIGKILL to a keeper that does not answer, and to the program by its death."""
        self._process.kill()

    def end(self) -> None:
        """Kill what is left of it, and wait until it is gone. May be called again."""
        if self._process.returncode is not None:
            return
        self.kill()
        until = time.monotonic() + _GONE_WITHIN
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while not self.ended and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                self._reports.ready(0)
        if not self.ended:
            _log.warning("keeper %d does not come to its end; it is killed", self._process.pid)
            self._process.kill()
        with _spawning:
            self._process.wait()
            _keepers.discard(self._process.pid)
            if self._adopts:
                # Whatever it reported: the script may have killed it at any moment.
                _kill_adopted()

    def _order(self, order: bytes) -> None:
        with suppress(OSError):
            self._control.send(order, socket.MSG_DONTWAIT)

    def _hear(self, data: bytes) -> None:
        *lines, self._report = (self._report + data).split(b"\n")
        for line in lines:
            match line.decode(errors="replace").partition(" "):
                case ("S", _, _):
                    self.started = True
                case ("E", _, reason):
                    self.not_started = reason
                case ("D", _, _):
                    self.exited = True
                case ("X", _, code):
                    with suppress(ValueError):
                        self.exit_code = int(code)


class _Stage(IntEnum):
    """How far the end of a program has come."""

    RUNNING = 0
    TERMINATED = 1
    KILLED = 2
    KEEPER_KILLED = 3


def supervise(
    kept: KeptProgram, pump: Pump, timeout: timedelta, grace: float, ask: Callable[[], Verdict]
) -> tuple[bool, Verdict]:
    """Read and ask until the program has ended.

    Returns:
        Whether it timed out, and the verdict that ended it.
    """
    acts = {
        _Stage.TERMINATED: (kept.terminate, grace),
        _Stage.KILLED: (kept.kill, _GONE_WITHIN),
        _Stage.KEEPER_KILLED: (kept.kill_keeper, inf),
    }
    stage, timed_out, stopped, started = _Stage.RUNNING, False, Verdict.GO_ON, False
    ask_at = time.monotonic() + _ASK_EVERY
    act_at = time.monotonic() + _STARTED_WITHIN
    while not kept.ended:
        pump.step(min(ask_at, act_at) - time.monotonic())
        was, now = stage, time.monotonic()
        if kept.started and not started:
            started = True
            act_at = now + timeout.total_seconds()
        if kept.exited and stage < _Stage.KILLED:
            # It ended by itself, and its keeper kills the others.
            stage = was = _Stage.KILLED
            act_at = now + _GONE_WITHIN
        if now >= ask_at:
            verdict = ask()
            now = time.monotonic()
            ask_at = now + _ASK_EVERY
            if verdict is Verdict.LEASE_LOST and stage < _Stage.KILLED:
                stage, stopped = _Stage.KILLED, verdict
            elif verdict is not Verdict.GO_ON and stage is _Stage.RUNNING:
                stage, stopped = _Stage.TERMINATED, verdict
        if stage is was and now >= act_at:
            timed_out = timed_out or (stage is _Stage.RUNNING and started)
            stage = _Stage(stage + 1) if started else _Stage.KILLED
        if stage is not was:
            act, until_next = acts[stage]
            act()
            act_at = now + until_next
    return timed_out, stopped


_spawning = threading.Lock()
_keepers: set[int] = set()


def spawn(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    pass_fds: Collection[int],
    env: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    with _spawning:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            env=env,
            cwd="/",
            start_new_session=True,
        )
        _keepers.add(process.pid)
    return process


def _kill_adopted() -> None:
    """Kill what a keeper left that was killed itself, by a script of the same user.

    It is ours now: this process is the next subreaper. What living keepers keep is theirs, what
    the executor starts by itself is of its session; so all others are of dead keepers.
    """
    own, session = os.getpid(), os.getsid(0)
    until = time.monotonic() + _GONE_WITHIN
    while time.monotonic() < until:
        children: dict[int, list[int]] = {}
        strangers = []
        for pid, _, fields in process_table.processes():
            parent = int(fields[1])
            children.setdefault(parent, []).append(pid)
            if parent == own and int(fields[3]) != session and pid not in _keepers:
                strangers.append(pid)
        if not strangers:
            return
        family = list(strangers)
        for pid in family:
            family += children.get(pid, [])
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                with suppress(OSError):
                    os.kill(pid, number)
        for pid in strangers:
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def in_memory(data: bytes, stack: ExitStack) -> int:
    """A descriptor of a file of *data*, which is in no folder; *stack* closes it."""
    descriptor = os.memfd_create("nextfire", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
