"""The users that scripts run as if the executor is root: one per concurrent run.

They are plain uids without names and homes. All executors of a machine share them. Each user has a
lock file, and the executor that uses the user holds its lock.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import pwd
import stat
import tempfile
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from nextfire.adapters.scripts import process_table
from nextfire.dataclass import dataclass

FIRST_UID = 60_000
"""The first uid that is reserved for script users. Nothing else may use them."""
RESERVED_UIDS = 1000
"""Number of reserved uids. Each user takes two."""
_TENANT_GROUPS = 1 << 30
"""The first gid of tenant groups, and also their number."""


@dataclass(frozen=True, slots=True)
class ScriptUser:
    """A user, and the group with the same id. `warden`: the uid of the process that kills the
    user's processes. `lock`: descriptor that holds the user's lock.
    """

    number: int
    lock: int

    @property
    def warden(self) -> int:
        return self.number + 1


class ScriptUsers:
    """Allocates users from uid *first* on. Thread-safe.

    The executor keeps the lock of a returned user for its next run: finding a free user takes a
    scan of all processes of the machine.
    """

    def __init__(self, first: int) -> None:
        """Build.

        Raises:
            ValueError: The folder of the locks cannot be created.
        """
        self._first = first
        self._locks = _locks_folder()
        self._free: SimpleQueue[ScriptUser] = SimpleQueue()
        weakref.finalize(self, _release, self._free)

    def owns(self, number: int) -> bool:
        """Whether *number* is one of the reserved uids."""
        return self._first <= number < self._first + RESERVED_UIDS

    def take(self) -> ScriptUser:
        """Allocate a user that no other run uses and that has no processes.

        Raises:
            OSError: All users are in use (EAGAIN), or their files cannot be used.
        """
        with suppress(Empty):
            return self._free.get_nowait()
        for number in range(self._first, self._first + RESERVED_UIDS, 2):
            path = self._locks / str(number)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with ExitStack() as unless_taken, suppress(BlockingIOError):
                unless_taken.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _known(number) and not _known(number + 1) and not _busy(number):
                    unless_taken.pop_all()
                    return ScriptUser(number, lock)
        last = self._first + RESERVED_UIDS - 1
        raise OSError(errno.EAGAIN, f"no user from {self._first} to {last} is free")

    def give_back(self, user: ScriptUser, *, alone: bool) -> None:
        """Return *user*. *alone*: whether it is certain that it has no processes left; otherwise
        the next `take` checks that.
        """
        if alone:
            self._free.put(user)
        else:
            os.close(user.lock)


def tenant_group(tenant: str) -> int:
    """The gid of the group to which only *tenant*'s scripts belong."""
    digest = hashlib.sha256(tenant.encode()).digest()
    return _TENANT_GROUPS + int.from_bytes(digest[:8], "big") % _TENANT_GROUPS


def _release(users: SimpleQueue[ScriptUser]) -> None:
    while not users.empty():
        os.close(users.get().lock)


def _known(number: int) -> bool:
    with suppress(KeyError):
        pwd.getpwuid(number)
        return True
    return False


def _busy(number: int) -> bool:
    """Whether a process, such as one outside this project, runs under the uid or its warden's."""
    return any(owner in {number, number + 1} for _, owner, _ in process_table.processes())


def _locks_folder() -> Path:
    for path in (Path("/run/nextfire"), Path(tempfile.gettempdir(), "nextfire-users")):
        with suppress(OSError):
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022:
                return path
    raise ValueError(
        "As root the executor runs each script as a dedicated user, and stores the users' locks in "
        "/run/nextfire, which cannot be created. Let it write to /run, or run it as another user."
    )
