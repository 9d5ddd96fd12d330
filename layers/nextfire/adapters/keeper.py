"""The keeper: a small process that starts one program of a script and sees to its end.

    python -I -S -c BOOT CODE CONTROL REQUEST CHANNEL HELD…

All arguments are numbers of descriptors. CODE holds this module and those that it imports,
compiled: files would be compiled for each run. REQUEST holds a marshalled `Request`, CHANNEL is
passed on to the program (-1: none), HELD are locks: they last as long as this process. CONTROL is a
socket to the executor. The keeper writes lines to it:

    S            the program has started
    E <reason>   it could not be started; nothing follows
    D            it has exited; what it left is being killed
    X <code>     nothing of it lives; its exit code, negative for a signal

It reads orders from it: ``T`` sends SIGTERM to the program's process group, ``K`` kills everything.
The end of the stream is a ``K``: nothing outlives an executor that was killed. When the program has
exited, or on ``K``, the keeper kills whatever descends from it, and reports the exit code last.

Nothing escapes. Where the host allows namespaces, the program's parent is process 1 of its process
namespace (see `_FirstProcess`): when that ends, the kernel kills the others. Elsewhere orphans
become the keeper's children (it is their subreaper), whatever session they are in. Processes of a
script user are killed by the user's number, at one stroke, which no fork outruns. Without a script
user the descendants are stopped before they are killed: stopped processes do not fork.

Standard library only, and little of it: what this imports delays every run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the signal module's enum takes 4 ms
import marshal
import os
import resource
import select
import time

# The whole path: in the keeper the packages above this module do not exist.
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

BOOT = """
import marshal, os, sys
for name, code in marshal.loads(os.pread(int(sys.argv[1]), 1 << 20, 0)):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(sys.argv[1:])
os._exit(0)  # nothing is left to tidy up, and Python would take 3 ms to
"""
"""Runs the last of the modules in CODE, after those that it imports."""
_NICE = 5
_POLL = 0.002  # seconds


class Request:
    """What to start, as it is marshalled: the keys of a dict.

    `program`: its file and its arguments. `environment`, `folder`: its own. `user`: None, or the
    ids (user, warden, group, other groups) that it gets; nothing else may run under the user's
    and the warden's. `limits`: pairs of a resource and its bound. `processes`: how many the program
    and its descendants may be. `view`: None, or what `confinement.View` says; then it gets
    namespaces. `network`: the descriptor of the network namespace that it enters, or -1. `filter`:
    the seccomp program, or empty.
    """

    PROGRAM = "program"
    ENVIRONMENT = "environment"
    FOLDER = "folder"
    USER = "user"
    LIMITS = "limits"
    PROCESSES = "processes"
    VIEW = "view"
    NETWORK = "network"
    FILTER = "filter"


class _Keeper:
    def __init__(self, control: int, request: dict) -> None:  # type: ignore[type-arg]
        self._control = control
        self._request = request
        self._user = request[Request.USER]
        self._namespaces = request[Request.VIEW] is not None
        self._child = -1
        self._exit_code: int | None = None
        self._outcome = -1
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
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            if self._namespaces:
                enter_process_namespace()
        except OSError as error:
            return str(error)
        keeper = os.getpid()
        self._outcome, outcome = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._child = os.fork()
        if not self._child:
            try:
                if self._namespaces:
                    _FirstProcess(self._request, channel, outcome).serve(writer)
                else:
                    _become(self._request, channel, keeper)
            except BaseException as error:  # noqa: BLE001 - all of them are reported to the parent
                os.write(writer, str(error).encode(errors="replace")[:1000])
            finally:
                os._exit(1)
        if self._user is None:
            # The program is of the same user: it must not look into this one's memory.
            prctl(PR_SET_DUMPABLE, 0)
        os.close(outcome)
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
                    _drain(self._wake)
                    self._reap()
                    continue
                order = os.read(self._control, 64)
                if not order or b"K" in order:
                    return
                self._terminate()

    def _terminate(self) -> None:
        if self._exit_code is None:  # until it is reaped its number is its own
            try:
                if self._namespaces:
                    os.kill(self._child, _signal.SIGTERM)  # passed on, see `_FirstProcess`
                else:
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
                written = os.read(self._outcome, 64) if self._namespaces else b""
                self._exit_code = int(written or os.waitstatus_to_exitcode(status))

    def _end_all(self) -> None:
        while self._reap():
            if self._namespaces:
                send([self._child], _signal.SIGKILL)  # and with it, all of its namespace
            elif self._user is None:
                kill_descendants()
            else:
                _kill_user(*self._user[:2])
            time.sleep(_POLL)
        if self._user is not None:
            _kill_user(*self._user[:2])

    def _report(self, line: str) -> None:
        try:
            os.write(self._control, line.encode(errors="replace") + b"\n")
        except OSError:
            pass  # the executor is gone


class _FirstProcess:
    """Process 1 of the program's process namespace: starts it, reaps, and ends with it.

    The program cannot kill it, even where both are of one user: the kernel drops such signals. It
    holds the keeper's locks and CONTROL too, so both outlast all that descends from the program.
    """

    def __init__(self, request: dict, channel: int, outcome: int) -> None:  # type: ignore[type-arg]
        self._request = request
        self._channel = channel
        self._outcome = outcome
        self._program = -1

    def serve(self, writer: int) -> None:
        """Start the program; when it has exited, write its exit code to *outcome* and end.

        *writer*: to report why it does not start; closed when it has.
        """
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        if self._request[Request.NETWORK] >= 0:
            enter_network(self._request[Request.NETWORK])
        enter_file_namespace(self._request[Request.VIEW])
        _catch_signals()
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGTERM, self._pass_on)
        self._program = os.fork()
        if not self._program:
            try:
                _become(self._request, self._channel, 1)
            except BaseException as error:  # noqa: BLE001 - as in the keeper
                os.write(writer, str(error).encode(errors="replace")[:1000])
            finally:
                os._exit(1)
        prctl(PR_SET_DUMPABLE, 0)
        for descriptor in (0, 1, 2, writer, *([self._channel] if self._channel >= 0 else [])):
            os.close(descriptor)
        while True:
            pid, status = os.wait()
            if pid == self._program:
                os.write(self._outcome, b"%d" % os.waitstatus_to_exitcode(status))
                os._exit(0)

    def _pass_on(self, *_: object) -> None:
        try:
            os.killpg(self._program, _signal.SIGTERM)
        except OSError:
            pass


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
    if channel >= 0:
        os.set_inheritable(channel, True)
    refuse_calls(request[Request.FILTER])
    program = request[Request.PROGRAM]
    os.execve(program[0], program, request[Request.ENVIRONMENT])  # noqa: S606


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


def _drain(descriptor: int) -> None:
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


def main(arguments: list[str]) -> None:
    """Keep what *arguments* say."""
    code, control, request, channel, *held = map(int, arguments)
    os.close(code)
    for descriptor in (control, request, *([channel] if channel >= 0 else []), *held):
        os.set_inheritable(descriptor, False)
    asked = marshal.loads(_read_all(request))  # noqa: S302 - the executor's own
    os.close(request)
    _Keeper(control, asked).keep(channel)
