"""Removal of what scripts left."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from nextfire.adapters.scripts.removal import open_folder


def test_folders_without_permissions_get_those_of_their_owner(tmp_path: Path) -> None:
    closed, other = [tmp_path / "a", tmp_path / "b", tmp_path / "c"], tmp_path / "other"
    for folder in (*closed, other):
        folder.mkdir()
        folder.chmod(0o711 if folder is other else 0o000)

    with ExitStack() as stack:
        for folder in (*closed, other):
            stack.callback(os.close, os.open(tmp_path, os.O_RDONLY))  # each has another descriptor
            opened = stack.enter_context(open_folder(folder))
            assert os.fstat(opened).st_ino == folder.stat().st_ino

    assert [folder.stat().st_mode & 0o777 for folder in closed] == [0o700] * 3
    assert other.stat().st_mode & 0o777 == 0o711
