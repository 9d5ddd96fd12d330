"""Backups of a running stack: the database and the files next to it, in one archive."""

from __future__ import annotations

import errno
import gzip
import io
import os
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from nextfire.adapters.files.folder import TEMPORARY, sync_folder
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.errors import UnusableDatabaseError, translated
from nextfire.domain.errors import ConflictError, InvalidInputError

_DATABASE = "nextfire.db"
"""The name of the database in an archive."""
_CHUNK = 1024 * 1024


def back_up(database: Database, folder: Path, to: Path, *, parts: Sequence[str]) -> None:
    """Write an archive to the file *to*: a consistent copy of *database*, and *parts*, the names of
    files and folders in *folder*. Processes may use both meanwhile.

    Files are copied after the database, so all that the copied database refers to is in the
    archive. *to* is replaced when the archive is complete.

    Raises:
        UnusableDatabaseError: The database is damaged.
        UnavailableError: It cannot be read.
        OSError: A file could not be read or written.
    """
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".backup-") as scratch:
        copy, archive = Path(scratch, _DATABASE), Path(scratch, "archive")
        _copy(database, copy)
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            tar.add(copy, _DATABASE)
            for part in parts:
                for path in _files(folder / part):
                    _add(tar, path, str(path.relative_to(folder)))
        archive.chmod(0o600)
        with archive.open("rb") as file:
            os.fsync(file.fileno())
        archive.replace(to)
        sync_folder(to.parent)


def restore(archive: Path, folder: Path, *, database: str) -> None:
    """Extract the *archive* of `back_up` into *folder*, which must be empty or absent, with the
    database under the name *database*.

    Raises:
        ConflictError: *folder* is not empty.
        InvalidInputError: *archive* is not a backup.
        UnusableDatabaseError: The database in the archive is damaged.
        UnavailableError: It cannot be read.
        OSError: A file could not be read or written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConflictError(
            f"The folder {folder} is not empty",
            f"Stop nextfire and move the folder, for example with: mv {folder} {folder}.old",
        )
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".restore-") as scratch:
        new = Path(scratch, "new")
        _extract(archive, new)
        (new / _DATABASE).rename(new / database)
        _check(new / database)
        os.sync()  # one call for any number of files
        new.replace(folder)
        sync_folder(folder.parent)


def _extract(archive: Path, to: Path) -> None:
    try:
        with gzip.open(archive) as content, tarfile.open(fileobj=content, mode="r:") as tar:
            tar.getmember(_DATABASE)
            tar.extractall(to, filter="data")
            content.read(_CHUNK)  # the padding of the archive, and the checksum behind it
    except (KeyError, tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(
            "backup",
            str(archive),
            "not a complete backup of nextfire",
            "Use a file that `nextfire backup FILE` wrote.",
        ) from error
    to.chmod(0o700)


def _copy(database: Database, to: Path) -> None:
    with (
        translated("back up", database.path),
        database.reading("back up") as source,
        closing(sqlite3.connect(to)) as copy,
    ):
        _copy_pages(source, copy, to)
    _check(to)


def _copy_pages(source: sqlite3.Connection, copy: sqlite3.Connection, to: Path) -> None:
    try:
        source.backup(copy)  # in one read transaction: writers do not wait
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:  # only the copy is written
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(to.parent.parent)) from error
        raise


def _check(path: Path) -> None:
    """Check that the database at *path* is intact.

    Raises:
        UnusableDatabaseError: It is damaged.
    """
    with translated("check", path), closing(sqlite3.connect(path)) as connection:
        (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise UnusableDatabaseError(
            path, f"it is damaged ({problem})", "Use an earlier backup of nextfire"
        )


def _files(path: Path) -> list[Path]:
    """The file at *path*, or the files in the folder at *path*; those being written are left
    out.
    """
    found = [path]
    for folder, _, names in os.walk(path, onerror=_raise_unless_removed):
        found += [Path(folder, name) for name in names]
    return sorted(each for each in found if each.is_file() and not each.name.startswith(TEMPORARY))


def _raise_unless_removed(error: OSError) -> None:
    """Raise *error*, except for a folder that was removed meanwhile."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add the file at *path*, unless it was removed meanwhile. A file that is written meanwhile is
    added as it was.
    """
    try:
        content = path.read_bytes()
        info = tar.gettarinfo(path, name)
    except FileNotFoundError:
        return
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
