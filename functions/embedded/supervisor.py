"""The supervisor of the embedded stack: starts its parts as child processes, kills those that hang,
and starts those that die again.

It imports the code of all parts once and forks them, so that the stack starts quickly and the parts
share memory. If the supervisor dies, the kernel ends the parts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from functions.embedded.log_files import rotate_logs
from functions.embedded.pulse import Pulse
from functions.embedded.restarts import MAX_PAUSE, cause_of_death, pause_before_restart
from nextfire.adapters.scripts.confinement import PR_SET_PDEATHSIG, prctl
from nextfire.dataclass import dataclass, field

_STOPS = (signal.SIGTERM, signal.SIGINT)
_WAITED_FOR = {*_STOPS, signal.SIGCHLD}
_GRACE = 10.0
"""Seconds that the parts have to stop. Then they are killed."""
_LONGEST_WAIT = 10.0
"""Seconds after which the sizes of the logs, and the pulses of the parts, are checked again."""
_HUNG = "killed because it hung for a minute"


@dataclass(frozen=True, slots=True)
class Part:
    """A part: what its process calls. `dies_by`: the signal that it gets if the supervisor dies.
    `pulse`: its process, or a child of that, is killed if it stops beating; None: never.
    """

    name: str
    run: Callable[[], int]
    dies_by: signal.Signals = signal.SIGKILL
    pulse: Pulse | None = None


@dataclass(slots=True)
class _State:
    part: Part
    pid: int | None = None
    restart_at: float = 0.0
    deaths: list[float] = field(default_factory=list)
    last_death: str | None = None
    hung: bool = False


class PartsSupervisor:
    """Runs *parts* until SIGTERM or SIGINT, or until one of them dies too often.

    Args:
        parts: The parts, in the order of their start. They stop in the reverse order.
        logs: Folder of the parts' output, one file each, which `rotate_logs` bounds.
        report: Called with the state of the parts after each change, by name: `pid` (None while it
            does not run), `deaths`, and `lastDeath` in words.
    """

    def __init__(
        self, parts: Sequence[Part], *, logs: Path, report: Callable[[Mapping[str, object]], None]
    ) -> None:
        self._states = [_State(part) for part in parts]
        self._logs = logs
        self._report = report
        self._reported = True

    def run(self) -> int:
        """Supervise. Returns the exit status: 0 if stopped, 1 if a part died too often."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        try:
            while True:
                self._start_due()
                self._kill_hanging()
                rotate_logs(self._logs)
                number = signal.sigtimedwait(_WAITED_FOR, self._until_restart())
                if number is not None and number.si_signo in _STOPS:
                    return 0
                if not self._reap():
                    return 1
        finally:
            self._stop()

    def _start_due(self) -> None:
        now, changed = time.monotonic(), False
        for state in self._states:
            if state.pid is None and state.restart_at <= now:
                try:
                    state.pid = self._fork(state.part)
                except OSError as error:  # no memory, or too many processes
                    state.restart_at = now + MAX_PAUSE
                    _log_error(f"{state.part.name} cannot be started", cause=str(error))
                changed = True
        if changed or not self._reported:
            self._tell()

    def _kill_hanging(self) -> None:
        """Kill processes that hang. Of a worker, whose supervisor then returns its runs; that
        supervisor too, if it still has not ended when the worker is found again.
        """
        for state in self._states:
            if state.pid is None or state.part.pulse is None:
                continue
            process = state.part.pulse.look(time.monotonic())
            if process is None:
                continue
            if state.hung or _parent_of(process) != state.pid:
                process = state.pid
            state.hung = True
            _log_error(f"{state.part.name} hangs and is killed", process=process)
            with suppress(ProcessLookupError):  # a worker may have ended at this moment
                os.kill(process, signal.SIGKILL)

    def _until_restart(self) -> float:
        """Seconds until the next restart is due."""
        now = time.monotonic()
        due = [state.restart_at - now for state in self._states if state.pid is None]
        return max(min(due, default=_LONGEST_WAIT), 0.0)

    def _reap(self) -> bool:
        """Note which parts have died. Returns False if one of them is not to be started again."""
        going_on = True
        for state in self._states:
            status = _ended(state.pid)
            if status is None:
                continue
            now = time.monotonic()
            state.last_death = _HUNG if state.hung else cause_of_death(status)
            state.pid, state.hung = None, False
            state.deaths.append(now)
            pause = pause_before_restart(state.deaths)
            if pause is None:
                going_on = False
                log = str(self._log_of(state.part))
                _log_error(f"{state.part.name} died too often", cause=state.last_death, log=log)
            else:
                state.restart_at = now + pause
                _log_error(f"{state.part.name} died", cause=state.last_death, restart_in=pause)
            self._tell()
        return going_on

    def _stop(self) -> None:
        """Stop all parts, those that were started last first; kill those that do not stop."""
        for state in reversed(self._states):
            _kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        for state in reversed(self._states):
            while state.pid is not None and _ended(state.pid) is None:
                if time.monotonic() > deadline:
                    _kill(state.pid, signal.SIGKILL)
                signal.sigtimedwait({signal.SIGCHLD}, 0.1)
            state.pid = None

    def _fork(self, part: Part) -> int:
        """Start *part*. In the child this does not return."""
        supervisor = os.getpid()
        if part.pulse is not None:
            part.pulse.forget()
        pid = os.fork()
        if not pid:
            self._become(part, supervisor)
        return pid

    def _become(self, part: Part, supervisor: int) -> NoReturn:
        status = 1
        try:
            prctl(PR_SET_PDEATHSIG, part.dies_by)
            if os.getppid() == supervisor:  # it may have died before
                _redirect(self._log_of(part))
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
                status = part.run()
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else 1
            if isinstance(exit_.code, str):
                _log_error(exit_.code)
        except BaseException:  # noqa: BLE001 — the process ends here
            sys.excepthook(*sys.exc_info())
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _log_of(self, part: Part) -> Path:
        return self._logs / f"{part.name}.log"

    def _tell(self) -> None:
        """Report the state of the parts. If the disk is full, it is reported when the supervisor
        wakes again.
        """
        parts = {
            state.part.name: {
                "pid": state.pid,
                "deaths": len(state.deaths),
                "lastDeath": state.last_death,
            }
            for state in self._states
        }
        try:
            self._report(parts)
        except OSError as error:
            _log_error("the state of the parts cannot be written", cause=str(error))
            self._reported = False
        else:
            self._reported = True


def _ended(pid: int | None) -> int | None:
    """The status of the child *pid* if it has ended, negative for a signal; else None."""
    if pid is None:
        return None
    reaped, raw = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(raw) if reaped else None


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _kill(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        os.kill(pid, number)  # not reaped yet, so the pid is still valid


def _redirect(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def _log_error(message: str, **fields: object) -> None:
    line = {"level": "ERROR", "message": message, "service": "supervisor", **fields}
    with suppress(OSError):
        os.write(1, json.dumps(line).encode() + b"\n")
