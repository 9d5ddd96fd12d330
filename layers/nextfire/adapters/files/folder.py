"""A folder of durable files with names from users."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from nextfire.domain.errors import UnavailableError

_SPECIAL = re.compile(r"[%/\0]|^\.")
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NAMES = {errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG}
"""Errors of names that a file cannot have."""
_CANNOT_SYNC = {errno.EINVAL, errno.EACCES}
"""Errors of a file system without `fsync` for folders, and of a folder that may not be read."""
TEMPORARY = ".new-"
"""Prefix of files that are being written. No file name starts with a full stop, see `file_name`."""


def file_name(text: str) -> str:
    """A file name for *text*, readable and different for different texts: no *text* leaves its
    folder or names a hidden file.
    """
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def text_of(name: str) -> str:
    """The text for which `file_name` returned *name*."""
    return unquote(name)


class Folder:
    """The folder *root*. Its files are replaced atomically, and survive the death of the machine
    once written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, place: str) -> Path:
        """The path of *place*, names separated by slashes."""
        return self._root.joinpath(*map(file_name, filter(None, place.split("/"))))

    def write(self, path: Path, data: bytes) -> None:
        """Store *data* as the file at *path*, in new folders if necessary, replacing any there.

        Raises:
            UnavailableError: The disk is full or the folder is not writable. The file is unchanged.
        """
        with translated("write", path):
            _make_folder(path.parent)
            handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            sync_folder(path.parent)

    def read(self, path: Path) -> bytes | None:
        """Return the content of the file at *path*; None if it does not exist.

        Raises:
            UnavailableError: The file cannot be read.
        """
        with translated("read", path):
            try:
                return path.read_bytes()
            except OSError as error:
                _check_absent(error)
                return None

    def remove(self, path: Path) -> bool:
        """Remove the file at *path*, durably. Returns whether it existed.

        Raises:
            UnavailableError: The folder is not writable.
        """
        with translated("remove", path):
            try:
                path.unlink()
            except OSError as error:
                _check_absent(error)
                return False
            sync_folder(path.parent)
            return True

    def below(self, path: Path) -> list[str]:
        """Return the places, relative to *path*, of all files below it, sorted."""
        found: list[str] = []
        for name in self.names(path):
            each = path / name
            inner = self.below(each) if each.is_dir() else None
            text = text_of(name)
            found += [text] if inner is None else [f"{text}/{place}" for place in inner]
        return sorted(found)

    def names(self, path: Path) -> list[str]:
        """Return the names in the folder at *path*, without files that are being written."""
        with translated("list", path):
            try:
                return [each.name for each in path.iterdir() if each.name[0] != "."]
            except OSError as error:
                _check_absent(error)
                return []


def _check_absent(error: OSError) -> None:
    """Raise *error*, unless it means that the file or folder does not exist: a name that is too
    long cannot exist.
    """
    if not isinstance(error, _ABSENT) and error.errno != errno.ENAMETOOLONG:
        raise error


@contextmanager
def translated(what: str, path: Path) -> Iterator[None]:
    """Translate errors of the operating system while doing *what* with *path*.

    Raises:
        UnavailableError: With the problem and a remedy.
    """
    try:
        yield
    except OSError as error:
        remedy = f"Check its permissions, for example with `ls -ld {path.parent}`, and try again."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = f"Free some space, for example see `df -h {path.parent}`, and try again."
        elif error.errno in _NAMES:
            remedy = (
                "Choose another name. There cannot be both `billing` and `billing/key`, and a part "
                "between slashes has at most 255 bytes."
            )
        raise UnavailableError(f"{what} {path}: {error.strerror}. {remedy}") from error


def _make_folder(path: Path) -> None:
    """Create the folder at *path* and those above it, durably."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names of the files in *path* durable."""
    try:
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
        os.sync()
