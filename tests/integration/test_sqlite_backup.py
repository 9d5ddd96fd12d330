"""Backups of a running stack, restoring them, and the removal of what has expired."""

from __future__ import annotations

import errno
import os
import sqlite3
import tarfile
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.files.run_files import FileRunFiles
from nextfire.adapters.sqlite import expiry
from nextfire.adapters.sqlite.backup import back_up, restore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.endpoint_store import SqliteEndpointStore
from nextfire.adapters.sqlite.errors import UnusableDatabaseError
from nextfire.adapters.sqlite.events import SqliteEvents
from nextfire.adapters.sqlite.expiry import remove_expired
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.key_store import SqliteKeyStore
from nextfire.adapters.sqlite.request_store import SqliteRequestStore
from nextfire.adapters.sqlite.run_queue import SqliteDeadLetters, SqliteRunQueue
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.domain.errors import ConflictError, InvalidInputError, UnavailableError
from nextfire.domain.events import Event, EventKind
from nextfire.domain.ids import RunFolder
from nextfire.domain.run import Run
from tests.builders import NOON, a_job, a_key, a_message, run_key
from tests.fakes import Clock

FOLDER = RunFolder(run_key(), "default")
PARTS = ("outputs", "absent")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a stack with a job and an output."""
    home = tmp_path / "home"
    home.mkdir()
    SqliteJobStore(Database(home / "nextfire.db")).create(a_job(), None, NOON)
    FileRunFiles(home / "outputs").put(FOLDER, "result", b"42")
    (home / "other").write_bytes(b"not a part")
    return home


def test_a_restored_backup_has_all_that_was_there(home: Path, tmp_path: Path) -> None:
    archive, restored = tmp_path / "backup", tmp_path / "restored"

    back_up(Database(home / "nextfire.db"), home, archive, parts=PARTS)
    restore(archive, restored, database="nextfire.db")

    assert SqliteJobStore(Database(restored / "nextfire.db")).get(a_job().key) == a_job()
    assert FileRunFiles(restored / "outputs").get(FOLDER, "result") == b"42"
    assert not (restored / "other").exists()
    assert archive.stat().st_mode & 0o077 == 0, "it holds secrets"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_both_outlive_a_loss_of_power(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is on the disk before it gets its name, and its name before the end."""
    archive, restored = tmp_path / "backup", tmp_path / "restored"
    synced: list[tuple[str, bool, bool]] = []

    def note(what: str) -> None:
        synced.append((what, archive.exists(), restored.exists()))

    monkeypatch.setattr(os, "sync", lambda: note("all"))
    monkeypatch.setattr(
        os, "fsync", lambda file: note(Path(f"/proc/self/fd/{file}").readlink().name)
    )
    back_up(Database(home / "nextfire.db"), home, archive, parts=PARTS)
    restore(archive, restored, database="nextfire.db")

    parent = tmp_path.name
    assert synced == [
        ("archive", False, False),
        (parent, True, False),
        ("all", True, False),
        (parent, True, True),
    ]


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.EACCES])
def test_a_folder_that_cannot_be_synced_holds_a_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """EINVAL: a file system without `fsync` for folders, such as one that VirtualBox shares.
    EACCES: a folder that may be written, but not read.
    """
    archive, opened, synced = tmp_path / "backup", os.open, []

    def open_(path: Any, *given: Any, **named: Any) -> int:
        if path == tmp_path:
            raise OSError(refused, os.strerror(refused))
        return opened(path, *given, **named)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "sync", lambda: synced.append(archive.exists()))
    back_up(Database(home / "nextfire.db"), home, archive, parts=PARTS)

    assert synced == [True]


def test_a_backup_while_jobs_are_written_is_one_state(home: Path, tmp_path: Path) -> None:
    database, done = Database(home / "nextfire.db"), threading.Event()
    store = SqliteJobStore(database)
    before = [a_job(f"before{number}") for number in range(50)]
    for job in before:
        store.create(job, None, NOON)

    def write() -> None:
        number = 0
        while not done.is_set():
            store.create(a_job(f"job{number:05d}"), None, NOON)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    back_up(database, home, tmp_path / "backup", parts=PARTS)
    done.set()
    writer.join()
    restore(tmp_path / "backup", tmp_path / "restored", database="nextfire.db")

    ids = SqliteJobStore(Database(tmp_path / "restored/nextfire.db")).ids(
        "acme", after=None, limit=100_000
    )
    written = sorted(each for each in ids if each.startswith("job"))
    assert written == [f"job{number:05d}" for number in range(len(written))], "none is left out"
    assert {*ids} >= {job.key.job_id for job in before}


