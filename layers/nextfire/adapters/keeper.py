"""The keeper: a small process that starts one program of a script's and sees to its end.

    python -I -S -c BOOT CODE CONTROL REQUEST CHANNEL HELD…

All are numbers of descriptors. CODE holds this module, compiled: a file would be compiled for each
run. REQUEST holds a marshalled `Request`, CHANNEL is handed on to the program (-1: there is none),
HELD are locks: they last as long as this process. CONTROL is a socket to the executor. The keeper
writes lines to it:

    S            the program has started
    E <reason>   it could not be started; nothing follows
    X <code>     it has exited, by a signal if negative

It reads orders from it: ``T`` sends SIGTERM to the program's process group, ``K`` ends everything.
The end of the stream is a ``K``: so nothing outlives an executor that was SIGKILLed. When the
program has exited, or on ``K``, the keeper kills whatever descends from it. It ends, and with it
CONTROL, when none of that lives.

Nothing escapes: orphans become the keeper's children (it is their subreaper), whatever session they
are in. Of a user of its own everything is killed by that user's number, at one stroke, which no
fork outruns. Where there is none, the descendants are stopped before they are killed: stopped ones
do not fork.

Standard library only, and little of it: what this imports delays every run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the signal module's enum takes 4 ms
import ctypes
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False  # the typing module takes 5 ms, collections.abc 3
if TYPE_CHECKING:
    from collections.abc import Iterable

BOOT = "import marshal,os,sys;exec(marshal.loads(os.pread(int(sys.argv[1]),1<<20,0)))"
PR_SET_DUMPABLE = 4
_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_NICE = 5
_STOPS_AT_MOST = 50
_POLL = 0.002  # seconds


class Request:
    """What to start, as it is marshalled: the keys of a dict.

    `program`: its file and its arguments. `environment`, `folder`: its own. `user`: None, or the
    ids (user, warden, group, other groups) that it gets; nothing else may run under the user's
    and the warden's. `limits`: pairs of a resource and its bound. `processes`: how many the program
    and its descendants may be.
    """

    PROGRAM = "program"
    ENVIRONMENT = "environment"
    FOLDER = "folder"
    USER = "user"
    LIMITS = "limits"
    PROCESSES = "processes"


def prctl(option: int, value: int) -> None:
    """Set an attribute of the calling process (Linux).

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = [ctypes.c_ulong(n) for n in (value, 0, 0, 0)]
    if libc.prctl(ctypes.c_int(option), *numbers) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


class _Keeper:
    def __init__(self, control: int, request: dict) -> None:  # type: ignore[type-arg]
        self._control = control
        self._request = request
        self._user = request[Request.USER]
        self._child = -1
        self._exit_code: int | None = None
        self._wake, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Caught, not ignored: a caught signal has its default effect again in what is executed.
        for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, lambda *_: None)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        try:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        except OSError:
            pass  # then what leaves the program's family is not found again

    def keep(self, channel: int) -> None:
        if self._user is None:
            self._request[Request.PROCESSES] += _tasks_of(os.getuid())
        problem = self._start(channel)
        try:
            if channel >= 0:
                os.close(channel)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(null, standard)
            if problem:
                self._tell("E " + problem)
                return
            self._tell("S")
            self._await()
            if self._exit_code is not None:
                self._tell(f"X {self._exit_code}")
        finally:
            told = self._exit_code is not None
            self._end_all()
        if not told:
            self._tell(f"X {self._exit_code}")

    def _start(self, channel: int) -> str:
        """Returns why it could not be started; empty if it was."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        self._child = os.fork()
        if not self._child:
            try:
                _become(self._request, channel, keeper)
            except BaseException as error:  # noqa: BLE001 - all of them are told to the parent
                os.write(writer, str(error).encode(errors="replace")[:1000])
            finally:
                os._exit(1)
        if self._user is None:
            # The program is of the same user: it shall not look into this one's memory.
            prctl(PR_SET_DUMPABLE, 0)
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
            if self._user is None:
                _kill_descendants()
            else:
                _kill_user(*self._user[:2])
            time.sleep(_POLL)
        if self._user is not None:
            # Whoever is in a process namespace of its own has another to adopt its orphans.
            _kill_user(*self._user[:2])

    def _tell(self, line: str) -> None:
        try:
            os.write(self._control, line.encode(errors="replace") + b"\n")
        except OSError:
            pass  # the executor is gone


def _become(request: dict, channel: int, keeper: int) -> None:  # type: ignore[type-arg]
    """Turn this process, a fork of the keeper, into the program."""
    for number in _signal.valid_signals():
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # SIGKILL and its like
    os.setsid()
    os.nice(_NICE)  # however many they are, the executor gets its share of the processor
    _be_first_to_go()
    if request[Request.USER] is not None:
        user, _, group, groups = request[Request.USER]
        try:
            os.setgroups(groups)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
        except OSError as error:
            raise OSError(f"user: cannot become user {user}: {error}") from error
    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)  # a change of user would have taken it away
    if os.getppid() != keeper:
        os._exit(1)  # it died before it was asked for; no signal will come
    prctl(_PR_SET_NO_NEW_PRIVS, 1)  # no program that it starts gives it another user's rights
    for kind, bound in [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, request[Request.PROCESSES]),
        *request[Request.LIMITS],
    ]:
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            bound = min(bound, most)  # noqa: PLW2901
        resource.setrlimit(kind, (bound, bound))
    os.umask(0o077)
    try:
        os.chdir(request[Request.FOLDER])
    except OSError as error:
        raise OSError(f"folder: {error}") from error
    if channel >= 0:
        os.set_inheritable(channel, True)
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


def _kill_descendants() -> None:
    stopped: set[int] = set()
    for _ in range(_STOPS_AT_MOST):
        fresh = _descendants(os.getpid()) - stopped
        if not fresh:
            break
        _send(fresh, _signal.SIGSTOP)
        stopped |= fresh
    _send(stopped, _signal.SIGKILL)


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def _descendants(ancestor: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, _, fields in processes():
        children.setdefault(int(fields[1]), []).append(pid)
    found: set[int] = set()
    todo = children.get(ancestor, [])
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def _tasks_of(user: int) -> int:
    return sum(int(fields[17]) for _, owner, fields in processes() if owner == user)


def processes() -> Iterable[tuple[int, int, list[bytes]]]:
    """Number, owner and what ``/proc/…/stat`` says of each process, from its state on.

    One that is undumpable is root's there.
    """
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                owner = os.fstat(stat).st_uid
                fields = os.read(stat, 4096).rpartition(b")")[2].split()
            finally:
                os.close(stat)
        except OSError:
            continue  # it has ended
        yield int(name), owner, fields


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
    for descriptor in (control, request, *held):
        os.set_inheritable(descriptor, False)
    if channel >= 0:
        os.set_inheritable(channel, False)
    asked = marshal.loads(_read_all(request))  # noqa: S302 - the executor's own
    os.close(request)
    _Keeper(control, asked).keep(channel)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # nothing is left to tidy up, and Python would take 3 ms to
