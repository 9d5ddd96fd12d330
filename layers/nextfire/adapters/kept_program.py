"""A program under its keeper, from the executor's side: start it, supervise it, end it."""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from enum import IntEnum
from math import inf

from nextfire.adapters.script_streams import Pump, Source, Stream
from nextfire.domain.ports import Verdict

_log = logging.getLogger(__name__)

_ASK_EVERY = 0.2  # seconds, like all of these
_STARTED_WITHIN = 30.0
_GONE_WITHIN = 10.0
_REPORTS_AT_MOST = 16 * 1024
"""Bytes that a keeper reports; it needs about 1,000."""


class KeptProgram:
    """A program under its keeper, as the executor knows it."""

    def __init__(
        self,
        control: socket.socket,
        *,
        kill: Callable[[int], None],
        kill_launcher: Callable[[], None],
        sweep: Callable[[KeptProgram], None],
    ) -> None:
        """Build.

        Args:
            control: The socket to the keeper.
            kill: SIGKILL to the process of that number, if it is a keeper.
            kill_launcher: SIGKILL to the launcher that was asked for it.
            sweep: Called once the keeper is gone, to kill what it left in case it was killed and
                no launcher was there to do that.
        """
        self._control = control
        self._kill = kill
        self.kill_launcher = kill_launcher
        self._sweep = sweep
        self._over = False
        self.keeper: int | None = None
        self._report = b""
        self._heard = 0
        self._reports = Stream(control.fileno(), self._hear)
        self.sources: list[Source] = [self._reports]
        self.started = False
        self.exited = False
        self.left_nothing = False
        """Whether the keeper said that nothing of it lives."""
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
        if self.keeper is not None and not self.ended:  # until then its number is its own
            self._kill(self.keeper)

    def end(self) -> None:
        """Kill what is left of it, and wait until it is gone. May be called again."""
        if self._over:
            return
        self.kill()
        if not self._is_gone(_GONE_WITHIN):
            _log.warning("keeper %s does not come to its end; it is killed", self.keeper)
            self.kill_keeper()
        while not self._is_gone(_GONE_WITHIN):
            _log.error(
                "the launcher does not tell that keeper %s is gone; it is killed", self.keeper
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

    def _hear(self, data: bytes) -> None:
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
        self._heard += len(data)
        if self._heard > _REPORTS_AT_MOST:
            # It is not what it should be: nothing that it says counts.
            self.left_nothing, self.exit_code, self._report = False, None, b""
            self.kill_keeper()


class _Stage(IntEnum):
    """How far the end of a program has come."""

    RUNNING = 0
    TERMINATED = 1
    KILLED = 2
    KEEPER_KILLED = 3
    LAUNCHER_KILLED = 4


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
        _Stage.KEEPER_KILLED: (kept.kill_keeper, _GONE_WITHIN),
        _Stage.LAUNCHER_KILLED: (kept.kill_launcher, inf),
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
            stage = _Stage(stage + 1) if started or stage else _Stage.KILLED
        if stage is not was:
            act, until_next = acts[stage]
            act()
            act_at = now + until_next
    return timed_out, stopped


def in_memory(data: bytes, stack: ExitStack) -> int:
    """A descriptor of a file of *data*, which is in no folder; *stack* closes it."""
    descriptor = os.memfd_create("nextfire", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
