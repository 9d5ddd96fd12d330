"""Removes files and folders that a script left, however deep, many or closed they are.

Works on descriptors of folders and never follows a symbolic link: the executor may be root, and the
script chose what lies there. No process is started for it.
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
"""Entries of a folder that are listed at a time: a folder may hold millions."""
_GIVE_UP_AFTER = 300.0
"""Seconds. Another process may add to the folder as fast as it is emptied."""
_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove(path: Path) -> None:
    """Remove a file, or a folder with all it holds. What cannot be removed is logged."""
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
            _log.warning("%s could not be removed (%s); remove it by hand", path, error)


@contextmanager
def open_folder(path: str | Path, inside: int | None = None) -> Iterator[int]:
    """A descriptor of a folder that lists it, relative to the folder *inside* if given.

    A folder that is closed to its owner is opened up; this changes the folder that was found, not
    what its name leads to by then.

    Raises:
        OSError: It is not a folder, or may not be opened.
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
    """Remove all that is in *top*. Folders in folders are moved up, so depth costs nothing.

    Raises:
        OSError: Something cannot be removed.
    """
    while entries := _some(top):
        failure: OSError | None = None
        failed = 0
        for entry in entries:
            try:
                _remove_entry(top, entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                failure, failed = error, failed + 1
        if failure is not None and (failed == len(entries) or time.monotonic() > until):
            raise failure
        if time.monotonic() > until:
            raise OSError("something is adding to it")


def _remove_entry(top: int, entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.name, dir_fd=top)
        return
    with suppress(OSError):  # most are empty
        os.rmdir(entry.name, dir_fd=top)
        return
    with open_folder(entry.name, inside=top) as folder:
        while inner := _some(folder):
            for each in inner:
                if each.is_dir(follow_symlinks=False):
                    with open_folder(each.name, inside=folder):
                        pass  # a folder that is closed cannot be moved
                    os.rename(each.name, uuid.uuid4().hex, src_dir_fd=folder, dst_dir_fd=top)
                else:
                    os.unlink(each.name, dir_fd=folder)
    os.rmdir(entry.name, dir_fd=top)


def _some(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(islice(entries, _AT_A_TIME))
