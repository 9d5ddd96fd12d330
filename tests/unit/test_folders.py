"""Working folders, whoever sweeps beside."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from nextfire.adapters.folders import LockedFolder


def test_a_folder_that_is_swept_before_it_is_locked_is_made_anew(
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
