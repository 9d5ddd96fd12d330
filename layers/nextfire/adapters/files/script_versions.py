"""Versions of scripts in files, which never change.

A script is a folder with a file for each version: ``<number>.<digest>``, followed by the signature
if it has one. ``<number>.deleted`` marks a deletion.
"""

from __future__ import annotations

import base64
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nextfire.adapters.files.folder import Folder, text_of, translated
from nextfire.dataclass import dataclass

_DELETED = "deleted"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class VersionFile:
    """The file of a version. `sha256`: None marks a deletion. `signature`: base64."""

    number: int
    path: Path
    sha256: str | None
    signature: str | None

    @classmethod
    def of(cls, path: Path) -> VersionFile:
        """The version in the file at *path*.

        Raises:
            ValueError: It is not the file of a version.
        """
        number, digest, *signature = path.name.split(".")
        decoded = base64.urlsafe_b64decode(signature[0]) if signature else None
        return cls(
            int(number),
            path,
            None if digest == _DELETED else digest,
            None if decoded is None else base64.b64encode(decoded).decode(),
        )


class ScriptVersions:
    """The versions of all scripts below the folder *root*. Scripts are named by their place, names
    separated by slashes.
    """

    def __init__(self, root: Path) -> None:
        self._folder = Folder(root)

    def names(self, place: str) -> list[str]:
        """Return the names of the folders at *place*, sorted."""
        return sorted(map(text_of, self._folder.names(self._folder.path(place))))

    def list(self, place: str) -> list[VersionFile]:
        """Return the versions of the script at *place*, newest first."""
        path = self._folder.path(place)
        found = []
        for name in self._folder.names(path):
            try:
                found.append(VersionFile.of(path / name))
            except ValueError:
                continue  # a folder of other scripts, or a file that a user left there
        return sorted(found, key=lambda each: each.number, reverse=True)

    def content(self, version: VersionFile) -> bytes | None:
        """Return the content of *version*; None if it was removed."""
        return self._folder.read(version.path)

    def add(self, place: str, content: bytes, sha256: str, signature: str | None) -> None:
        """Store *content* as the latest version of the script at *place*."""
        name = sha256
        if signature is not None:
            name += "." + base64.urlsafe_b64encode(base64.b64decode(signature)).decode()
        self._add(place, name, content)

    def delete(self, place: str) -> None:
        """Mark the script at *place* as deleted. Its versions remain."""
        self._add(place, _DELETED, b"")

    def _add(self, place: str, name: str, content: bytes) -> None:
        path = self._folder.path(place)
        with _lock(path):
            versions = self.list(place)
            number = versions[0].number + 1 if versions else 1
            self._folder.write(path / f"{number:06d}.{name}", content)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Context manager: one process at a time adds a version to the folder at *path*."""
    with translated("lock", path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
            yield
        finally:
            os.close(lock)