def test_a_folder_in_use_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    back_up(Database(home / "nextfire.db"), home, tmp_path / "backup", parts=PARTS)

    with pytest.raises(ConflictError, match=r"not empty.*mv "):
        restore(tmp_path / "backup", home, database="nextfire.db")


def test_a_file_that_is_not_a_backup_is_rejected(home: Path, tmp_path: Path) -> None:
    back_up(Database(home / "nextfire.db"), home, tmp_path / "backup", parts=PARTS)
    whole = (tmp_path / "backup").read_bytes()
    with tarfile.open(tmp_path / "other", "w:gz") as tar:
        tar.add(home / "other", "other")
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text").write_bytes(b"text")

    for name in ("other", "half", "text"):
        with pytest.raises(InvalidInputError, match="not a complete backup"):
            restore(tmp_path / name, tmp_path / f"restored-{name}", database="nextfire.db")


def test_a_damaged_backup_is_not_restored(home: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "backup", "w:gz") as tar:
        tar.add(home / "other", "nextfire.db")

    with pytest.raises(UnusableDatabaseError):
        restore(tmp_path / "backup", tmp_path / "restored", database="nextfire.db")

    assert not (tmp_path / "restored").exists()


def test_a_backup_in_which_a_byte_changed_is_rejected(home: Path, tmp_path: Path) -> None:
    output = os.urandom(20_000)  # stored verbatim: only the checksum shows a change
    FileRunFiles(home / "outputs").put(FOLDER, "result", output)
    back_up(Database(home / "nextfire.db"), home, tmp_path / "backup", parts=PARTS)
    whole = (tmp_path / "backup").read_bytes()

    for number, place in enumerate((20, 200, len(whole) - 10_000, len(whole) - 6)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(InvalidInputError, match="not a complete backup"):
            restore(tmp_path / "damaged", tmp_path / f"restored{number}", database="nextfire.db")


@pytest.mark.parametrize("removed", [True, False])
def test_a_folder_that_is_removed_meanwhile_is_left_out_one_that_cannot_be_read_is_an_error(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    """The auditor removes the files of old runs, with their folders."""
    scandir, old = os.scandir, home / "outputs" / "old"
    old.mkdir()

    def listed(path: Any) -> Any:
        if isinstance(path, int) or Path(path) != old:
            return scandir(path)
        if not removed:
            raise PermissionError(errno.EACCES, "Permission denied", str(old))
        old.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    database, archive = Database(home / "nextfire.db"), tmp_path / "backup"

    if not removed:
        with pytest.raises(PermissionError):
            back_up(database, home, archive, parts=PARTS)
        return
    back_up(database, home, archive, parts=PARTS)
    with tarfile.open(archive) as tar:
        assert [name.rpartition("/")[2] for name in tar.getnames()] == ["nextfire.db", "result"]


def test_a_full_disk_of_the_backup_is_not_taken_for_that_of_the_database(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(home / "nextfire.db")
    with database.reading("open"):  # before connections are small
        pass
    connect = sqlite3.connect

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    (tmp_path / "away").mkdir()

    with pytest.raises(OSError, match="No space left on device") as caught:
        back_up(database, home, tmp_path / "away" / "backup", parts=PARTS)

    assert caught.value.filename == str(tmp_path / "away")
    assert not any((tmp_path / "away").iterdir())


def test_a_damaged_database_is_not_backed_up(home: Path, tmp_path: Path) -> None:
    path = home / "nextfire.db"
    store = SqliteJobStore(database := Database(path))
    for number in range(200):
        store.create(a_job(f"job{number:03d}", payload={"text": "x" * 1_000}), None, NOON)
    with database.reading("test") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    content = path.read_bytes()
    path.write_bytes(content[: 8 * 4096] + b"\xff" * (len(content) - 8 * 4096))

    with pytest.raises(UnusableDatabaseError, match="damaged"):
        back_up(Database(path), home, tmp_path / "backup", parts=PARTS)

    assert not (tmp_path / "backup").exists()


def test_what_has_expired_is_removed_and_nothing_else(database: Database) -> None:
    day = timedelta(days=1)
    runs, requests = SqliteRunStore(database), SqliteRequestStore(database)
    keys, endpoints = SqliteKeyStore(database), SqliteEndpointStore(database)
    events = SqliteEvents(database)
    for at in (NOON, NOON + 80 * day):
        runs.skip(Run.skipped(run_key(at), "a reason", at))
        events.put(Event(EventKind.EXECUTION_DEAD, {"id": "1"}, at))
    requests.begin("acme", "k", "f", NOON)
    requests.begin("acme", "l", "f", NOON + 100 * day)
    key = a_key()
    keys.create(replace(key, expires_at=NOON))
    for name, limit in (("a", None), ("b", 5)):
        endpoint_key = EndpointKey("calls", "acme", f"{name}.example.com:443")
        to = Endpoint(endpoint_key, changed_at=NOON, version=1, limit=CallLimit(limit, None))
        endpoints.replace(Endpoint(endpoint_key), to)
    letters = SqliteDeadLetters(database, clock=(clock := Clock(NOON)), pool="default")
    letters.put("old", "a failure", dedup="old")
    clock.move_to(NOON + 99 * day)
    letters.put("new", "a failure", dedup="new")
    SqliteRunQueue(database, clock=Clock(NOON), pools={"default"}).send([("default", a_message())])

    removed = remove_expired(database, NOON + 100 * day)

    assert [run.key for run in runs.list(run_key().job, cursor=None, limit=9).items] == [
        run_key(NOON + 80 * day)
    ]
    assert [event.at for _, event in events.list()] == [NOON + 80 * day]
    assert requests.begin("acme", "l", "f", NOON + 100 * day) is not None
    assert keys.get(key.tenant, key.key_id) is None
    left = endpoints.list("acme", "calls", cursor=None, limit=9).items
    assert [each.key.destination for each in left] == ["b.example.com:443"]
    assert [body for body, _ in letters.list()] == ["new"]
    assert SqliteRunQueue(database, clock=Clock(NOON), pools={"default"}).backlog("default") == 1
    assert removed == 6
    assert remove_expired(database, NOON + 100 * day) == 0


def test_more_rows_than_one_transaction_removes_are_removed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "_BATCH", 2)
    requests = SqliteRequestStore(database)
    for number in range(5):
        requests.begin("acme", f"k{number}", "f", NOON)

    assert remove_expired(database, NOON + timedelta(days=100)) == 5


def test_files_of_runs_are_removed_when_they_are_old(tmp_path: Path) -> None:
    files, day = FileRunFiles(tmp_path), timedelta(days=1)
    old, redriven, young = (
        RunFolder(run_key(NOON + n * day, job_id=f"job{n}"), "default") for n in range(3)
    )
    for folder in (old, redriven, young):
        files.put(folder, "log/000001/000000.jsonl", b"{}")
    files.put(redriven, "result", b"42")
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        if path.name != "result":
            os.utime(path, (NOON.timestamp(), NOON.timestamp()))

    assert files.remove_before(NOON + 2 * day) == 2

    assert files.get(old, "log/000001/000000.jsonl") is None
    assert files.get(redriven, "log/000001/000000.jsonl") is None
    assert files.get(redriven, "result") == b"42"
    assert files.get(young, "log/000001/000000.jsonl") == b"{}"
    assert not [*tmp_path.rglob(old.key.run_id)]
    assert files.remove_before(NOON + 2 * day) == 0


def test_a_file_that_cannot_be_removed_does_not_keep_those_of_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileRunFiles(tmp_path)
    folders = [RunFolder(run_key(job_id=f"job{number}"), "default") for number in range(3)]
    for folder in folders:
        files.put(folder, "result", b"42")
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        os.utime(path, (NOON.timestamp(), NOON.timestamp()))
    unlink = Path.unlink
    refused: list[Path] = []

    def refuse_one(path: Path) -> None:
        if not refused:
            refused.append(path)
        if path in refused:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refuse_one)

    with pytest.raises(UnavailableError, match="Operation not permitted"):
        files.remove_before(NOON + timedelta(days=2))

    assert [*tmp_path.rglob("result")] == refused
