"""Working folders: created for a run, removed with their contents, and swept if their owner dies.

The process that uses a folder holds a lock on it. The kernel releases the lock when the process
dies. The next executor that starts on the machine sweeps unlocked folders.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from nextfire.adapters.scripts.removal import open_folder, remove

_PREFIX = "nextfire-sandbox-"  # reserved: folders with this prefix are swept
_IPC_RMID = 0
_WAIT_AT_MOST = 2.0  # seconds
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108


class LockedFolder:
    """A new folder, closed to other users. This process holds its lock until `remove`."""

    def __init__(self, root: Path, kind: str) -> None:
        """Create ``nextfire-sandbox-<kind>-…`` in *root*.

        Raises:
            OSError: The folder cannot be created.
        """
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=root))
            try:
                lock = _lock(self.path)
            except OSError:
                self.path.rmdir()
                raise
            if lock is not None:
                self.lock = lock
                return
            # A sweeper found the folder before it was locked and removes it: try another.

    def remove(self) -> None:
        """Remove the folder and its contents. Idempotent.

        What cannot be removed is closed to script users: its owner may be the next run's user.
        """
        if self.lock >= 0:
            with suppress(OSError):
                os.fchmod(self.lock, 0o700)  # not by its path, which a script may have replaced
            remove(self.path)
            os.close(self.lock)
            self.lock = -1


def sweep(root: Path, ours: Callable[[int], bool]) -> None:
    """Remove unused folders in *root*. *ours*: whether a uid is the executor's or a script's."""
    with suppress(OSError):
        for entry in os.scandir(root):
            if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError):
                if not ours(entry.stat(follow_symlinks=False).st_uid):
                    continue
                path = Path(entry.path)
                lock = _lock(path)
                if lock is not None:
                    remove(path)
                    os.close(lock)


def sweep_user(user: int, root: Path) -> None:
    """Remove files that *user* left in world-writable folders and *root*, and the user's System V
    shared memory, semaphores and message queues.
    """
    for folder in {*_SHARED, str(root)}:
        with suppress(OSError):
            for entry in os.scandir(folder):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        remove(Path(entry.path))
    _sweep_ipc(user)


def _sweep_ipc(user: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    removals: dict[str, Callable[[int], int]] = {
        "shm": lambda number: libc.shmctl(number, _IPC_RMID, None),
        "sem": lambda number: libc.semctl(number, 0, _IPC_RMID),
        "msg": lambda number: libc.msgctl(number, _IPC_RMID, None),
    }
    for kind, remove_one in removals.items():
        with suppress(OSError):
            names, *rows = Path("/proc/sysvipc", kind).read_text(encoding="ascii").splitlines()
            for row in rows:
                entry = dict(zip(names.split(), row.split(), strict=False))
                if entry["cuid"] == str(user):
                    remove_one(int(row.split()[1]))


def run_in_background_if_slow(removal: Callable[[], None]) -> None:
    """Run *removal*; after 2 s it continues in the background. The process exits after it."""
    thread = threading.Thread(target=removal, name="removal", daemon=False)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        removal()
    else:
        thread.join(_WAIT_AT_MOST)


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock of the folder *path*; None if another process holds it."""
    with ExitStack() as unless_ours, suppress(BlockingIOError, FileNotFoundError):
        with open_folder(path) as opened:
            descriptor = os.dup(opened)
        unless_ours.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            unless_ours.pop_all()
            return descriptor
    return None
