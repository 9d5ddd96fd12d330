"""The executor's client of the launcher: starts it, requests keepers, replaces a dead one."""

from __future__ import annotations

import array
import logging
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from nextfire.adapters.scripts import confinement, forked_script, keeper, launcher, process_table
from nextfire.adapters.scripts.keeper import ProgramRequest
from nextfire.adapters.scripts.kept_program import SupervisedProgram, in_memory
from nextfire.adapters.scripts.launcher import Launch
from nextfire.dataclass import dataclass

_log = logging.getLogger(__name__)

BOOT = """
import marshal, os, sys
for name, code in marshal.loads(os.pread(int(sys.argv[1]), 1 << 20, 0)):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(sys.argv[1:])
os._exit(0)
"""
"""Source of the bootstrap: loads a file of modules, in order, and runs `main` of the last one."""
_GONE_WITHIN = 5.0  # seconds
_DEAD_WITHIN = 0.5  # seconds


def compiled(*modules: ModuleType) -> bytes:
    """Marshal the code of *modules* for `BOOT`: pairs of name and code."""
    code = []
    for module in modules:
        file = Path(str(module.__file__))
        code.append((module.__name__, compile(file.read_text(encoding="utf-8"), file, "exec")))
    return marshal.dumps(code)


MODULES = (confinement, process_table, forked_script, keeper, launcher)
"""The modules of a launcher, in the order in which they are loaded."""
_CODE = compiled(*MODULES)


class Family:
    """The launchers of this process, and the programs that they started. `lock`: held while a
    launcher starts.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.programs: set[SupervisedProgram] = set()
        self.launchers: set[subprocess.Popen[bytes]] = set()

    def add(self, launcher: subprocess.Popen[bytes]) -> None:
        """Add *launcher*, and reap those that have exited."""
        self.launchers = {each for each in self.launchers if each.poll() is None} | {launcher}

    def known(self) -> set[int]:
        """Pids of launchers and keepers."""
        keepers = {each.keeper for each in [*self.programs] if each.keeper is not None}
        return {each.pid for each in self.launchers} | keepers


FAMILY = Family()
"""There is one for each process: it adopts the orphans of all of its launchers."""


@dataclass(frozen=True, slots=True)
class StandardStreams:
    """Descriptors of a program's standard input, output and error."""

    stdin: int
    stdout: int
    stderr: int


