"""A process opens the database file while it is read-only, as after a careless restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.domain.errors import UnavailableError
from tests.builders import NOON, a_fire, a_job
from tests.other_user import as_other_user
from tests.places import open_folder


def _store(database: Database) -> None:
    SqliteDueStore(database).put([a_fire(a_job(), NOON)], NOON)


def test_a_process_that_finds_the_files_read_only_writes_once_they_are_writable() -> None:
    def leave_log() -> None:
        _store(Database(path))

    def act() -> None:
        files: list[Path] = [*folder.iterdir()]
        assert len(files) > 1, "a process that died left its log"
        database = Database(path)
        for each in files:
            each.chmod(0o400)
        with pytest.raises(UnavailableError, match=r"read-only.*chmod u\+w .*nextfire\.db\*"):
            _store(database)
        path.chmod(0o600)
        with pytest.raises(UnavailableError, match="read-only"):
            _store(database)
        for each in files:
            each.chmod(0o600)

        _store(database)

    with open_folder("read-only-") as folder:
        folder.chmod(0o777)
        path = folder / "nextfire.db"
        assert as_other_user(leave_log) == 0
        assert as_other_user(act) == 0


def test_a_process_that_starts_with_a_read_only_file_fails_and_commands_read_it() -> None:
    def act() -> None:
        Database(path).close()
        path.chmod(0o400)

        with pytest.raises(UnavailableError, match="read-only"):
            Database(path)

        assert Database(path, as_is=True).version()

    with open_folder("read-only-") as folder:
        folder.chmod(0o777)
        path = folder / "nextfire.db"
        assert as_other_user(act) == 0
