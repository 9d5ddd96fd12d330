"""Reads the process table in /proc and kills processes. Part of the keeper: uses few modules of the
standard library and nothing else.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import time

TYPE_CHECKING = False  # the typing module takes 5 ms, collections.abc 3
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_STOPS_AT_MOST = 50
_GONE_WITHIN = 10.0  # seconds


def kill_descendants() -> None:
    """Kill all descendants of this process; stop them first, so that none forks meanwhile."""
    stopped: set[int] = set()
    for _ in range(_STOPS_AT_MOST):
        fresh = descendants(os.getpid()) - stopped
        if not fresh:
            break
        send(fresh, _signal.SIGSTOP)
        stopped |= fresh
    send(stopped, _signal.SIGKILL)


def kill_orphans(known: Collection[int], *, session: int = 0) -> None:
    """Kill the children of this process that are not in *known*, with their descendants.

    This process is a subreaper: it adopts the processes that a killed keeper leaves. Children in
    the session *session* are left alone; 0 for none.
    """
    own, until = os.getpid(), time.monotonic() + _GONE_WITHIN
    while time.monotonic() < until:
        children: dict[int, list[int]] = {}
        strangers = []
        for pid, _, fields in processes():
            parent = int(fields[1])
            children.setdefault(parent, []).append(pid)
            if parent == own and int(fields[3]) != session and pid not in known:
                strangers.append(pid)
        if not strangers:
            return
        family = list(strangers)
        for pid in family:
            family += children.get(pid, [])
        for number in (_signal.SIGSTOP, _signal.SIGKILL):
            send(family, number)
        for pid in strangers:
            try:
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass  # not dead yet, or no longer a child
        time.sleep(0.002)


def family_of(pid: int) -> tuple[int, int]:
    """The pid of the parent of *pid*, and the id of its session.

    Raises:
        OSError: The process does not exist.
    """
    fields = _stat(pid)
    return int(fields[1]), int(fields[3])


def send(pids: Iterable[int], number: int) -> None:
    """Send the signal *number* to each of *pids*. Errors are ignored."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def descendants(ancestor: int) -> set[int]:
    """The pids of all descendants of *ancestor*."""
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


def tasks_of(user: int) -> int:
    """The number of processes and threads of *user*."""
    return sum(int(fields[17]) for _, owner, fields in processes() if owner == user)


def processes() -> Iterable[tuple[int, int, list[bytes]]]:
    """Pid, owner and fields of ``/proc/<pid>/stat``, from the state on, of each process.

    The owner is that of the folder: if the process is not dumpable, its files belong to root.
    """
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            owner = os.stat(f"/proc/{name}").st_uid
            fields = _stat(int(name))
        except OSError:
            continue  # it has ended
        yield int(name), owner, fields


def _stat(pid: int) -> list[bytes]:
    """The fields of ``/proc/<pid>/stat``, from the state on."""
    stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(stat, 4096).rpartition(b")")[2].split()
    finally:
        os.close(stat)
