"""The launcher: a small process, started once, that forks a keeper for each program of a script.

    python -I -S -c BOOT CODE SOCKET

The launcher starts with a clean environment before the executor holds a secret, and never reads the
requests of its keepers. So a keeper, which is a fork of the launcher, holds no data of another run.
The fork saves each run the start of an interpreter.

SOCKET is a SOCK_SEQPACKET of the executor. Each message requests one keeper: a `Launch` with its
descriptors. The launcher writes one line to the keeper's control socket, before the keeper's lines:

    P <number>   the keeper's pid
    E <reason>   the keeper cannot be started; the last line

The launcher keeps the control socket open until it has reaped the keeper and, if the keeper was
killed, has killed the processes that it left. So the end of that stream means that no process of
the program is left. When SOCKET ends, the executor is gone: the keepers end by themselves, and the
launcher exits after the last keeper.

Uses few modules of the standard library and nothing else: each fork copies the page tables.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import gc
import os
import select
import struct

# Absolute imports: in the launcher the parent packages of these modules do not exist.
from nextfire.adapters.scripts.confinement import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    enter_process_namespace,
    leave_process_namespace,
    prctl,
)
from nextfire.adapters.scripts.forked_script import ForkedScript, ScriptEnd, become_script
from nextfire.adapters.scripts.keeper import drain, keep
from nextfire.adapters.scripts.process_table import kill_orphans

TYPE_CHECKING = False  # the typing module takes 5 ms
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

READY = b"R"
"""The only message to the executor, from a launcher that forks scripts: it has started."""
_INT = struct.calcsize("=i")


class Launch:
    """A message of two bytes, version and flags, with descriptors.

    The first `FIXED` descriptors: control socket, marshalled `keeper.ProgramRequest`, standard
    input, output and error. Then the descriptors that the flags `CHANNEL` and `NETWORK` announce,
    then locks, which the keeper holds while it lives.
    """

    VERSION = 1
    CHANNEL, NETWORK, NAMESPACES = 1, 2, 4
    FIXED = 5
    MOST = 64
    """Maximum number of descriptors."""


class _Launcher:
    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)
        self._keepers: dict[int, int] = {}
        """Control sockets by the pid of the keeper."""
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def report_ready(self) -> None:
        """Send `READY`."""
        self._socket.send(READY)

    def serve(self) -> None:
        """Return when the executor and all keepers are gone."""
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
        """Start the keeper that the next message requests. False at the end of the stream."""
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
                problem = f"cannot fork a keeper: {error}"
            if not kept:
                self._become_keeper(message[1], descriptors)
        if kept > 0:
            self._keepers[kept] = descriptors.pop(0)
            _report(self._keepers[kept], f"P {kept}")
        elif descriptors:
            _report(descriptors[0], f"E {problem}")
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, *, first: bool) -> int:
        """Like `os.fork`. *first*: make the child process 1 of a new PID namespace."""
        if not first:
            return os.fork()
        enter_process_namespace()
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                leave_process_namespace(self._own_namespace)
        return pid

    def _become_keeper(self, flags: int, descriptors: list[int]) -> None:
        """Turn this process, a fork, into the keeper. Does not return.

        Raises:
            ForkedScript: This process is a fork of the keeper, and must run the script.
        """
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
        except ForkedScript:
            raise
        except BaseException:  # noqa: BLE001 - its exit status reports that it failed
            os._exit(1)
        os._exit(0)  # no cleanup is needed

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
                # Regardless of its reports: a keeper that exits by itself leaves no processes.
                killed = killed or status != 0
        if killed:
            kill_orphans(self._keepers)
        for control in over:
            os.close(control)


def _problem_of(message: bytes, descriptors: list[int], flags: int) -> str:
    """Why a message is invalid; empty if it is valid."""
    if len(message) != 2 or message[0] != Launch.VERSION:  # noqa: PLR2004 - version, flags
        return f"the executor speaks another version of the launcher's protocol: {message!r}"
    wanted = Launch.FIXED + bool(message[1] & Launch.CHANNEL) + bool(message[1] & Launch.NETWORK)
    if flags & _socket.MSG_CTRUNC or len(descriptors) < wanted:
        return "descriptors of the message did not arrive: too many are open"
    return ""


def _report(control: int, line: str) -> None:
    try:
        os.write(control, line.encode(errors="replace") + b"\n")
    except OSError:
        pass  # the executor is gone


def main(arguments: list[str], usual: Collection[str] = ()) -> tuple[dict[str, Any], ScriptEnd]:
    """Serve the executor.

    Args:
        arguments: The descriptors CODE and SOCKET.
        usual: The modules of a new interpreter, if keepers fork scripts.

    Returns:
        Returns only in a fork that must run a script: see `become_script`.
    """
    code, descriptor = map(int, arguments)
    os.close(code)
    os.set_inheritable(descriptor, False)
    # Scripts may run as the same user: they must not inspect new keepers.
    prctl(PR_SET_DUMPABLE, 0)
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError:
        pass  # processes that leave the process tree of a killed keeper are then not found
    gc.disable()
    gc.freeze()
    try:
        launcher = _Launcher(descriptor)
        if usual:
            launcher.report_ready()
        launcher.serve()
        os._exit(0)
    except ForkedScript as raised:
        script = raised.with_traceback(None)  # frees the launcher's objects
    return become_script(script, usual)
