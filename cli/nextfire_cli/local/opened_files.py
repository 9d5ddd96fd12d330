"""Files that running processes keep open, and that may be moved or removed meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class OpenedFiles:
    """The files at *paths* as they are now. All exist. *database* stays open as long."""

    def __init__(self, paths: Iterable[Path] = (), *, database: object = None) -> None:
        self._database = database
        self._found = [(path, path.stat()) for path in paths]

    def displaced(self) -> Path | None:
        """The first path that no longer leads to its file; None if all do."""
        return next((path for path, found in self._found if not _is_same(path, found)), None)


def _is_same(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), found)
    except OSError:
        return False
