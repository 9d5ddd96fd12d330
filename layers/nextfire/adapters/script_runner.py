"""Runs a script in a child process of its own: session, folder, environment. Linux 5.3 or later.

What becomes of the processes that a run starts:

- The script itself dies with its worker, by the kernel's hand (see `launcher`).
- However a run ends, its process group is killed, and `run` returns when none of it lives.
- A descendant that leaves the group (``setsid``) escapes, and so does, when the worker is
  SIGKILLed, whatever the script had started. Making the worker their subreaper would not help:
  that holds for a whole process, and with several slots nobody could tell whose orphan one is.
  It takes a user or a cgroup for each slot.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from math import inf
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, Self

from nextfire.adapters import launcher
from nextfire.domain.ports import ScriptCall, ScriptExit, Verdict

_log = logging.getLogger(__name__)

_ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
    }
)
_ASK_EVERY = 0.2  # seconds, like all of these
_DRAIN_AT_MOST = 0.25
_GONE_WITHIN = 2.0
_READ_BYTES = 64 * 1024
_REPORT_BYTES = 4 * 1024
_REASON_CHARS = 500
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME = 100


class ProcessScriptRunner:
    """Runs scripts in child processes; any number at a time, each in a thread of its own.

    The thread that calls `run` has to live until it returns: the kernel kills the script with it.
    """

    def __init__(
        self,
        *,
        interpreter: str = sys.executable,
        output_cap: int = 16 * 1024,
        grace: timedelta = timedelta(seconds=5),
        environment: Mapping[str, str] = MappingProxyType({}),
        limits: Mapping[str, int] = MappingProxyType({}),
        temp_root: Path | None = None,
    ) -> None:
        """Build a runner.

        Args:
            interpreter: The Python (3.11 or later) that runs the scripts.
            output_cap: Bytes (≥ 2) kept of each stream: the first half and the last half. In
                UTF-8 the text is no longer, save for the notice.
            grace: How long a script has between SIGTERM and SIGKILL.
            environment: What every script finds in its environment beside LANG, TZ, HOME and
                TMPDIR; nothing is inherited. For example a PATH, and LD_LIBRARY_PATH where the
                interpreter needs it (Lambda).
            limits: Resource limits by name, for example ``{"RLIMIT_NPROC": 64}``; RLIMIT_CORE is
                always 0.
            temp_root: Where the working folders are made; if None, where temporary files go.

        Raises:
            ValueError: The cap is too small, or a limit has no such name or is negative.
        """
        smallest = 2
        if output_cap < smallest:
            raise ValueError(f"output_cap is {output_cap}; give at least {smallest} bytes")
        for name, number in limits.items():
            if not name.startswith("RLIMIT_") or not hasattr(resource, name) or number < 0:
                raise ValueError(f"limit {name}={number}: give names of the resource module, ≥ 0")
        self._interpreter = interpreter
        self._output_cap = output_cap
        self._grace = grace.total_seconds()
        self._environment = dict(environment)
        self._limits = [f"{name}={number}" for name, number in limits.items()]
        self._temp_root = temp_root
        _hide_own_environment()

    def run(self, call: ScriptCall, ask: Callable[[], Verdict]) -> ScriptExit:
        """See `ScriptRunner.run`.

        *ask* is called in this thread: while it waits, for a heartbeat say, no output is read and
        no timeout noticed. What it raises is raised here, when the script is dead. The first cause
        to end the script is the one that is told; while the script has its grace only LEASE_LOST
        (SIGKILL, at once) counts.
        """
        try:
            folder = Path(tempfile.mkdtemp(prefix="nextfire-", dir=self._temp_root))
        except OSError as error:
            return self._not_started(error)
        try:
            return self._run_in(folder, call, ask)
        finally:
            _remove(folder)

    def _run_in(self, folder: Path, call: ScriptCall, ask: Callable[[], Verdict]) -> ScriptExit:
        out, err = _Capture(self._output_cap), _Capture(self._output_cap)
        report = _Capture(_REPORT_BYTES)
        with ExitStack() as stack:
            try:
                process, readers = self._start(folder, call, stack)
            except (OSError, ValueError) as error:
                return self._not_started(error)
            child = _Child(process)
            stack.callback(child.end)
            pump = stack.enter_context(_Pump(process.pid))
            for reader, capture in zip(readers, (out, err, report), strict=True):
                pump.add(reader, capture)
            timed_out, stopped = self._supervise(child, pump, call.timeout, ask)
            exit_code = child.end()
            pump.drain(_DRAIN_AT_MOST)

        problem = None
        if report.text().encode() != launcher.STARTED:
            if stopped is Verdict.GO_ON and not timed_out:
                problem = self._ended_early(exit_code, report, err)
            exit_code = None
        elif exit_code is None:
            problem = (
                "The script's exit code was lost: something else in the executor took it. "
                "Do not ignore SIGCHLD there, nor wait for any child."
            )
        return ScriptExit(exit_code, out.text(), err.text(), timed_out, stopped, problem)

    def _start(
        self, folder: Path, call: ScriptCall, stack: ExitStack
    ) -> tuple[subprocess.Popen[bytes], list[IO[bytes]]]:
        """Start the launcher.

        Returns:
            The process, and the reading ends of stdout, stderr and report, which *stack* closes.
        """
        script = folder / _file_name(call.name)
        script.write_bytes(call.source)
        temporary = folder / "tmp"
        temporary.mkdir()
        # -P: its folder is not on the script's path, or email.py would be everybody's `email`.
        program = [self._interpreter, "-u", "-P", str(script)]
        environment = {
            **_ENVIRONMENT,
            **self._environment,
            **call.context,
            "HOME": str(folder),
            "TMPDIR": str(temporary),
        }
        readers: list[IO[bytes]] = []
        writers: list[IO[bytes]] = []
        with ExitStack() as until_started:
            for _ in range(3):
                reader, writer = os.pipe()
                readers.append(stack.enter_context(os.fdopen(reader, "rb", buffering=0)))
                writers.append(until_started.enter_context(os.fdopen(writer, "wb", buffering=0)))
            stdout, stderr, report = writers
            # A file, not a pipe: a script that never reads it holds nobody up.
            stdin = until_started.enter_context(tempfile.TemporaryFile(dir=folder))
            stdin.write(call.payload.encode())
            stdin.seek(0)
            launch = [self._interpreter, "-I", "-S", launcher.__file__, str(os.getpid())]
            process = subprocess.Popen(
                [*launch, str(report.fileno()), *self._limits, "--", *program],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[report.fileno()],
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        return process, readers

    def _supervise(
        self, child: _Child, pump: _Pump, timeout: timedelta, ask: Callable[[], Verdict]
    ) -> tuple[bool, Verdict]:
        """Read and ask until the script has exited.

        Returns:
            Whether it timed out, and the verdict that ended it.
        """
        timed_out, stopped, terminated = False, Verdict.GO_ON, False
        ask_at = time.monotonic() + _ASK_EVERY
        act_at = time.monotonic() + timeout.total_seconds()  # then the end of the grace, then never
        while not pump.step(min(ask_at, act_at) - time.monotonic()):
            if time.monotonic() >= ask_at:
                verdict = ask()
                ask_at = time.monotonic() + _ASK_EVERY
                if verdict is Verdict.LEASE_LOST:
                    stopped, act_at = verdict, inf
                    child.send(signal.SIGKILL)
                elif verdict is not Verdict.GO_ON and not terminated:
                    stopped, terminated = verdict, True
                    act_at = time.monotonic() + self._grace
                    child.send(signal.SIGTERM)
            if time.monotonic() >= act_at:
                if terminated:
                    act_at = inf
                    child.send(signal.SIGKILL)
                else:
                    timed_out = terminated = True
                    act_at = time.monotonic() + self._grace
                    child.send(signal.SIGTERM)
        return timed_out, stopped

    def _not_started(self, cause: Exception) -> ScriptExit:
        root = self._temp_root or tempfile.gettempdir()
        error = (
            f"The script could not be started: {cause}. Check that the interpreter "
            f"{self._interpreter} is there and may be executed, and that {root} can be written."
        )
        return ScriptExit(None, "", "", error=error)

    def _ended_early(self, exit_code: int | None, report: _Capture, stderr: _Capture) -> str:
        why = report.text().removeprefix(launcher.STARTED.decode()) or stderr.text().strip()
        return (
            f"The interpreter {self._interpreter} ended with {exit_code} before it reached the "
            f"script: {why[-_REASON_CHARS:] or 'no reason given'}. Check that it is a Python of "
            "version 3.11 or later and starts by itself."
        )


class _Child:
    """A child process that leads its own group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._exit_code: int | None = None

    def send(self, number: signal.Signals) -> None:
        """Send the group a signal. Not after `end`: its number may be another's then."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def end(self) -> int | None:
        """Kill what is left of the group and wait until it is gone.

        Returns:
            The exit code, negative for a signal; None if somebody else has taken it. The same again
            when called again.
        """
        if self._process.returncode is None:
            self.send(signal.SIGKILL)
            try:  # if it was taken, Popen would call it 0
                end = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                end = None
            if end is not None:
                exited = end.si_code == os.CLD_EXITED
                self._exit_code = end.si_status if exited else -end.si_status
            self._process.wait()
            _await_end_of_group(self._process.pid)
        return self._exit_code


class _Pump:
    """Reads streams into captures, and notices when a process exits."""

    def __init__(self, pid: int) -> None:
        with ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._pidfd = os.pidfd_open(pid)
            stack.callback(os.close, self._pidfd)
            self._selector.register(self._pidfd, selectors.EVENT_READ)
            self._stack = stack.pop_all()
        self._open = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, stream: IO[bytes], capture: _Capture) -> None:
        self._selector.register(stream, selectors.EVENT_READ, capture)
        self._open += 1

    def step(self, timeout: float) -> bool:
        """Wait up to *timeout* seconds for output and read it. Says whether the process exited."""
        exited = False
        for key, _ in self._selector.select(max(timeout, 0)):
            if key.data is None:
                exited = True
            elif data := os.read(key.fd, _READ_BYTES):
                key.data.feed(data)
            else:
                self._selector.unregister(key.fileobj)
                self._open -= 1
        return exited

    def drain(self, at_most: float) -> None:
        """Read on after the exit until all streams have ended, *at_most* so many seconds."""
        self._selector.unregister(self._pidfd)
        until = time.monotonic() + at_most
        while self._open and (left := until - time.monotonic()) > 0:
            self.step(left)


class _Capture:
    """The first and the last half of a stream: never more than *cap* bytes of it, and one read."""

    def __init__(self, cap: int) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._head_cap, self._tail_cap = cap // 2, cap - cap // 2
        self._cut = 0

    def feed(self, data: bytes) -> None:
        room = self._head_cap - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = max(len(self._tail) - self._tail_cap, 0)
        self._cut += excess
        del self._tail[:excess]

    def text(self) -> str:
        if not self._cut:
            return _decode(self._head + self._tail)
        head, tail = _decode(self._head), _decode(self._tail)
        return f"{head}\n… [{self._cut} bytes cut] …\n{tail}"


def _decode(data: bytearray) -> str:
    # Not U+FFFD: its three bytes would make a text of binary output thrice as long as the cap, too
    # long perhaps for the run's record.
    return data.decode(errors="replace").replace("\ufffd", "?")


def _file_name(name: str) -> str:
    stem = _NOT_IN_A_NAME.sub("_", PurePosixPath(name).name.removesuffix(".py"))
    return (stem[:_MAX_NAME].lstrip(".-") or "script") + ".py"


def _await_end_of_group(group: int) -> None:
    until = time.monotonic() + _GONE_WITHIN
    while _lives(group):
        if time.monotonic() > until:
            _log.warning("process group %d was killed and has not ended yet", group)
            return
        time.sleep(0.002)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # Something still has that number: it is dying, or dead and its adopter does not reap.
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_bytes().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in {b"Z", b"X"}:
                return True
    return False


def _remove(folder: Path) -> None:
    with suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    # It holds folders without permissions, or deeper ones than Python can go. These two can, and
    # follow no symbolic links.
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        with suppress(OSError):
            subprocess.run([*command, "--", str(folder)], check=False, capture_output=True)
    if folder.exists():
        _log.warning("working folder %s could not be removed; remove it by hand", folder)


def _hide_own_environment() -> None:
    """Keep scripts of the same user from reading this process's environment, and memory, in /proc.

    What an undumpable process has there belongs to root. Root may read it anyway.
    """
    if os.geteuid() == 0:
        return
    try:
        launcher.prctl(launcher.PR_SET_DUMPABLE, 0)
    except OSError as error:
        _log.warning("scripts may read the executor's environment: %s", error)
