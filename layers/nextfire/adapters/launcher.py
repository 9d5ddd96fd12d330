"""The launcher: a small process, started once, that forks a keeper for each program of a script.

    python -I -S -c BOOT CODE SOCKET

It is started with a clean environment before the executor holds a secret, and never reads what a
keeper is told; so a keeper, which is a fork of it, has nothing of another run. It saves each run
the start of an interpreter.

SOCKET is a SOCK_SEQPACKET of the executor. A message asks for one keeper: a `Launch`, with its
descriptors. On the keeper's control socket the launcher writes one line before the keeper's:

    P <number>   the number of the keeper's process
    E <reason>   it cannot be started; nothing follows

The launcher holds the control socket too, until it has reaped the keeper and killed what a killed
one left: the end of that stream says that nothing of the program lives. When SOCKET ends, the
executor is gone: its keepers end by themselves, and the launcher after the last of them.

Standard library only, and little of it: each fork copies the tables of its memory.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import gc
import os
import select
import struct

# The whole path: in the launcher the packages above these modules do not exist.
from nextfire.adapters.confinement import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    children_stay,
    enter_process_namespace,
    prctl,
)
from nextfire.adapters.keeper import drain, keep
from nextfire.adapters.process_table import kill_strangers

_INT = struct.calcsize("=i")


class Launch:
    """A message, as bytes: its version, what follows (`FLAGS`). Its descriptors: `FIXED` of them,
    the control socket, the marshalled `keeper.Request`, standard input, output and error; those
    that the flags `CHANNEL` and `NETWORK` announce; and locks, which last as long as the keeper.
    """

    VERSION = 1
    CHANNEL, NETWORK, NAMESPACES = 1, 2, 4
    FIXED = 5
    MOST = 64
    """Descriptors."""


class _Launcher:
    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)
        self._keepers: dict[int, int] = {}
        """The control sockets, by the number of the keeper."""
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Return when the executor is gone, and all keepers."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        asked = True
        while asked or self._keepers:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    drain(self._wake)
                    self._reap()
                elif not self._launch():
                    poll.unregister(self._socket)
                    asked = False

    def _launch(self) -> bool:
        """Start the keeper that the next message asks for. Says whether there was one."""
        room = _socket.CMSG_SPACE(Launch.MOST * _INT)
        message, ancillary, flags, _ = self._socket.recvmsg(64, room, _socket.MSG_CMSG_CLOEXEC)
        descriptors = [
            descriptor
            for level, kind, data in ancillary
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
            for (descriptor,) in struct.iter_unpack("=i", data[: len(data) // _INT * _INT])
        ]
        if not message and not descriptors:
            return False
        kept = -1
        problem = _problem_of(message, descriptors, flags)
        if not problem:
            first = bool(message[1] & Launch.NAMESPACES) and os.geteuid() == 0
            try:
                kept = self._fork(first=first)
            except OSError as error:
                problem = f"no process for its keeper: {error}"
            if not kept:
                self._become_keeper(message[1], descriptors)
        if kept > 0:
            self._keepers[kept] = descriptors.pop(0)
            _tell(self._keepers[kept], f"P {kept}")
        elif descriptors:
            _tell(descriptors[0], f"E {problem}")
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, *, first: bool) -> int:
        """As `os.fork`; *first*: the child is process 1 of a process namespace."""
        if not first:
            return os.fork()
        enter_process_namespace()
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                children_stay(self._own_namespace)
        return pid

    def _become_keeper(self, flags: int, descriptors: list[int]) -> None:
        """Turn this process, a fork, into the keeper; it does not return."""
        code = 1
        try:
            _signal.set_wakeup_fd(-1)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            os.setsid()
            own = (self._wake, self._waker, self._own_namespace)
            for descriptor in (*self._keepers.values(), *own):
                os.close(descriptor)
            self._socket.close()
            control, request, *standard = descriptors[: Launch.FIXED]
            for number, descriptor in enumerate(standard):
                os.dup2(descriptor, number)
                os.close(descriptor)
            more = iter(descriptors[Launch.FIXED :])
            channel = next(more) if flags & Launch.CHANNEL else -1
            network = next(more) if flags & Launch.NETWORK else -1
            namespaces = bool(flags & Launch.NAMESPACES)
            keep(control, request, channel, network, namespaces=namespaces)
            code = 0
        finally:
            os._exit(code)  # nothing is left to tidy up

    def _reap(self) -> None:
        over, killed = [], False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._keepers:
                over.append(self._keepers.pop(pid))
                # Whatever it reported. One that exits by itself has left nothing.
                killed = killed or status != 0
        if killed:
            kill_strangers(self._keepers)
        for control in over:
            os.close(control)


def _problem_of(message: bytes, descriptors: list[int], flags: int) -> str:
    """Why a message cannot be followed; empty if it can."""
    if len(message) != 2 or message[0] != Launch.VERSION:  # noqa: PLR2004 - version, flags
        return f"the executor speaks another version of the launcher's protocol: {message!r}"
    wanted = Launch.FIXED + bool(message[1] & Launch.CHANNEL) + bool(message[1] & Launch.NETWORK)
    if flags & _socket.MSG_CTRUNC or len(descriptors) < wanted:
        return "its descriptors did not arrive: too many are open"
    return ""


def _tell(control: int, line: str) -> None:
    try:
        os.write(control, line.encode(errors="replace") + b"\n")
    except OSError:
        pass  # the executor is gone


def main(arguments: list[str]) -> None:
    """Serve the executor at the other end of the socket that *arguments* name."""
    code, descriptor = map(int, arguments)
    os.close(code)
    os.set_inheritable(descriptor, False)
    # Scripts may be of the same user: they must not look into what keepers begin with.
    prctl(PR_SET_DUMPABLE, 0)
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError:
        pass  # then what leaves the family of a killed keeper is not found again
    gc.disable()
    gc.freeze()
    _Launcher(descriptor).serve()
