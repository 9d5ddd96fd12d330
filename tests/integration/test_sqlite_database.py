"""The durability of the SQLite database: processes that are killed, full disks, damaged and locked
files, other schema versions.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.sqlite import schema
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.errors import UnusableDatabaseError
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.run_queue import SqliteRunQueue
from nextfire.domain.errors import UnavailableError
from tests.builders import NOON, a_fire, a_job, a_message, run_key
from tests.fakes import Clock
from tests.integration.sqlite_file import another_process

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from tests.builders import NOON, a_fire, a_job

store = SqliteJobStore(Database(Path(sys.argv[1])))
number = 0
while True:
    job = a_job(f"{sys.argv[2]}-{number}", uid=f"{sys.argv[2]}{number:07d}")
    assert store.create(job, a_fire(job, NOON), NOON) is None
    print(number, flush=True)
    number += 1
"""
DIES_BETWEEN = """
import os, signal, sys
from pathlib import Path
from nextfire.adapters.sqlite import job_store
from nextfire.adapters.sqlite.database import Database
from tests.builders import NOON, a_fire, a_job

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

job_store.DUE.put = die
job = a_job("between")
job_store.SqliteJobStore(Database(Path(sys.argv[1]))).create(job, a_fire(job, NOON), NOON)
"""
RACER = """
import sys
from datetime import timedelta
from pathlib import Path
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.run_queue import SqliteInbox

inbox = SqliteInbox(Database(Path(sys.argv[1])), clock=SystemClock(), pool="default")
print("ready", flush=True)
sys.stdin.readline()
while found := inbox.receive(3, wait=timedelta(), hidden_for=timedelta(minutes=5)):
    for each in found:
        print(each.body, flush=True)
    inbox.acknowledge(found)
"""

