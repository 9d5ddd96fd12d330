"""The keeper: a small process that starts one program of a script and supervises it to its end.

The keeper is a fork of the `launcher`, which passes it descriptors: REQUEST, a file with a
marshalled `ProgramRequest`; CHANNEL, which the program inherits; and CONTROL, a socket to the
executor. The keeper writes these lines to CONTROL:

    S            the program has started
    E <reason>   the program could not be started; the last line
    D            the program has exited; its remaining processes are being killed
    X <code>     no process of the program is left; its exit code, negative for a signal

It reads orders from CONTROL: ``T`` sends SIGTERM to the program's process group, ``K`` kills all
processes. The end of the stream means ``K``, so no process outlives a killed executor. When the
program has exited, or on ``K``, the keeper kills all of its descendants and then reports the exit
code.

No process escapes. If the host allows namespaces, the keeper is process 1 of the program's PID
namespace: when the keeper ends, the kernel kills the others. They cannot kill the keeper, even if
they run as the same user: the kernel drops such signals. On other hosts orphans become children of
the keeper (their subreaper), whatever session they are in. Processes of a script user are killed by
uid with a single system call, so forks cannot escape. Without a script user, the descendants are
stopped before they are killed: stopped processes do not fork.

Uses few modules of the standard library and nothing else: the launcher holds all imports, and each
keeper gets a copy.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import marshal
import os
import resource
import select
import time

# Absolute imports: in the launcher the parent packages of this module do not exist.
from nextfire.adapters.scripts.confinement import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    become_user,
    counts_tasks_per_namespace,
    drop_capabilities,
    enter_file_namespace,
    enter_network,
    enter_process_namespace,
    install_filter,
    prctl,
    set_limits,
)
from nextfire.adapters.scripts.forked_script import ForkedScript, replace_environment
from nextfire.adapters.scripts.process_table import kill_descendants, send, tasks_of

_NICE = 5
_POLL = 0.002  # seconds
_ENOMEM = 12
_IGNORED = [
    number for number in _signal.valid_signals() if _signal.getsignal(number) is _signal.SIG_IGN
]
"""Signals that a program would ignore too, for example SIGPIPE: Python ignores it."""


class ProgramRequest:
    """Keys of a marshalled dict that describes the program to start.

    `program`: path and arguments. `environment`: environment variables. `folder`: working folder.
    `user`: None, or the ids (uid, warden uid, gid, supplementary gids) of the script user; no other
    process may run under these two uids. `channel`: name of the variable that holds the descriptor
    number of CHANNEL, or empty. `limits`: pairs of a resource and its limit. `processes`: maximum
    number of processes of the program and its descendants. `view`: None, or a dict with the keys of
    `confinement.View`; then the program gets namespaces. `filter`: the seccomp program, or empty.
    `fork`: whether the program is a script that a fork of the launcher runs, see `forked_script`.
    """

    PROGRAM = "program"
    ENVIRONMENT = "environment"
    FOLDER = "folder"
    USER = "user"
    LIMITS = "limits"
    PROCESSES = "processes"
    VIEW = "view"
    CHANNEL = "channel"
    FILTER = "filter"
    FORK = "fork"


class _Keeper:
    def __init__(self, control: int, request: dict, network: int) -> None:  # type: ignore[type-arg]
        self._control = control
        self._request = request
        self._network = network
        self._user = request[ProgramRequest.USER]
        self._namespaces = request[ProgramRequest.VIEW] is not None
        self._child = -1
        self._exit_code: int | None = None
        self._has_children = True
        # The program's own is read-only.
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._wake, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _catch_signals()
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        except OSError:
            pass  # processes that leave the program's process tree are then not found

    def keep(self, channel: int) -> None:
        if self._user is None and not (self._namespaces and counts_tasks_per_namespace()):
            self._request[ProgramRequest.PROCESSES] += tasks_of(os.getuid())
        problem = self._start(channel)
        try:
            if channel >= 0:
                os.close(channel)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(null, standard)
            if not problem:
                self._report("S")
                self._await()
                self._report("D")
        finally:
            self._end_all()
        self._report("E " + problem if problem else f"X {self._exit_code}")

    def _start(self, channel: int) -> str:
        """Start the program. Returns the reason if that fails; otherwise empty."""
        keeper = os.getpid()
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            if self._network >= 0:
                enter_network(self._network)
            if self._namespaces:
                enter_file_namespace(self._request[ProgramRequest.VIEW])
            self._child = os.fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            return str(error)
        if not self._child:
            try:
                _become(self._request, channel, keeper, self._proc)
            except ForkedScript:
                raise
            except BaseException as error:  # noqa: BLE001 - all of them are reported to the parent
                try:
                    os.write(writer, _reason(error))
                finally:
                    os._exit(1)
        os.close(writer)
        problem = os.read(reader, 1000).decode(errors="replace").replace("\n", " ")
        os.close(reader)
        return problem

    def _await(self) -> None:
        """Return when the program has exited or must be killed."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while self._exit_code is None:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    drain(self._wake)
                    self._reap()
                    continue
                order = os.read(self._control, 64)
                if not order or b"K" in order:
                    return
                self._terminate()

    def _terminate(self) -> None:
        if self._exit_code is None:  # its pid cannot be reused before it is reaped
            try:
                os.killpg(self._child, _signal.SIGTERM)
            except OSError:
                pass

    def _reap(self) -> bool:
        """Reap dead children. Returns whether any child is left."""
        while self._has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                break
            if pid == 0:
                break
            if pid == self._child:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._has_children

    def _end_all(self) -> None:
        while self._reap():
            if self._namespaces:
                send([-1], _signal.SIGKILL)  # all other processes of the namespace
            elif self._user is None:
                kill_descendants()
            else:
                _kill_user(*self._user[:2])
            time.sleep(_POLL)
        if self._user is not None and not self._namespaces:
            _kill_user(*self._user[:2])

    def _report(self, line: str) -> None:
        try:
            os.write(self._control, line.encode(errors="replace") + b"\n")
        except OSError:
            pass  # the executor is gone


