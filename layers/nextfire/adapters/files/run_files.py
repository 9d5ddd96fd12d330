"""Logs, results and checkpoints in files."""

from __future__ import annotations

from pathlib import Path

from nextfire.adapters.files.folder import Folder
from nextfire.domain.ids import RunFolder
from nextfire.domain.places import run_place


class FileRunFiles:
    """`RunFiles` in the folder *root*, under ``pools/<pool>/<tenant>/<job id>/<run id>/<name>``."""

    def __init__(self, root: Path) -> None:
        self._folder = Folder(root)

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        self._folder.write(self._folder.path(run_place(folder) + name), data)

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        return self._folder.read(self._folder.path(run_place(folder) + name))