class LauncherClient:
    """Starts programs under keepers. Thread-safe.

    All threads share one launcher. A dead launcher is replaced; its keepers and their programs keep
    running.
    """

    forks = False
    """Whether its keepers fork scripts instead of executing programs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Build, and start the launcher. *environment*: the variables of its interpreter."""
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._process, self._socket = self._start()

    def launch(
        self,
        request: dict[str, Any],
        standard: StandardStreams,
        *,
        namespaces: bool,
        channel: int = -1,
        network: int = -1,
        locks: Collection[int] = (),
    ) -> tuple[SupervisedProgram, socket.socket]:
        """Start a program under a new keeper.

        Args:
            request: The program to start (`keeper.ProgramRequest`), without `fork`.
            standard: Its standard streams. The caller closes its own copies of all descriptors.
            namespaces: Whether the request has a view.
            channel: A socket that the program inherits; -1 for none.
            network: The network namespace to enter; -1 for none.
            locks: Descriptors to hold until no process of the program is left.

        Returns:
            The program, and the control socket, which the caller closes after the program's end.

        Raises:
            OSError: The program cannot be launched.
        """
        flags = (
            (Launch.CHANNEL if channel >= 0 else 0)
            | (Launch.NETWORK if network >= 0 else 0)
            | (Launch.NAMESPACES if namespaces else 0)
        )
        near, far = socket.socketpair()
        with ExitStack() as unless_launched, far, ExitStack() as stack:
            unless_launched.enter_context(near)
            descriptors = [
                far.fileno(),
                in_memory(marshal.dumps({**request, ProgramRequest.FORK: self.forks}), stack),
                *(standard.stdin, standard.stdout, standard.stderr),
                *(each for each in (channel, network) if each >= 0),
                *locks,
            ]
            launcher = self._send(bytes([Launch.VERSION, flags]), descriptors)
            unless_launched.pop_all()
        kept = SupervisedProgram(
            near,
            kill=partial(_kill, launcher),
            kill_launcher=launcher.kill,
            sweep=partial(self._sweep, launcher),
        )
        FAMILY.programs.add(kept)
        return kept, near

    def close(self) -> None:
        """End the launcher. Programs that it started end by themselves or with this process."""
        self._finalizer()

    def _send(self, message: bytes, descriptors: Collection[int]) -> subprocess.Popen[bytes]:
        """Send *message* to a living launcher. Returns that launcher."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with self._lock:
            if self._socket.fileno() >= 0:  # negative: no replacement could be started
                with suppress(BrokenPipeError, ConnectionResetError):
                    self._socket.sendmsg([message], rights)
                    return self._process
            self._replace()
            self._socket.sendmsg([message], rights)
            return self._process

    def _replace(self) -> None:
        self._finalizer()
        code = self._process.returncode
        _log.error("the launcher of scripts exited with code %s; starting a new one", code)
        self._process, self._socket = self._start()

    def _boot(self) -> tuple[list[str], bytes]:
        """The command, up to its arguments, and the modules that it loads."""
        return [sys.executable, "-I", "-S", "-c", BOOT], _CODE

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as unless_started, far, ExitStack() as stack:
            unless_started.enter_context(near)
            boot, content = self._boot()
            code = in_memory(content, stack)
            # The kinds of a script's standard streams: Python looks at them when it starts.
            reader, output = os.pipe()
            stack.callback(os.close, reader)
            stack.callback(os.close, output)
            with FAMILY.lock:
                process = subprocess.Popen(
                    [*boot, str(code), str(far.fileno())],
                    stdin=in_memory(b"", stack),
                    stdout=output,
                    stderr=output,
                    pass_fds=[code, far.fileno()],
                    env=self._environment,
                    cwd="/",
                    start_new_session=True,
                )
                FAMILY.add(process)
            unless_started.pop_all()
        self._finalizer = weakref.finalize(self, _end, process, near)
        return process, near

    def _sweep(self, launcher: subprocess.Popen[bytes], gone: SupervisedProgram) -> None:
        """Kill the processes that the keeper of *gone* left, if its *launcher* was killed.

        This process, the next subreaper, has adopted the keeper and its orphans. Other children of
        this process are in its own session, or the next launcher, and are left alone.
        """
        FAMILY.programs.discard(gone)
        if not gone.left_nothing:  # a dying launcher closes its sockets before it is dead
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(_DEAD_WITHIN)
        if launcher.poll() in {None, 0}:  # it exits with 0 after its last keeper
            return
        if gone.keeper is not None:
            with suppress(ChildProcessError):
                os.waitpid(gone.keeper, os.WNOHANG)
        with FAMILY.lock:  # no launcher starts meanwhile
            process_table.kill_orphans(FAMILY.known(), session=os.getsid(0))


def _kill(launcher: subprocess.Popen[bytes], keeper: int) -> None:
    """Kill the process *keeper* if it is a child of *launcher*, or was adopted from it.

    The pid is checked because it arrived over a socket that the keeper can write, too.
    """
    with suppress(OSError):
        parent, session = process_table.family_of(keeper)
        if parent in {launcher.pid, os.getpid()} and session == keeper:
            os.kill(keeper, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes], its_socket: socket.socket) -> int | None:
    """Let the launcher exit after its keepers, kill it after 5 s; return its exit code."""
    its_socket.close()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(_GONE_WITHIN)
    process.kill()
    return process.wait()
