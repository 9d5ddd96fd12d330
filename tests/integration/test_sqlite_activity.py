"""What an embedded stack does at a moment, read from its database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from nextfire.adapters.sqlite import schema
from nextfire.adapters.sqlite.activity import read_activity
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.run_queue import SqliteDeadLetters, SqliteInbox, SqliteRunQueue
from nextfire.adapters.sqlite.run_reads import stored_item
from nextfire.adapters.sqlite.table import DUE, RUNS
from nextfire.domain.activity import Activity, LateJob
from nextfire.domain.due import PARKED_AT_MOST
from nextfire.domain.instants import isoformat, to_ms
from nextfire.domain.run import Run, RunState
from nextfire_cli import state
from nextfire_cli.main import app
from tests.builders import LEASE, NOON, a_fire, a_job, a_message, a_retry, run_key
from tests.fakes import Clock
from tests.integration.sqlite_file import put
from tests.local_stack import pretend_stack

SECOND = timedelta(seconds=1)
IDLE = Activity(timedelta(), 0, 0, 0, timedelta(), 0, 0)


def test_late_entries_are_those_that_no_watcher_dispatched(database: Database) -> None:
    store = SqliteDueStore(database)
    entries = [
        a_fire(a_job("late"), NOON - 90 * SECOND),
        a_fire(a_job("soon"), NOON + SECOND),
        a_fire(a_job("just"), NOON - SECOND),
        replace(a_fire(a_job("held"), NOON - 200 * SECOND), held=True),
    ]
    store.put(entries, NOON - 3600 * SECOND)
    put(database, DUE, bucket="quarantine#000", entry=f"{to_ms(NOON) - 500_000:013d}#x")

    found = read_activity(database, "acme", NOON)

    late = (LateJob("late", 90 * SECOND),)
    assert found == replace(IDLE, lag=90 * SECOND, late=1, held=1, late_jobs=late)


def test_the_jobs_that_are_late_the_longest_are_named_once_each(database: Database) -> None:
    entries = [
        a_fire(a_job(f"job{number}"), NOON - (number + at) * SECOND)
        for number in range(10, 17)
        for at in (0, 20)
    ]
    SqliteDueStore(database).put(entries, NOON - 3600 * SECOND)
    put(database, DUE, bucket="2026-05-24T11:00Z#000", entry=f"{to_ms(NOON) - 900_000:013d}#x")

    found = read_activity(database, "acme", NOON)

    assert found.late == 15
    assert found.late_jobs == tuple(
        LateJob(f"job{number}", (number + 20) * SECOND) for number in (16, 15, 14, 13, 12)
    )


def test_runs_that_wait_for_a_later_minute_are_held(database: Database) -> None:
    store = SqliteDueStore(database)
    destination = a_retry(run_key(job_id="call"), NOON + timedelta(minutes=45))
    parked = a_fire(a_job("queued"), NOON - 3600 * SECOND)
    store.put([replace(destination, held=True)], NOON)
    store.put([replace(parked, held=True)], NOON + PARKED_AT_MOST)
    store.put([a_retry(run_key(job_id="failed"), NOON + timedelta(minutes=5))], NOON)

    assert read_activity(database, "acme", NOON) == replace(IDLE, held=2)


def test_messages_are_queued_or_taken(database: Database) -> None:
    clock = Clock(NOON)
    queue = SqliteRunQueue(database, clock=clock, pools=["default"])
    for number in range(3):
        key = run_key(job_id=f"job{number}")
        queue.send([("default", a_message(key, dispatched_at=NOON + number * SECOND))])
    SqliteInbox(database, clock=clock, pool="default").receive(
        1, wait=timedelta(), hidden_for=LEASE
    )
    SqliteDeadLetters(database, clock=clock, pool="default").put("{", "why", dedup="x")

    found = read_activity(database, "acme", NOON + 21 * SECOND)

    assert found == replace(IDLE, queued=2, running=1, wait=20 * SECOND)
    after = read_activity(database, "acme", NOON + LEASE)
    assert (after.queued, after.running) == (3, 0)


def test_dead_runs_are_counted_for_fifteen_minutes(database: Database) -> None:
    for tenant, minutes in (("acme", 1), ("acme", 14), ("acme", 16), ("other", 1)):
        died = to_ms(NOON - timedelta(minutes=minutes))
        put(
            database,
            RUNS,
            job=f"{tenant}/job",
            run_id=f"run{minutes}",
            attention=f"{tenant}#DEAD",
            attention_at=f"{died:013d}#job.run{minutes}",
        )

    assert read_activity(database, "acme", NOON) == replace(IDLE, failed=2)


def test_a_clock_that_was_set_back_shows_by_runs_that_ended_after_the_present(
    database: Database,
) -> None:
    """Nothing is due until the clock is where it was: that looked like a stack without jobs."""
    hour = timedelta(hours=1)
    runs = {
        "ended": Run(run_key(NOON, job_id="ended"), RunState.SUCCEEDED, finished_at=NOON + SECOND),
        "died": Run(run_key(NOON, job_id="died"), RunState.DEAD, finished_at=NOON),
        "skipped": Run.skipped(run_key(NOON + hour, job_id="skipped"), "in advance", NOON),
    }
    with database.writing("test") as connection:
        RUNS.put(connection, *map(stored_item, runs.values()))

    assert read_activity(database, "acme", NOON - hour).ahead == hour + SECOND
    assert read_activity(database, "acme", NOON + SECOND).ahead == timedelta()
    assert read_activity(database, "other", NOON - hour).ahead == timedelta()


@pytest.fixture
def on_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    class At(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            del tz
            return NOON

    monkeypatch.setattr(state, "datetime", At)


@pytest.mark.usefixtures("on_noon")
@pytest.mark.parametrize(
    ("watcher", "due", "named"),
    [
        (4711, NOON - SECOND, None),
        (None, NOON - SECOND, "Not on time: watcher does not run."),
        (
            4711,
            NOON - 30 * SECOND,
            "Not on time: 1 due run not dispatched, the oldest for 30 s (report 30 s): the watcher",
        ),
    ],
)
def test_status_fails_if_jobs_are_not_on_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    watcher: int | None,
    due: datetime,
    named: str | None,
) -> None:
    info = pretend_stack(tmp_path)
    monkeypatch.chdir(tmp_path)
    part = {"pid": watcher, "deaths": 1, "lastDeath": "killed by SIGKILL"}
    info.parts_file.write_text(json.dumps({"watcher": part}))
    database = Database(info.key_file.parent / "nextfire.db")
    SqliteDueStore(database).put([a_fire(a_job(), due)], NOON - 3600 * SECOND)
    health = {"status": "ok", "time": isoformat(NOON)}
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json=health))
    environment = {"NEXTFIRE_ENDPOINT": None, "NEXTFIRE_CONTEXT": None, "NEXTFIRE_API_KEY": None}

    result = CliRunner().invoke(app, ["status"], env=environment, obj=answer)
    shown = CliRunner().invoke(app, ["status", "--json"], env=environment, obj=answer)

    assert (result.exit_code, shown.exit_code) == (int(named is not None),) * 2, result.output
    assert (named or "") in result.stderr
    assert ("Not on time" in result.stderr) is (named is not None)
    assert json.loads(shown.stdout)["onTime"] is (named is None)
    late = [{"jobId": "report", "lagSec": 30.0}] if due < NOON - 5 * SECOND else []
    assert json.loads(shown.stdout)["activity"]["lateJobs"] == late
    assert "killed by SIGKILL" in result.stdout


@pytest.mark.usefixtures("on_noon")
def test_status_does_not_migrate_the_file_of_a_running_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes may have an earlier version, and would reject the file when they restart."""
    info = pretend_stack(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = info.key_file.parent / "nextfire.db"
    Database(path).close()
    version = len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE added (id)",)))
    health = {"status": "ok", "time": isoformat(NOON)}
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json=health))
    environment = {"NEXTFIRE_ENDPOINT": None, "NEXTFIRE_CONTEXT": None, "NEXTFIRE_API_KEY": None}

    result = CliRunner().invoke(app, ["status"], env=environment, obj=answer)

    assert result.exit_code == 0, result.output
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