def _catch_signals() -> None:
    """Catch signals and unblock all. An executed program gets the default handlers back."""
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, lambda *_: None)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])


def _become(request: dict, channel: int, parent: int, proc: int) -> None:  # type: ignore[type-arg]
    """Turn this process, a fork of *parent*, into the program. *proc*: a writable ``/proc``.

    Raises:
        ForkedScript: The program is a script that this process itself must run.
    """
    forks = request[ProgramRequest.FORK]
    for number in () if forks else _IGNORED:
        _signal.signal(number, _signal.SIG_DFL)
    os.setsid()
    prctl(PR_SET_DUMPABLE, 1)  # otherwise root owns its files in /proc, which are written below
    os.nice(_NICE)  # the executor gets its share of the CPU, however many scripts run
    _prefer_for_oom_kill(proc)
    if request[ProgramRequest.USER] is not None:
        become_user(request[ProgramRequest.USER])
    drop_capabilities(executes=not forks)
    if forks:
        prctl(PR_SET_DUMPABLE, 1)  # as after an exec: the change of user cleared it
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # after the change of user, which clears it
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the call above; no signal will come
    set_limits(
        [
            # No core dumps. Where the host pipes them to a program, the kernel ignores 0, not 1.
            (resource.RLIMIT_CORE, 1),
            (resource.RLIMIT_NPROC, request[ProgramRequest.PROCESSES]),
            *request[ProgramRequest.LIMITS],
        ]
    )
    os.umask(0o077)
    try:
        os.chdir(request[ProgramRequest.FOLDER])
    except OSError as error:
        raise OSError(f"folder: {error}") from error
    environment = request[ProgramRequest.ENVIRONMENT]
    if channel >= 0:
        os.set_inheritable(channel, True)
        environment[request[ProgramRequest.CHANNEL]] = str(channel)
    install_filter(request[ProgramRequest.FILTER])
    program = request[ProgramRequest.PROGRAM]
    if forks:
        replace_environment(environment)
        raise ForkedScript(program, channel)
    os.execve(program[0], program, environment)  # noqa: S606


def _reason(error: BaseException) -> bytes:
    """Why the program could not be started. A `MemoryError` has no text; the executor recognizes
    the scarcity by the number.
    """
    if isinstance(error, MemoryError):
        error = OSError(_ENOMEM, os.strerror(_ENOMEM))
    return (str(error) or type(error).__name__).encode(errors="replace")[:1000]


def _prefer_for_oom_kill(proc: int) -> None:
    """If memory is short, the kernel kills the script rather than the executor."""
    try:
        score = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=proc)
        os.write(score, b"1000")
        os.close(score)
    except OSError:
        pass  # best effort


def _kill_user(user: int, warden: int) -> None:
    """Kill all processes of *user*.

    Under the warden's uid this process cannot be killed or stopped by the user meanwhile. Its real
    uid must not stay 0: then it could kill root's processes, and would.
    """
    os.setresuid(warden, user, 0)
    try:
        os.kill(-1, _signal.SIGKILL)
    except OSError:
        pass  # the user has no processes
    finally:
        os.setresuid(0, 0, 0)


def drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read()


def keep(control: int, request: int, channel: int, network: int, *, namespaces: bool) -> None:
    """Start the program that the file *request* describes, and supervise it to its end.

    Args:
        control: The socket to the executor.
        request: Descriptor of the file with the marshalled `ProgramRequest`.
        channel: Descriptor of CHANNEL; or -1.
        network: Descriptor of the network namespace to enter; -1 to stay in the executor's.
        namespaces: Whether the program gets namespaces. Must be known before the request is read:
            a process that enters namespaces without being root can be inspected meanwhile. Under
            root the launcher has already forked this process as process 1 of a PID namespace.
    """
    try:
        if namespaces and os.geteuid() != 0:
            prctl(PR_SET_DUMPABLE, 1)
            enter_process_namespace()
            prctl(PR_SET_DUMPABLE, 0)
            first = os.fork()
            if first:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) != 0)
        asked = marshal.loads(_read_all(request))  # noqa: S302 - written by the executor
        os.close(request)
        kept = _Keeper(control, asked, network)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        os.write(control, b"E " + _reason(error) + b"\n")
        return
    kept.keep(channel)
