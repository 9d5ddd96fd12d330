"""Folders for files that the scripts of real workers must be able to see."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder(prefix: str) -> Iterator[Path]:
    """A new folder for temporary files that every user can enter. It is removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def host_folder(prefix: str) -> Path:
    """Create a folder outside /tmp and home directories, which scripts cannot see."""
    for place in (Path("/srv"), Path(f"/run/user/{os.getuid()}"), Path("/var/tmp")):  # noqa: S108
        if os.access(place, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    raise AssertionError("no writable folder among /srv, /run/user/UID and /var/tmp")
