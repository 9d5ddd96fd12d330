"""The processes of the machine, as /proc lists them. Part of the keeper: standard library only, and
little of it.
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
    """Kill all that descends from this process; stopped first, so that nothing forks meanwhile."""
    stopped: set[int] = set()
    for _ in range(_STOPS_AT_MOST):
        fresh = descendants(os.getpid()) - stopped
        if not fresh:
            break
        send(fresh, _signal.SIGSTOP)
        stopped |= fresh
    send(stopped, _signal.SIGKILL)


def kill_strangers(known: Collection[int], *, session: int = 0) -> None:
    """Kill the children of this process that are not among *known*, with their families: what a
    keeper left that was killed itself came to this process, which is a subreaper.

    Children of *session* are left alone; 0 is nobody's.
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
                pass  # it is not dead yet, or somebody else's by now
        time.sleep(0.002)


def family_of(pid: int) -> tuple[int, int]:
    """The numbers of the parent of *pid* and of its session.

    Raises:
        OSError: It is gone.
    """
    stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fields = os.read(stat, 4096).rpartition(b")")[2].split()
    finally:
        os.close(stat)
    return int(fields[1]), int(fields[3])


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of *pids* that it can be sent to."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def descendants(ancestor: int) -> set[int]:
    """The numbers of all processes that descend from *ancestor*."""
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
