"""Working folders: made for a run, removed with whatever is in them, and swept if nobody is left
who would.

A folder is locked by whoever uses it. The kernel takes the lock from one that dies; what is not
locked any more is swept by the next that starts on the machine.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)

_PREFIX = "nextfire-sandbox-"  # of nobody else: what has it is swept
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IPC_RMID = 0
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108


class LockedFolder:
    """A new folder, closed to other users; it is ours until `remove`."""

    def __init__(self, root: Path, kind: str) -> None:
        """Make ``nextfire-sandbox-<kind>-…`` in *root*.

        Raises:
            OSError: There it cannot be made.
        """
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=root))
            lock = _lock(self.path)
            if lock is not None:
                self.lock = lock
                return
            # A sweeper found it before it was locked: there it goes.

    def remove(self) -> None:
        """Remove it with all it holds. May be called again."""
        if self.lock >= 0:
            remove(self.path)
            os.close(self.lock)
            self.lock = -1


def sweep(root: Path, ours: Callable[[int], bool]) -> None:
    """Remove the folders in *root* whose owner is *ours*, and that nobody uses any more."""
    with suppress(OSError):
        for entry in os.scandir(root):
            if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError):
                if not ours(entry.stat(follow_symlinks=False).st_uid):
                    continue
                path = Path(entry.path)
                path.chmod(stat.S_IRWXU)  # a script may have closed it to its own user
                lock = _lock(path)
                if lock is not None:
                    remove(path)
                    os.close(lock)


def sweep_user(user: int, root: Path) -> None:
    """Remove what *user* left where everybody may leave something, *root* included; and what it
    shares of the memory (System V), with its semaphores and messages.
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


def remove(path: Path) -> None:
    """Remove a file, or a folder with all it holds; follows no symbolic link."""
    with suppress(OSError, RecursionError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
        return
    # It holds folders without permissions, or deeper ones than Python can go. These two can, and
    # follow no symbolic links.
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        with suppress(OSError):
            subprocess.run([*command, "--", str(path)], check=False, capture_output=True)
    if os.path.lexists(path):
        _log.warning("%s could not be removed; remove it by hand", path)


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock of the folder *path*; None if another has it."""
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
