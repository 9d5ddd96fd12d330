"""The users that scripts run as, where the executor is root: one for each run at a time.

They have numbers only, no names and no homes. All executors of a machine share them; a file for
each, locked by whoever has it, tells which are free.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import stat
import tempfile
import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from nextfire.adapters import process_table

FIRST = 60_000
"""The first number, unless the executor is given another."""
NUMBERS = 1000
"""How many numbers, from the first on, are ours. A user takes two."""
_TENANT_GROUPS = 1 << 30
"""The first number of the tenants' groups, and how many there are."""


@dataclass(frozen=True, slots=True)
class ScriptUser:
    """A user, and the group of the same number. `warden`: the number from which it is killed.
    `lock`: the descriptor that keeps it ours.
    """

    number: int
    lock: int

    @property
    def warden(self) -> int:
        return self.number + 1


class ScriptUsers:
    """Users from *first* on, for any number of threads at a time. One that was taken stays this
    executor's, for its next run: to find one, all processes of the machine are looked at.
    """

    def __init__(self, first: int) -> None:
        """Build.

        Raises:
            ValueError: There is no place for the locks.
        """
        self._first = first
        self._locks = _locks_folder()
        self._free: SimpleQueue[ScriptUser] = SimpleQueue()
        weakref.finalize(self, _release, self._free)

    def owns(self, number: int) -> bool:
        """Whether *number* may be one of them."""
        return self._first <= number < self._first + NUMBERS

    def take(self) -> ScriptUser:
        """A user that nobody else has, and whose processes are none.

        Raises:
            OSError: There is none left.
        """
        with suppress(Empty):
            return self._free.get_nowait()
        for number in range(self._first, self._first + NUMBERS, 2):
            path = self._locks / str(number)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with ExitStack() as unless_taken, suppress(BlockingIOError):
                unless_taken.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _known(number) and not _known(number + 1) and not _busy(number):
                    unless_taken.pop_all()
                    return ScriptUser(number, lock)
        raise OSError(f"no user from {self._first} to {self._first + NUMBERS - 1} is free")

    def give_back(self, user: ScriptUser, *, alone: bool) -> None:
        """Have *user* taken again; *alone*: it is known that none of its processes lives. Where
        that is not known, whoever takes it looks.
        """
        if alone:
            self._free.put(user)
        else:
            os.close(user.lock)


def tenant_group(tenant: str) -> int:
    """The number of the group that only *tenant*'s scripts belong to."""
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
    """Whether somebody else uses it, against all custom."""
    return any(owner in {number, number + 1} for _, owner, _ in process_table.processes())


def _locks_folder() -> Path:
    for path in (Path("/run/nextfire"), Path(tempfile.gettempdir(), "nextfire-users")):
        with suppress(OSError):
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022:
                return path
    raise ValueError(
        "As root the executor gives every script a user of its own, and keeps locks of them in "
        "/run/nextfire, which cannot be made. Let it write to /run, or run it as another user."
    )
