"""How long a write to the disk takes."""

import os
from pathlib import Path

import pytest

from nextfire_cli.disk import write_time


def test_a_write_is_measured_until_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))

    assert write_time(tmp_path).total_seconds() > 0
    assert sizes
    assert all(sizes)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_has_no_time(tmp_path: Path) -> None:
    assert write_time(tmp_path / "none").total_seconds() == 0
