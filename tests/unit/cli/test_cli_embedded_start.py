"""What `nextfire up` does before the parts of the embedded stack start."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.sqlite import schema
from nextfire.adapters.sqlite.database import Database
from nextfire_cli.local.embedded import EmbeddedStack
from nextfire_cli.local.processes import Processes
from nextfire_cli.local.state import LocalStackError, unwritable
from tests.file_limit import files_at_most


class SpawnedError(Exception):
    """The parts would start here."""


def test_the_database_is_migrated_before_the_parts_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration of millions of runs takes longer than they, and `up`, wait for one another."""
    path = tmp_path / "state" / "embedded" / "nextfire.db"
    path.parent.mkdir(parents=True)
    Database(path).close()
    later = (*schema.MIGRATIONS, ("CREATE TABLE added (id)",))
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    versions: list[Any] = []

    def spawn(*_: object, **__: object) -> None:
        with closing(sqlite3.connect(path)) as connection:
            versions.extend(connection.execute("PRAGMA user_version").fetchone())
        raise SpawnedError

    monkeypatch.setattr(Processes, "spawn", spawn)

    with pytest.raises(SpawnedError):
        EmbeddedStack(tmp_path / "state").start(lambda _line: None)

    assert versions == [len(later)]


def test_a_folder_of_the_stack_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tmp").touch()
    stack = EmbeddedStack(tmp_path / "state")

    with pytest.raises(LocalStackError, match=r"Cannot write .*/state/tmp.*: File exists"):
        stack.start(lambda _line: None)

    stack.stop()


def test_a_disk_that_is_full_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with files_at_most(0), pytest.raises(LocalStackError, match=r"Cannot write .*/state/.*: File"):
        EmbeddedStack(tmp_path / "state").start(lambda _line: None)


def test_a_disk_that_becomes_full_during_a_migration_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processes, "spawn", lambda *_, **__: None)

    with files_at_most(60_000), pytest.raises(LocalStackError, match="Check the disk"):
        EmbeddedStack(tmp_path / "state").start(lambda _line: None)


@pytest.mark.parametrize("name", ["stack.json", "processes.json"])
def test_a_folder_in_the_place_of_a_file_is_an_error_of_up_and_down(
    tmp_path: Path, name: str
) -> None:
    state = tmp_path / "state"
    (state / name).mkdir(parents=True)
    stack = EmbeddedStack(state)

    for act in (lambda: stack.start(lambda _line: None), stack.stop, stack.remove):
        with pytest.raises(LocalStackError, match=rf"{name} is a folder, .* Remove it"):
            act()


def test_the_remedy_for_a_full_disk_is_space() -> None:
    full = unwritable("x", OSError(errno.ENOSPC, "No space left on device"))
    other = unwritable("x", OSError(errno.EACCES, "Permission denied"))

    assert str(full).endswith("No space left on device. Free some space.")
    assert str(other).endswith("Permission denied. Change into another folder, or repair this one.")
