"""Working folders under concurrent sweeps."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from nextfire.adapters.scripts import folders
from nextfire.adapters.scripts.folders import LockedFolder


def test_a_folder_swept_before_it_is_locked_is_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp
    swept: list[str] = []

    def makes(*, prefix: str, dir: Path) -> str:
        made = make(prefix=prefix, dir=dir)
        if not swept:
            Path(made).rmdir()
            swept.append(made)
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", makes)
    folder = LockedFolder(tmp_path, "run")

    assert str(folder.path) not in swept
    assert folder.path.is_dir()
    folder.remove()
    assert not any(tmp_path.iterdir())


def test_a_folder_that_cannot_be_removed_is_closed_to_later_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user, who owns what is in it, is given to the scripts of others."""
    folder = LockedFolder(tmp_path, "run")
    folder.path.chmod(0o711)  # as for a script's user
    monkeypatch.setattr(folders, "remove", lambda _: None)

    folder.remove()

    assert folder.path.stat().st_mode & 0o777 == 0o700
