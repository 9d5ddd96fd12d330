"""Which interpreter may start as root: one that only root can change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nextfire.adapters.scripts.interpreters import Interpreter

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
OTHER = 65534


@pytest.fixture
def installed(tmp_path: Path) -> Interpreter:
    python, packages = tmp_path / "python3", tmp_path / "site-packages"
    python.touch(0o755)
    packages.mkdir()
    packages.chmod(0o755)
    (packages / "hook.pth").touch(0o644)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return Interpreter(str(python), (3, 11, 2), (str(packages), "/nowhere"))


def give_to_a_group(folder: Path) -> None:
    os.chown(folder, -1, OTHER)
    folder.chmod(0o775)


CHANGES: dict[str, Callable[[Path], None]] = {
    "a package folder of another user": lambda at: os.chown(at / "site-packages", OTHER, -1),
    "a package folder for all": lambda at: (at / "site-packages").chmod(0o777),
    "a package folder of a group": lambda at: give_to_a_group(at / "site-packages"),
    "a hook of another user": lambda at: os.chown(at / "site-packages" / "hook.pth", OTHER, -1),
    "an interpreter of another user": lambda at: os.chown(at / "python3", OTHER, -1),
    "a folder above it of another user": lambda at: os.chown(at, OTHER, -1),
    "a folder above it for all": lambda at: at.chmod(0o777),
}


def test_what_belongs_to_root_may(installed: Interpreter) -> None:
    assert installed.belongs_to_root()


@pytest.mark.parametrize("change", CHANGES)
def test_what_another_user_can_change_may_not(
    installed: Interpreter, tmp_path: Path, change: str
) -> None:
    CHANGES[change](tmp_path)
    assert not installed.belongs_to_root()


def test_debians_staff_may_add_packages(installed: Interpreter, tmp_path: Path) -> None:
    os.chown(tmp_path / "site-packages", -1, 50)
    (tmp_path / "site-packages").chmod(0o2775)
    assert installed.belongs_to_root()
