"""The executor's handle of a program under a keeper: start, supervise, end."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from enum import IntEnum
from math import inf

from nextfire.adapters.scripts.script_streams import Pump, Source, Stream
from nextfire.domain.ports.scripts import Directive

_log = logging.getLogger(__name__)

_ASK_EVERY = 0.2  # seconds, like the next two
_STARTED_WITHIN = 30.0
_GONE_WITHIN = 10.0
_REPORTS_AT_MOST = 16 * 1024
"""Maximum bytes of a keeper's reports; about 1,000 are needed."""


class SupervisedProgram:
    """The executor's handle of a program under its keeper."""

    def __init__(
        self,
        control: socket.socket,
        *,
        kill: Callable[[int], None],
        kill_launcher: Callable[[], None],
        sweep: Callable[[SupervisedProgram], None],
    ) -> None:
        """Build.

        Args:
            control: The socket to the keeper.
            kill: Sends SIGKILL to the process with this pid, if it is a keeper.
            kill_launcher: Sends SIGKILL to the launcher that started the keeper.
            sweep: Called after the keeper is gone. Kills the processes that a killed keeper left,
                if no launcher did.
        """
        self._control = control
        self._kill = kill
        self.kill_launcher = kill_launcher
        self._sweep = sweep
        self._over = False
        self.keeper: int | None = None
        self._report = b""
        self._received = 0
        self._reports = Stream(control.fileno(), self._read_reports)
        self.sources: list[Source] = [self._reports]
        self.started = False
        self.exited = False
        self.left_nothing = False
        """Whether the keeper reported that no process of the program is left."""
        self.exit_code: int | None = None
        self.not_started: str | None = None

    @property
    def ended(self) -> bool:
        """Whether no process of the program is left, or its keeper is gone."""
        return self._reports.ended

    def terminate(self) -> None:
        """Send SIGTERM to the program's process group."""
        self._order(b"T")

    def kill(self) -> None:
        """Send SIGKILL to all processes of the program."""
        self._order(b"K")

    def kill_keeper(self) -> None:
        """Send SIGKILL to an unresponsive keeper. Its death kills the program."""
        if self.keeper is not None and not self.ended:  # until then the pid cannot be reused
            self._kill(self.keeper)

    def end(self) -> None:
        """Kill all processes of the program and wait until they are gone. Idempotent."""
        if self._over:
            return
        self.kill()
        if not self._is_gone(_GONE_WITHIN):
            _log.warning("keeper %s does not exit; killing it", self.keeper)
            self.kill_keeper()
        while not self._is_gone(_GONE_WITHIN):
            _log.error(
                "the launcher does not report that keeper %s is gone; killing the launcher",
                self.keeper,
            )
            self.kill_launcher()
        self._over = True
        self._sweep(self)

    def _is_gone(self, within: float) -> bool:
        until = time.monotonic() + within
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while not self.ended and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                self._reports.ready(0)
        return self.ended

    def _order(self, order: bytes) -> None:
        with suppress(OSError):
            self._control.send(order, socket.MSG_DONTWAIT)

    def _read_reports(self, data: bytes) -> None:
        *lines, self._report = (self._report + data).split(b"\n")
        for line in lines:
            match line.decode(errors="replace").partition(" "):
                case ("P", _, number):
                    with suppress(ValueError):
                        self.keeper = int(number)
                case ("S", _, _):
                    self.started = True
                case ("E", _, reason):
                    self.not_started = reason
                    self.left_nothing = True
                case ("D", _, _):
                    self.exited = True
                case ("X", _, code):
                    self.left_nothing = True
                    with suppress(ValueError):
                        self.exit_code = int(code)
        self._received += len(data)
        if self._received > _REPORTS_AT_MOST:
            # The reports do not come from an intact keeper: ignore all of them.
            self.left_nothing, self.exit_code, self._report = False, None, b""
            self.kill_keeper()


class _Stage(IntEnum):
    """Escalation stages of ending a program."""

    RUNNING = 0
    TERMINATED = 1
    KILLED = 2
    KEEPER_KILLED = 3
    LAUNCHER_KILLED = 4


def supervise(
    kept: SupervisedProgram,
    pump: Pump,
    timeout: timedelta,
    grace: float,
    ask: Callable[[], Directive],
) -> tuple[bool, Directive]:
    """Pump the program's output and poll *ask* until the program has ended.

    Args:
        kept: The program.
        pump: Reads the program's output.
        timeout: Maximum run time, counted from the start of the program.
        grace: Seconds between SIGTERM and SIGKILL.
        ask: Returns whether the run may continue.

    Returns:
        Whether the program timed out, and the verdict that ended it.
    """
    acts = {
        _Stage.TERMINATED: (kept.terminate, grace),
        _Stage.KILLED: (kept.kill, _GONE_WITHIN),
        _Stage.KEEPER_KILLED: (kept.kill_keeper, _GONE_WITHIN),
        _Stage.LAUNCHER_KILLED: (kept.kill_launcher, inf),
    }
    stage, timed_out, stopped, started = _Stage.RUNNING, False, Directive.CONTINUE, False
    ask_at = time.monotonic() + _ASK_EVERY
    act_at = time.monotonic() + _STARTED_WITHIN
    while not kept.ended:
        pump.step(min(ask_at, act_at) - time.monotonic())
        was, now = stage, time.monotonic()
        if kept.started and not started:
            started = True
            act_at = now + timeout.total_seconds()
        if kept.exited and stage < _Stage.KILLED:
            # The program exited by itself; its keeper kills the remaining processes.
            stage = was = _Stage.KILLED
            act_at = now + _GONE_WITHIN
        if now >= ask_at:
            verdict = ask()
            now = time.monotonic()
            ask_at = now + _ASK_EVERY
            if verdict is Directive.LEASE_LOST and stage < _Stage.KILLED:
                stage, stopped = _Stage.KILLED, verdict
            elif verdict is not Directive.CONTINUE and stage is _Stage.RUNNING:
                stage, stopped = _Stage.TERMINATED, verdict
        if stage is was and now >= act_at:
            timed_out = timed_out or (stage is _Stage.RUNNING and started)
            stage = _Stage(stage + 1) if started or stage else _Stage.KILLED
        if stage is not was:
            act, until_next = acts[stage]
            act()
            act_at = now + until_next
    if stopped is Directive.CONTINUE and not timed_out and kept.exit_code == -signal.SIGTERM:
        # A service manager may stop all processes of a service at once, the script before us.
        time.sleep(_ASK_EVERY)
        stopped = ask()
    return timed_out, stopped


def in_memory(data: bytes, stack: ExitStack) -> int:
    """A descriptor of an anonymous in-memory file with *data*. *stack* closes it."""
    descriptor = os.memfd_create("nextfire", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
