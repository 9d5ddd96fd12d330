"""`nextfire backup` and `nextfire restore`."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nextfire.adapters.sqlite import schema
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.key_store import SqliteKeyStore
from nextfire_cli import main
from nextfire_cli.local.api_key import provide_key
from tests.builders import NOON, a_job


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def data(here: Path) -> Path:
    """The data of a stack with a job."""
    data = here / ".nextfire" / "embedded"
    data.mkdir(parents=True)
    SqliteJobStore(Database(data / "nextfire.db")).create(a_job(), None, NOON)
    return data


def nextfire(*arguments: str) -> Result:
    return CliRunner().invoke(main.app, arguments)


def test_what_was_backed_up_is_restored(here: Path, data: Path) -> None:
    assert nextfire("backup", "copy").exit_code == 0
    data.rename(here / "old")

    restored = nextfire("restore", "copy")

    assert restored.exit_code == 0
    assert "nextfire up" in restored.output
    assert SqliteJobStore(Database(data / "nextfire.db")).get(a_job().key) == a_job()


def test_the_api_key_of_the_stack_stays_valid_and_the_only_one(here: Path, data: Path) -> None:
    file = data / "api-key"
    provide_key(SqliteKeyStore(Database(data / "nextfire.db")), file, tenant="local")
    key = file.read_text()
    for number in range(2):
        assert nextfire("backup", "copy").exit_code == 0
        data.rename(here / f"old-{number}")
        assert nextfire("restore", "copy").exit_code == 0
        provide_key(SqliteKeyStore(Database(data / "nextfire.db")), file, tenant="local")

    assert file.read_text() == key
    assert file.stat().st_mode & 0o777 == 0o600
    keys = SqliteKeyStore(Database(data / "nextfire.db"))
    assert len(keys.list("local", cursor=None, limit=10).items) == 1


def test_a_stack_is_not_overwritten(data: Path) -> None:
    nextfire("backup", "copy")

    refused = nextfire("restore", "copy")

    assert refused.exit_code == 1
    assert f"mv {data}" in refused.output.replace("\n", "")


def test_a_backup_does_not_migrate_the_file_of_an_earlier_version(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack may run, and its processes would reject a migrated file at their next start."""
    version = len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE added (id)",)))

    assert nextfire("backup", "copy").exit_code == 0

    with closing(sqlite3.connect(data / "nextfire.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


def test_without_a_stack_there_is_nothing_to_back_up(here: Path) -> None:
    refused = nextfire("backup", "copy")

    assert refused.exit_code == 1
    assert "has no embedded stack" in refused.output.replace("\n", " ")
    assert not (here / "copy").exists()


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_path_that_cannot_be_used_is_reported(data: Path, command: str) -> None:
    if command == "restore":
        data.rename(data.with_name("old"))

    refused = nextfire(command, "nowhere/copy")

    assert refused.exit_code == 1
    assert "Check the path" in refused.output


@pytest.mark.usefixtures("data")
def test_a_folder_in_place_of_the_file_is_named(here: Path) -> None:
    (here / "copies").mkdir()

    refused = nextfire("backup", "copies")

    assert refused.exit_code == 2
    assert "file 'copies' is a directory" in refused.output
