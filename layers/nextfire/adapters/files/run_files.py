"""Logs, results and checkpoints in files."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from nextfire.adapters.files.folder import Folder, translated
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunFolder, first_run_id
from nextfire.domain.places import POOLS, run_place


class FileRunFiles:
    """`RunFiles` in the folder *root*, under ``pools/<pool>/<tenant>/<job id>/<run id>/<name>``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = Folder(root)

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        self._folder.write(self._folder.path(run_place(folder) + name), data)

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        return self._folder.read(self._folder.path(run_place(folder) + name))

    def remove_before(self, before: datetime) -> int:
        """Remove the files that were last written before *before*. Returns their number.

        Raises:
            UnavailableError: A file cannot be removed. Those of other runs were.
        """
        removed, problem = 0, None
        for run in self._root.glob(f"{POOLS}*/*/*/*"):
            if run.name >= first_run_id(before):
                continue  # the run was due later
            try:
                with translated("remove old files in", run):
                    removed += _remove_old(run, before.timestamp())
            except UnavailableError as error:
                problem = error
        if problem is not None:
            raise problem
        return removed


def _remove_old(run: Path, oldest: float) -> int:
    """Remove what was last written before *oldest* from the folder *run*, and empty folders.
    Returns the number of files removed.
    """
    removed = 0
    # A folder comes after what it contains.
    for path in (*sorted(run.rglob("*"), reverse=True), run):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.stat().st_mtime < oldest:
            path.unlink()
            removed += 1
    return removed