CLAIMER = """
import sys
from pathlib import Path
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from tests.builders import LEASE, NOON, a_message, run_key

runs = SqliteRunStore(Database(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    claim = runs.claim(
        a_message(run_key(job_id=f"job{number}")), token=sys.argv[2], worker=sys.argv[2],
        pool="default", job_revision=1, now=NOON, lease_until=NOON + LEASE,
    )
    if claim.taken:
        print(number, flush=True)
"""
CREATOR = """
import sys
from dataclasses import replace
from pathlib import Path
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.domain.errors import QuotaUsedUpError
from tests.builders import NOON, a_job

jobs = SqliteJobStore(Database(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    job = replace(a_job(f"{sys.argv[2]}-{number}"), counted=True)
    try:
        jobs.create(job, None, NOON, most=25)
    except QuotaUsedUpError:
        break
    print(job.key.job_id, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nextfire.db"


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start *program* as another process."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}", "PATH": os.defpath},
    )


def stored(path: Path) -> tuple[set[str], set[str]]:
    """The ids of the jobs, and those of the jobs with a due entry."""
    database = Database(path)
    entries = SqliteDueStore(database).read(NOON, 0, before=None, consistent=True)
    jobs = SqliteJobStore(database).ids("acme", after=None, limit=100_000)
    return {*jobs}, {each.entry.job.job_id for each in entries if hasattr(each, "entry")}


def test_what_was_acknowledged_survives_kill_9_of_all_writers(path: Path) -> None:
    Database(path)
    writers = [start(WRITER, str(path), name) for name in "ab"]
    acknowledged = set()
    for writer, name in zip(writers, "ab", strict=True):
        assert writer.stdout is not None
        for _ in range(20):
            acknowledged.add(f"{name}-{writer.stdout.readline().strip()}")
    for writer in writers:
        writer.kill()
    for writer, name in zip(writers, "ab", strict=True):
        output, _ = writer.communicate()
        acknowledged |= {f"{name}-{line}" for line in output.splitlines()}

    jobs, due = stored(path)

    assert acknowledged <= jobs
    assert jobs == due, "a job and its due entry are one transaction"


def test_a_writer_killed_between_two_statements_wrote_nothing(path: Path) -> None:
    SqliteJobStore(Database(path)).create(a_job("before"), None, NOON)

    writer = start(DIES_BETWEEN, str(path))
    writer.communicate()

    assert writer.returncode == -signal.SIGKILL
    assert stored(path) == ({"before"}, set())
    assert SqliteJobStore(Database(path)).create(a_job("between"), None, NOON) is None


def race(program: str, path: Path) -> list[str]:
    """The lines that three processes print which start their work at the same time."""
    racers = [start(program, str(path), name) for name in "abc"]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdin is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return [line for racer in racers for line in racer.communicate()[0].splitlines()]


def test_of_several_processes_one_claims_each_run(path: Path) -> None:
    Database(path)

    claimed = race(CLAIMER, path)

    assert sorted(map(int, claimed)) == [*range(40)]


def test_several_processes_together_create_as_many_jobs_as_the_quota_allows(path: Path) -> None:
    store = SqliteJobStore(Database(path))

    created = race(CREATOR, path)

    assert len(created) == store.counted("acme") == 25
    assert [*store.ids("acme", after=None, limit=99)] == sorted(created)


def test_of_several_processes_one_receives_each_message(path: Path) -> None:
    database = Database(path)
    jobs = [f"job{number}" for number in range(60)]
    messages = [("default", a_message(run_key(job_id=job_id))) for job_id in jobs]
    SqliteRunQueue(database, clock=Clock(NOON), pools=["default"]).send(messages)

    received = race(RACER, path)

    assert sorted(received) == sorted(message.encode() for _, message in messages)


def test_a_full_disk_is_reported_and_loses_nothing(path: Path) -> None:
    database = Database(path, max_pages=60)
    store = SqliteJobStore(database)
    created: list[str] = []

    def fill() -> None:
        for number in range(1_000):
            uid = f"uid{number:05d}"
            job = a_job(f"job{number}", uid=uid, payload={"text": "x" * 5_000})
            assert store.create(job, a_fire(job, NOON), NOON) is None
            created.append(job.key.job_id)

    with pytest.raises(UnavailableError, match=r"disk is full.*df -h") as full:
        fill()

    assert str(path) in str(full.value)
    assert stored(path) == ({*created}, {*created})
    assert SqliteJobStore(Database(path)).create(a_job("more"), None, NOON) is None


def test_a_damaged_file_is_reported_with_the_remedy(path: Path) -> None:
    database = Database(path)
    store = SqliteJobStore(database)
    for number in range(200):
        store.create(a_job(f"job{number:03d}", payload={"text": "x" * 1_000}), None, NOON)
    database.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))

    with pytest.raises(UnusableDatabaseError, match=r"damaged.*restore a backup"):
        SqliteJobStore(Database(path)).list("acme", cursor=None, limit=100)


@pytest.mark.parametrize("content", [b"not a database, but long enough" * 9, b"\x00" * 4096])
def test_a_file_that_is_not_a_database_is_reported(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(UnusableDatabaseError, match="is not a SQLite database"):
        Database(path)

    assert path.read_bytes() == content


def test_a_locked_file_is_reported_after_a_while(path: Path) -> None:
    database = Database(path, busy=timedelta(milliseconds=50))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match=r"locked.*fuser"):
            SqliteJobStore(database).create(a_job(), None, NOON)
        other.execute("ROLLBACK")

    assert SqliteJobStore(database).create(a_job(), None, NOON) is None


def test_readers_do_not_wait_for_writers(path: Path) -> None:
    database = Database(path)
    SqliteJobStore(database).create(a_job(), None, NOON)
    with another_process(database).writing("test"):
        assert SqliteJobStore(database).get(a_job().key) == a_job()


def test_a_database_is_opened_while_another_process_writes(path: Path) -> None:
    database = Database(path)
    with database.writing("test"):
        Database(path, busy=timedelta()).close()


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"cannot be opened.*ls -ld"):
        Database(tmp_path / "nowhere" / "nextfire.db")


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    Database(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")

    with pytest.raises(UnusableDatabaseError, match=r"schema version .*pip install -U"):
        Database(path)


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER)")

    with pytest.raises(UnusableDatabaseError, match="another program"):
        Database(path)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)


def test_an_older_schema_is_migrated_and_keeps_its_data(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteJobStore(Database(path)).create(a_job(), None, NOON)
    later = (*schema.MIGRATIONS, ("CREATE TABLE added (id INTEGER)",))
    monkeypatch.setattr(schema, "MIGRATIONS", later)

    migrated = Database(path)

    assert SqliteJobStore(migrated).get(a_job().key) == a_job()
    with migrated.reading("test") as connection:
        assert connection.execute("SELECT count(*) FROM added").fetchone() == (0,)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(later),)


def test_a_migration_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(path)
    sound = schema.MIGRATIONS
    broken = (*sound, ("CREATE TABLE added (id INTEGER)", "CREATE TABLE jobs (id INTEGER)"))
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        Database(path)
    monkeypatch.setattr(schema, "MIGRATIONS", sound)

    with Database(path).reading("test") as connection:
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'added'")
        assert found.fetchone() == (0,)


def test_a_commit_waits_for_the_disk(path: Path) -> None:
    with Database(path).reading("test") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
