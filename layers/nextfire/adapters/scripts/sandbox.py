"""The sandbox of a run: a folder and, if the executor is root, a user. Each program that it runs
has limits and a `keeper`, which kills all processes that the program started.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from nextfire.adapters.scripts.covered import CoveredFolders
from nextfire.adapters.scripts.folders import LockedFolder
from nextfire.adapters.scripts.keeper import ProgramRequest
from nextfire.adapters.scripts.kept_program import SupervisedProgram, in_memory, supervise
from nextfire.adapters.scripts.launchers import Launchers
from nextfire.adapters.scripts.launching import LauncherClient, StandardStreams
from nextfire.adapters.scripts.script_network import Network
from nextfire.adapters.scripts.script_streams import OUTPUT_BURST, Pace, Pump, Sink, Source, Stream
from nextfire.adapters.scripts.script_users import ScriptUser
from nextfire.adapters.scripts.syscalls import script_filter
from nextfire.dataclass import dataclass
from nextfire.domain.ports.scripts import Directive

_log = logging.getLogger(__name__)


_HOSTS_NETWORK = Network()
_CHANNEL = "NEXTFIRE_CHANNEL"
_FILES = 1024
_MORE_CPU = 60  # seconds
_DRAIN_AT_MOST = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Resource limits of a script.

    `memory_bytes`: maximum allocation of each process (RLIMIT_DATA; a limit on the address space
    would also count reserved memory that is never used). `processes`: maximum number of concurrent
    processes and threads. `file_bytes`: maximum size of each file that it writes.
    """

    memory_bytes: int = 2048 * 1024 * 1024
    processes: int = 512
    file_bytes: int = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended. `exit_code` is negative for a signal; None if unknown.

    `not_started`: the reason if the program did not start; without an exit code.
    """

    exit_code: int | None
    timed_out: bool = False
    stopped: Directive = Directive.CONTINUE
    not_started: str | None = None


class Sandbox:
    """The sandbox of one run."""

    def __init__(
        self,
        folder: LockedFolder,
        user: ScriptUser | None,
        groups: Collection[int],
        launchers: Launchers,
        tenant: str,
        covered: CoveredFolders | None,
        *,
        filters: bool,
    ) -> None:
        self._filters = filters
        self._user = user
        if user is not None:
            folder.path.chmod(0o711)
        self.folder = folder.path / "work"
        self.folder.mkdir(mode=0o700)
        self._top = folder.path
        self._groups = list(groups)
        self._held = [folder.lock, *([] if user is None else [user.lock])]
        self._launchers = launchers
        self._tenant = tenant
        self._covered = covered
        self.alone = True
        """Whether no process of its programs can be alive."""
        self.readable: list[Path] = []
        """Folders that its programs can read even inside covered folders, see `CoveredFolders`."""
        self.temporary = self.make_folder("tmp")

    def _filter(self, *, internet: bool) -> bytes:
        if not self._filters:
            return b""
        return script_filter(internet=internet, ipc=self._covered is not None) or b""

    def _view(self, program: str, *, offline: bool) -> dict[str, Any] | None:
        if self._covered is None:
            return None
        return self._covered.view(
            program,
            instead=self._new_shared_folder(),
            writable=self.folder,
            readable=self.readable,
            offline=offline,
        )

    def _new_shared_folder(self) -> Path:
        """Create the folder that replaces the host's temporary folders for a program.

        Each program of a run gets a new one: root mounts inside it.
        """
        path = Path(tempfile.mkdtemp(prefix="shared-", dir=self._top))
        self._give(path)
        return path

    def write(self, name: str, data: bytes) -> Path:
        """Create a file in the folder, owned by the script's user."""
        path = self.folder / name
        path.write_bytes(data)
        self._give(path)
        return path

    def make_folder(self, name: str) -> Path:
        """Create a subfolder, owned by the script's user."""
        path = self.folder / name
        path.mkdir()
        self._give(path)
        return path

    def open(self) -> None:
        """Make the script's user the owner of the folder itself."""
        self._give(self.folder)

    def run(
        self,
        program: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout: timedelta,
        grace: timedelta,
        limits: ScriptLimits,
        ask: Callable[[], Directive],
        stdout: Sink,
        stderr: Sink,
        stdin: bytes = b"",
        handed: socket.socket | None = None,
        sources: Collection[Source] = (),
        network: Network = _HOSTS_NETWORK,
        may_fork: bool = False,
    ) -> ProgramEnd:
        """Run *program* until it exits, *timeout* passes, or *ask* stops it.

        Stopping sends SIGTERM, then SIGKILL after *grace*. LEASE_LOST sends SIGKILL immediately,
        also during the grace period. The result holds the first cause of the end. When this method
        returns or raises, no descendant of the program is alive.

        Args:
            program: Absolute path and arguments.
            environment: The complete environment of the program.
            timeout: Maximum run time, counted from the start of the program.
            grace: Time between SIGTERM and SIGKILL.
            limits: Resource limits.
            ask: Returns whether the run may continue. Called several times a second, in this
                thread.
            stdout: Receives the standard output in chunks.
            stderr: Receives the standard error in chunks.
            stdin: The standard input. It is passed as a file, so the program need not read it.
            handed: A socket that the program inherits; NEXTFIRE_CHANNEL in its environment is the
                descriptor number. Closed here.
            sources: Other sources to read from meanwhile.
            network: The network of the program. A network namespace requires namespaces of the
                host.
            may_fork: Whether *program* is interpreter, flags and a script's path, which a launcher
                may fork instead of executing it (see `forked_script`).
        """
        with ExitStack() as stack:
            try:
                kept = stack.enter_context(
                    self._kept(
                        program,
                        environment,
                        timeout,
                        limits,
                        stdin,
                        handed,
                        stdout,
                        stderr,
                        network,
                        may_fork=may_fork,
                    )
                )
            except (OSError, ValueError) as error:
                return ProgramEnd(None, not_started=str(error))
            pump = stack.enter_context(Pump())
            for source in (*kept.sources, *sources):
                pump.add(source)
            stack.callback(kept.end)
            timed_out, stopped = supervise(kept, pump, timeout, grace.total_seconds(), ask)
            kept.end()
            pump.drain(_DRAIN_AT_MOST)
        if kept.not_started is None and not kept.started and not timed_out:
            return ProgramEnd(None, stopped=stopped, not_started="its keeper ended prematurely")
        return ProgramEnd(kept.exit_code, timed_out, stopped, kept.not_started)

    @contextmanager
    def _kept(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        timeout: timedelta,
        limits: ScriptLimits,
        stdin: bytes,
        handed: socket.socket | None,
        stdout: Sink,
        stderr: Sink,
        network: Network,
        *,
        may_fork: bool,
    ) -> Iterator[SupervisedProgram]:
        request = self._request(program, environment, timeout, limits, network)
        with ExitStack() as stack, ExitStack() as until_started:
            readers = []
            writers = []
            for _ in range(2):
                reader, writer = os.pipe()
                stack.callback(os.close, reader)
                until_started.callback(os.close, writer)
                if self._user is not None:  # so that the script may open /dev/stdout
                    os.fchown(writer, self._user.number, self._user.number)
                readers.append(reader)
                writers.append(writer)
            if handed is not None:
                until_started.enter_context(handed)
            streams = StandardStreams(in_memory(stdin, until_started), *writers)

            def launch(launcher: LauncherClient) -> tuple[SupervisedProgram, socket.socket]:
                return launcher.launch(
                    request,
                    streams,
                    namespaces=self._covered is not None,
                    channel=-1 if handed is None else handed.fileno(),
                    network=network.namespace,
                    locks=self._held,
                )

            kept, control = self._launchers.launch(
                launch, forked_for=self._tenant if may_fork else None
            )
            stack.enter_context(control)
            was_alone, self.alone = self.alone, False
            pace = Pace(OUTPUT_BURST, over=lambda: kept.ended)
            kept.sources += [Stream(readers[0], stdout, pace), Stream(readers[1], stderr, pace)]
            try:
                until_started.close()
                yield kept
            finally:
                kept.end()
                self.alone = was_alone and kept.left_nothing

    def _request(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        timeout: timedelta,
        limits: ScriptLimits,
        network: Network,
    ) -> dict[str, Any]:
        """What the launcher is asked to start, see `ProgramRequest`."""
        user = self._user
        seconds = int(timeout.total_seconds()) + 1
        return {
            ProgramRequest.PROGRAM: list(program),
            ProgramRequest.ENVIRONMENT: dict(environment),
            ProgramRequest.FOLDER: str(self.folder),
            ProgramRequest.USER: user and (user.number, user.warden, user.number, self._groups),
            ProgramRequest.PROCESSES: limits.processes,
            ProgramRequest.VIEW: self._view(
                program[0], offline=not network.internet or network.namespace >= 0
            ),
            ProgramRequest.CHANNEL: _CHANNEL,
            ProgramRequest.FILTER: self._filter(internet=network.internet),
            ProgramRequest.LIMITS: [
                (resource.RLIMIT_DATA, limits.memory_bytes),
                (resource.RLIMIT_FSIZE, limits.file_bytes),
                (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1) + _MORE_CPU),
                (resource.RLIMIT_NOFILE, _FILES),
            ],
        }

    def _give(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, self._user.number, self._user.number, follow_symlinks=False)
