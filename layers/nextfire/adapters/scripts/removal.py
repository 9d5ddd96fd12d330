"""Removes files and folders that a script left, however deep, numerous or unreadable they are.

Works on descriptors of folders and never follows a symbolic link: the executor may be root, and the
script controls the contents. Starts no process.
"""

from __future__ import annotations

import logging
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

_log = logging.getLogger(__name__)

_AT_A_TIME = 1000
"""Entries of a folder per batch: a folder may hold millions."""
_GIVE_UP_AFTER = 300.0
"""Timeout in seconds: another process may add files as fast as they are removed."""
_RECURSION = 3
"""Levels of folders: what is deeper is moved up, so that depth does not matter."""
_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove(path: Path) -> None:
    """Remove a file, or a folder with its contents. Failures are logged."""
    with suppress(FileNotFoundError):
        try:
            if not stat.S_ISDIR(path.lstat().st_mode):
                path.unlink()
                return
            with open_folder(path) as folder:
                _empty(folder, time.monotonic() + _GIVE_UP_AFTER)
            path.rmdir()
        except FileNotFoundError:
            raise
        except OSError as error:
            _log.warning("cannot remove %s (%s); remove it manually", path, error)


@contextmanager
def open_folder(path: str | Path, inside: int | None = None) -> Iterator[int]:
    """Open a folder for listing; *path* is relative to the folder descriptor *inside* if given.

    If the owner lacks permissions, they are added, on the opened folder itself: the path may lead
    elsewhere by then.

    Raises:
        OSError: *path* is not a folder, or may not be opened.
    """
    found = os.open(path, _PATH, dir_fd=inside)
    try:
        mode = os.fstat(found).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{found}").chmod(stat.S_IRWXU)
        opened = os.open(".", _READ, dir_fd=found)
    finally:
        os.close(found)
    try:
        yield opened
    finally:
        os.close(opened)


def _empty(top: int, until: float) -> None:
    """Remove the contents of *top*.

    Raises:
        OSError: An entry cannot be removed.
    """
    while entries := _list_batch(top):
        failure: OSError | None = None
        failed = 0
        for entry in entries:
            try:
                _remove_entry(top, top, entry, _RECURSION)
            except FileNotFoundError:
                continue
            except OSError as error:
                failure, failed = error, failed + 1
        if failure is not None and (failed == len(entries) or time.monotonic() > until):
            raise failure
        if time.monotonic() > until:
            raise OSError("another process keeps adding files")


def _remove_entry(top: int, parent: int, entry: os.DirEntry[str], recursion: int) -> None:
    """Remove *entry* of the folder *parent*. What is nested deeper than *recursion* is moved to
    *top*, to be removed from there.
    """
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.name, dir_fd=parent)
        return
    with suppress(OSError):  # most are empty
        os.rmdir(entry.name, dir_fd=parent)
        return
    with open_folder(entry.name, inside=parent) as folder:  # adds permissions, also to be moved
        if not recursion:
            os.rename(entry.name, uuid.uuid4().hex, src_dir_fd=parent, dst_dir_fd=top)
            return
        while inner := _list_batch(folder):
            for each in inner:
                _remove_entry(top, folder, each, recursion - 1)
            with suppress(OSError):  # cheaper than to list it again
                os.rmdir(entry.name, dir_fd=parent)
                return
    os.rmdir(entry.name, dir_fd=parent)


def _list_batch(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(islice(entries, _AT_A_TIME))
