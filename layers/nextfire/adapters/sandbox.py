"""Where scripts run: a folder and, if the executor is root, a user for each run; limits for each
program; a `keeper` for each program, which ends whatever it started. Linux 5.3 or later.
"""

from __future__ import annotations

import logging
import marshal
import os
import pwd
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from functools import partial
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from nextfire.adapters import confinement, keeper
from nextfire.adapters.confinement import View
from nextfire.adapters.folders import LockedFolder, sweep, sweep_user, without_long_wait
from nextfire.adapters.keeper import Request
from nextfire.adapters.script_streams import Pump, Sink, Source, Stream
from nextfire.adapters.script_users import ScriptUser, ScriptUsers, tenant_group
from nextfire.adapters.syscalls import script_filter
from nextfire.domain.ports import Verdict

_log = logging.getLogger(__name__)


def _compiled(*modules: ModuleType) -> bytes:
    code = []
    for module in modules:
        file = Path(str(module.__file__))
        code.append((module.__name__, compile(file.read_text(encoding="utf-8"), file, "exec")))
    return marshal.dumps(code)


_KEEPER = _compiled(confinement, keeper)
_FILES = 1024
_MORE_CPU = 60  # seconds, like all of these
_ASK_EVERY = 0.2
_STARTED_WITHIN = 30.0
_GONE_WITHIN = 10.0
_DRAIN_AT_MOST = 2.0


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """What a script may use at most.

    `memory_bytes`: what each of its processes may allocate (RLIMIT_DATA: a bound on the address
    space would count what is reserved and never used, too). `processes`: processes and threads it
    may have at a time. `file_bytes`: the size of any file it writes.
    """

    memory_bytes: int = 2048 * 1024 * 1024
    processes: int = 512
    file_bytes: int = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended. `exit_code` is negative for a signal; None if it is not known.

    `not_started`: why it did not start; then it has no exit code.
    """

    exit_code: int | None
    timed_out: bool = False
    stopped: Verdict = Verdict.GO_ON
    not_started: str | None = None


class Sandbox:
    """One run's part of the machine."""

    def __init__(
        self,
        folder: LockedFolder,
        user: ScriptUser | None,
        groups: Collection[int],
        launch_environment: Mapping[str, str],
        covered: Covered | None,
    ) -> None:
        self._user = user
        if user is not None:
            folder.path.chmod(0o711)
        self.folder = folder.path / "work"
        self.folder.mkdir(mode=0o700)
        self.shared = self._shared_folder(folder.path)
        self._groups = list(groups)
        self._held = [folder.lock, *([] if user is None else [user.lock])]
        self._launch_environment = launch_environment
        self._covered = covered
        self.readable: list[Path] = []
        """Folders that its programs can read although they are in a covered one, see `Covered`."""
        self.temporary = self.make_folder("tmp")

    def _shared_folder(self, top: Path) -> Path:
        """Make what a program finds in place of the temporary folders that all share."""
        path = top / "shared"
        path.mkdir(mode=0o700)
        self._give(path)
        return path

    def write(self, name: str, data: bytes) -> Path:
        """Put a file into the folder; it is the script's own."""
        path = self.folder / name
        path.write_bytes(data)
        self._give(path)
        return path

    def make_folder(self, name: str) -> Path:
        """Put a folder into the folder; it is the script's own."""
        path = self.folder / name
        path.mkdir()
        self._give(path)
        return path

    def open(self) -> None:
        """Give the folder itself to the script."""
        self._give(self.folder)

    def run(
        self,
        program: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout: timedelta,
        grace: timedelta,
        limits: ScriptLimits,
        ask: Callable[[], Verdict],
        stdout: Sink,
        stderr: Sink,
        stdin: bytes = b"",
        handed: socket.socket | None = None,
        sources: Collection[Source] = (),
    ) -> Ending:
        """Run *program* until it exits, *timeout* (from its start) passes, or *ask* ends it.

        SIGTERM, and SIGKILL when *grace* is over; LEASE_LOST kills at once, in the grace too. The
        first cause to end it is the one that is told. When this returns, or raises, nothing lives
        that descends from the program.

        Args:
            program: Its file, by an absolute path, and its arguments.
            environment: All that it finds in its environment.
            timeout: How long it may take.
            grace: How long it has to end by itself after SIGTERM.
            limits: What it may use.
            ask: Called several times a second, in this thread.
            stdout: Given its standard output, piece by piece.
            stderr: Given its standard error.
            stdin: Its standard input. It is a file: nobody waits for it to be read.
            handed: A socket that the program gets under the same number; closed here.
            sources: What else to read from meanwhile.
        """
        with ExitStack() as stack:
            try:
                kept = stack.enter_context(
                    self._kept(program, environment, timeout, limits, stdin, handed, stdout, stderr)
                )
            except (OSError, ValueError) as error:
                return Ending(None, not_started=str(error))
            pump = stack.enter_context(Pump())
            for source in (*kept.sources, *sources):
                pump.add(source)
            stack.callback(kept.end)
            timed_out, stopped = _supervise(kept, pump, timeout, grace.total_seconds(), ask)
            kept.end()
            pump.drain(_DRAIN_AT_MOST)
        if kept.not_started is None and not kept.started and not timed_out:
            return Ending(None, stopped=stopped, not_started="its keeper ended early")
        return Ending(kept.exit_code, timed_out, stopped, kept.not_started)

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
    ) -> Iterator[_Kept]:
        user = self._user
        seconds = int(timeout.total_seconds()) + 1
        request = {
            Request.PROGRAM: list(program),
            Request.ENVIRONMENT: dict(environment),
            Request.FOLDER: str(self.folder),
            Request.USER: user and (user.number, user.warden, user.number, self._groups),
            Request.PROCESSES: limits.processes,
            Request.VIEW: self._covered and self._covered.view(self, program),
            Request.NETWORK: -1,
            Request.FILTER: script_filter(internet=True) or b"",
            Request.LIMITS: [
                (resource.RLIMIT_DATA, limits.memory_bytes),
                (resource.RLIMIT_FSIZE, limits.file_bytes),
                (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1) + _MORE_CPU),
                (resource.RLIMIT_NOFILE, _FILES),
            ],
        }
        with ExitStack() as stack, ExitStack() as until_started:
            readers = []
            writers = []
            for _ in range(2):
                reader, writer = os.pipe()
                stack.callback(os.close, reader)
                until_started.callback(os.close, writer)
                if user is not None:  # so that it may open /dev/stdout
                    os.fchown(writer, user.number, user.number)
                readers.append(reader)
                writers.append(writer)
            if handed is not None:
                until_started.enter_context(handed)
            control, far_end = socket.socketpair()
            stack.enter_context(control)
            until_started.enter_context(far_end)
            asked = _in_memory(marshal.dumps(request), until_started)
            channel = -1 if handed is None else handed.fileno()
            code = _in_memory(_KEEPER, until_started)
            passed = [code, far_end.fileno(), asked, channel, *self._held]
            process = _spawn(
                [sys.executable, "-I", "-S", "-c", keeper.BOOT, *map(str, passed)],
                stdin=_in_memory(stdin, until_started),
                stdout=writers[0],
                stderr=writers[1],
                pass_fds=[fd for fd in passed if fd >= 0],
                env=self._launch_environment,
            )
            kept = _Kept(process, control, adopts=user is None and self._covered is None)
            kept.sources += [Stream(readers[0], stdout), Stream(readers[1], stderr)]
            try:
                until_started.close()
                yield kept
            finally:
                kept.end()

    def _give(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, self._user.number, self._user.number, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Covered:
    """The folders of a host with which its scripts have nothing to do, where it allows namespaces.

    `shared`: instead of these a script finds a folder of its own run. `hidden`: it finds these
    empty. What the script needs of both, it finds in its place.
    """

    shared: tuple[Path, ...]
    hidden: tuple[Path, ...]

    @classmethod
    def of_host(cls, root: Path) -> Self:
        """Those of this host: temporary folders, *root*, and the home of an executor's user.

        Root's home is closed to script users.
        """
        shared = {path.resolve() for path in (root, Path("/tmp"), Path("/var/tmp"))}  # noqa: S108
        hidden: set[Path] = set()
        if os.geteuid() != 0:
            with suppress(KeyError):
                hidden.add(Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve())
        covered = {path for path in shared | hidden if path.is_dir() and path != Path("/")}
        # What is in another one is covered with it.
        outermost = {path for path in covered if covered.isdisjoint(path.parents)}
        return cls(tuple(sorted(shared & outermost)), tuple(sorted((hidden & outermost) - shared)))

    def view(self, sandbox: Sandbox, program: Sequence[str]) -> dict[str, Any]:
        """What *program* finds: a `View`."""
        needed = {*sandbox.readable, *_home_of(Path(program[0]))}
        return {
            View.TEMPORARY: str(sandbox.shared),
            View.SHARED: [str(path) for path in self.shared],
            View.HIDDEN: [str(path) for path in self.hidden],
            View.WRITABLE: [str(sandbox.folder)],
            View.READABLE: sorted(str(path) for path in needed if self._covers(path)),
        }

    def _covers(self, path: Path) -> bool:
        return path.is_dir() and any(each in path.parents for each in self.shared + self.hidden)


def _home_of(program: Path) -> set[Path]:
    """The folders of a program, wherever it is installed: ``bin``, and what ``bin`` is in."""
    return {folder for path in (program, program.resolve()) for folder in path.parents[:2]}


def _namespaces_work(environment: Mapping[str, str]) -> bool:
    """Whether this host allows namespaces. Tried out in a process that inherits nothing of ours."""
    with ExitStack() as stack:
        code = _in_memory(_compiled(confinement), stack)
        command = [sys.executable, "-I", "-S", "-c", keeper.BOOT, str(code)]
        tried = subprocess.run(
            command,
            env=environment,
            pass_fds=[code],
            cwd="/",
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    if tried.returncode != 0:
        _log.warning(
            "this host allows no namespaces: scripts see its processes and temporary files, see "
            "docs/operate/security.md"
        )
    return tried.returncode == 0


def _usual_root(*, anybody: bool) -> Path:
    """Where temporary files go; for *anybody*: the first such place that every user may enter."""
    usual = Path(tempfile.gettempdir())
    if not anybody:
        return usual
    for place in (usual, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 — made unique in there
        with suppress(OSError):
            path = place.resolve(strict=True)
            if all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents)):
                return path
    return usual  # the try of the interpreter will tell


class Sandboxes:
    """Makes sandboxes, for any number of threads at a time."""

    def __init__(
        self,
        *,
        root: Path | None,
        first_user: int,
        tenant_groups: bool,
        launch_environment: Mapping[str, str],
    ) -> None:
        """Build; and remove what others of the machine, that were SIGKILLed, left behind.

        Args:
            root: Where the folders are made; None: where temporary files go; or, if that is
                closed to the script users, in /tmp or /var/tmp.
            first_user: The number of the first script user, for root.
            tenant_groups: Whether script users belong to a group of their tenant's.
            launch_environment: What the executor's own interpreter needs to start.

        Raises:
            ValueError: There is no place for the users' locks.
        """
        own = os.geteuid()
        self.root = root or _usual_root(anybody=own == 0)
        self._users = ScriptUsers(first_user) if own == 0 else None
        self._tenant_groups = tenant_groups
        self._launch_environment = dict(launch_environment)
        self._covered = Covered.of_host(self.root) if _namespaces_work(launch_environment) else None
        users = self._users
        sweep(self.root, lambda owner: owner == own or bool(users and users.owns(owner)))
        if users is None:
            _hide()

    @property
    def separate(self) -> bool:
        """Whether each has a user of its own."""
        return self._users is not None

    @contextmanager
    def one(self, tenant: str) -> Iterator[Sandbox]:
        """A sandbox for *tenant*; within, it is there. What takes long to remove is removed in the
        background; until then nobody else gets its user.

        Raises:
            OSError: It cannot be made.
        """
        user = None if self._users is None else self._users.take()
        try:
            folder = LockedFolder(self.root, "run")
        except OSError:
            if user is not None:
                user.release()
            raise
        try:
            groups = [tenant_group(tenant)] if self._tenant_groups else []
            yield Sandbox(folder, user, groups, self._launch_environment, self._covered)
        finally:
            without_long_wait(partial(self._clear, folder, user))

    def _clear(self, folder: LockedFolder, user: ScriptUser | None) -> None:
        try:
            folder.remove()
            if user is not None:
                sweep_user(user.number, self.root)
        finally:
            if user is not None:
                user.release()


class _Kept:
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


def _supervise(
    kept: _Kept, pump: Pump, timeout: timedelta, grace: float, ask: Callable[[], Verdict]
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


def _spawn(
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
        for pid, _, fields in keeper.processes():
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


def _hide() -> None:
    """Keep scripts of the same user from reading this process's environment, and memory, in /proc;
    and have what a killed keeper leaves come to us.

    What an undumpable process has there belongs to root. Root may read it anyway.
    """
    try:
        confinement.prctl(confinement.PR_SET_DUMPABLE, 0)
    except OSError as error:
        _log.warning("scripts may read the executor's environment: %s", error)
    with suppress(OSError):
        confinement.prctl(confinement.PR_SET_CHILD_SUBREAPER, 1)


def _in_memory(data: bytes, stack: ExitStack) -> int:
    """A descriptor of a file of *data*, which is in no folder; *stack* closes it."""
    descriptor = os.memfd_create("nextfire", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
