"""The keeper: a small process that starts one program of a script and sees to its end.

It is a fork of the `launcher`, which hands it descriptors: REQUEST, a file with a marshalled
`Request`; CHANNEL, which is passed on to the program; and CONTROL, a socket to the executor. The
keeper writes lines to it:

    S            the program has started
    E <reason>   it could not be started; nothing follows
    D            it has exited; what it left is being killed
    X <code>     nothing of it lives; its exit code, negative for a signal

It reads orders from it: ``T`` sends SIGTERM to the program's process group, ``K`` kills everything.
The end of the stream is a ``K``: nothing outlives an executor that was killed. When the program has
exited, or on ``K``, the keeper kills whatever descends from it, and reports the exit code last.

Nothing escapes. Where the host allows namespaces, the keeper is process 1 of the program's process
namespace: when it ends, the kernel ends the others, and they cannot kill it, even where both are of
one user: the kernel drops such signals. Elsewhere orphans become the keeper's children (it is their
subreaper), whatever session they are in. Processes of a script user are killed by the user's
number, at one stroke, which no fork outruns. Without a script user the descendants are stopped
before they are killed: stopped processes do not fork.

Standard library only, and little of it: what this imports is in the launcher, and so copied to
each keeper.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import marshal
import os
import resource
import select
import time

# The whole path: in the launcher the packages above this module do not exist.
from nextfire.adapters.confinement import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    become_user,
    counts_tasks_per_namespace,
    enter_file_namespace,
    enter_network,
    enter_process_namespace,
    limit,
    prctl,
    refuse_calls,
)
from nextfire.adapters.process_table import kill_descendants, send, tasks_of

_NICE = 5
_POLL = 0.002  # seconds


class Request:
    """What to start, as it is marshalled: the keys of a dict.

    `program`: its file and its arguments. `environment`, `folder`: its own. `user`: None, or the
    ids (user, warden, group, other groups) that it gets; nothing else may run under the user's
    and the warden's. `channel`: the variable that tells the program the number of CHANNEL, or
    empty. `limits`: pairs of a resource and its bound. `processes`: how many the program and its
    descendants may be. `view`: None, or what `confinement.View` says; then it gets namespaces.
    `filter`: the seccomp program, or empty.
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


class _Keeper:
    def __init__(self, control: int, request: dict, network: int) -> None:  # type: ignore[type-arg]
        self._control = control
        self._request = request
        self._network = network
        self._user = request[Request.USER]
        self._namespaces = request[Request.VIEW] is not None
        self._child = -1
        self._exit_code: int | None = None
        self._wake, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _catch_signals()
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        except OSError:
            pass  # then what leaves the program's family is not found again

    def keep(self, channel: int) -> None:
        if self._user is None and not (self._namespaces and counts_tasks_per_namespace()):
            self._request[Request.PROCESSES] += tasks_of(os.getuid())
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
        """Returns why it could not be started; empty if it was."""
        try:
            if self._network >= 0:
                enter_network(self._network)
            if self._namespaces:
                enter_file_namespace(self._request[Request.VIEW])
        except OSError as error:
            return str(error)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        self._child = os.fork()
        if not self._child:
            try:
                _become(self._request, channel, keeper)
            except BaseException as error:  # noqa: BLE001 - all of them are reported to the parent
                os.write(writer, str(error).encode(errors="replace")[:1000])
            finally:
                os._exit(1)
        os.close(writer)
        problem = os.read(reader, 1000).decode(errors="replace").replace("\n", " ")
        os.close(reader)
        return problem

    def _await(self) -> None:
        """Return when the program has exited or is to be ended."""
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
        if self._exit_code is None:  # until it is reaped its number is its own
            try:
                os.killpg(self._child, _signal.SIGTERM)
            except OSError:
                pass

    def _reap(self) -> bool:
        """Reap what is dead. Says whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._exit_code = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        while self._reap():
            if self._namespaces:
                send([-1], _signal.SIGKILL)  # all of its namespace but this one
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
    """Take signals as they come. A caught signal has its default effect in an executed program."""
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, lambda *_: None)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])


def _become(request: dict, channel: int, parent: int) -> None:  # type: ignore[type-arg]
    """Turn this process, a fork of *parent*, into the program."""
    for number in _signal.valid_signals():
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # SIGKILL and its like
    os.setsid()
    prctl(PR_SET_DUMPABLE, 1)  # or its files in /proc were root's, the next line's too
    os.nice(_NICE)  # however many they are, the executor gets its share of the processor
    _be_first_to_go()
    if request[Request.USER] is not None:
        become_user(request[Request.USER])
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # a change of user would have taken it away
    if os.getppid() != parent:
        os._exit(1)  # it died before it was asked for; no signal will come
    limit(
        [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NPROC, request[Request.PROCESSES]),
            *request[Request.LIMITS],
        ]
    )
    os.umask(0o077)
    try:
        os.chdir(request[Request.FOLDER])
    except OSError as error:
        raise OSError(f"folder: {error}") from error
    environment = request[Request.ENVIRONMENT]
    if channel >= 0:
        os.set_inheritable(channel, True)
        environment[request[Request.CHANNEL]] = str(channel)
    refuse_calls(request[Request.FILTER])
    program = request[Request.PROGRAM]
    os.execve(program[0], program, environment)  # noqa: S606


def _be_first_to_go() -> None:
    """Short of memory, the kernel shall end the script rather than its executor."""
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)
    except OSError:
        pass  # where it cannot be told, so be it


def _kill_user(user: int, warden: int) -> None:
    """Kill all processes of *user*.

    By the warden's number the user can neither kill nor stop this one meanwhile. The real number
    must not stay 0: whoever has that may kill root's processes, and this would.
    """
    os.setresuid(warden, user, 0)
    try:
        os.kill(-1, _signal.SIGKILL)
    except OSError:
        pass  # there are none
    finally:
        os.setresuid(0, 0, 0)


def drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _read_all(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def keep(control: int, request: int, channel: int, network: int, *, namespaces: bool) -> None:
    """Start what the file *request* says, and see to its end.

    Args:
        control: The socket to the executor.
        request: The descriptor of the file.
        channel: What the program gets of the channel; -1: none.
        network: The network namespace that it enters; -1: it stays in the executor's.
        namespaces: Whether it gets namespaces. Known before the request is read, for a process
            that enters them as another user than root can be looked into meanwhile. Root's
            launcher has forked this process as process 1 of one already.
    """
    try:
        if namespaces and os.geteuid() != 0:
            prctl(PR_SET_DUMPABLE, 1)
            enter_process_namespace()
            prctl(PR_SET_DUMPABLE, 0)
            first = os.fork()
            if first:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) != 0)
        asked = marshal.loads(_read_all(request))  # noqa: S302 - the executor's own
        os.close(request)
        kept = _Keeper(control, asked, network)
    except (OSError, ValueError, EOFError) as error:
        os.write(control, b"E " + str(error).encode(errors="replace")[:1000] + b"\n")
        return
    kept.keep(channel)
