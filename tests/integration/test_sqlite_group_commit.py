"""Transactions that threads commit together."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from nextfire.adapters.sqlite import group_commit
from nextfire.adapters.sqlite.errors import translated
from nextfire.adapters.sqlite.group_commit import GroupCommit
from nextfire.domain.errors import UnavailableError

INSERT = "INSERT INTO notes (name) VALUES (?)"


class World:
    """A table, and threads that write it in the order in which they were started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._connect()) as connection:
            connection.execute("CREATE TABLE notes (name TEXT PRIMARY KEY)")
            connection.execute(
                "CREATE TABLE links (name TEXT REFERENCES notes DEFERRABLE INITIALLY DEFERRED)"
            )
        self.writes = GroupCommit(self._connect)
        self._threads = ThreadPoolExecutor(9)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    @property
    def names(self) -> list[str]:
        """The names that another process sees."""
        with closing(self._connect()) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM notes ORDER BY name")]

    def start(self, do: Callable[[sqlite3.Connection], object]) -> Future[None]:
        """Start a transaction, which waits for those started before."""

        def write() -> None:
            with self.writes.transaction() as connection:
                do(connection)

        waiting = self.writes.waiting
        future = self._threads.submit(write)
        while self.writes.waiting == waiting and not future.done():
            time.sleep(0)
        return future

    def hold(self) -> tuple[Event, Future[None]]:
        """Start a transaction that lasts until the event is set, so that others wait for it."""
        began, end = Event(), Event()

        def wait(_: sqlite3.Connection) -> None:
            began.set()
            assert end.wait(20)

        def write() -> None:
            with self.writes.transaction() as connection:
                wait(connection)

        future = self._threads.submit(write)
        assert began.wait(20)
        return end, future

    def close(self) -> None:
        self._threads.shutdown()
        self.writes.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "notes.db")
    yield world
    world.close()


def insert(name: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute(INSERT, (name,))


def insert_and_fail(connection: sqlite3.Connection) -> None:
    connection.execute(INSERT, ("undone",))
    raise KeyError("fails")


def test_a_transaction_alone_is_committed_at_once(world: World) -> None:
    with world.writes.transaction() as connection:
        insert("a")(connection)

    assert world.names == ["a"]


def test_a_transaction_that_fails_is_undone_alone(world: World) -> None:
    end, first = world.hold()
    others = [world.start(insert("a")), world.start(insert_and_fail), world.start(insert("b"))]
    end.set()

    first.result(20)
    failed = [each.exception(20) for each in others]

    assert [type(each) for each in failed] == [type(None), KeyError, type(None)]
    assert world.names == ["a", "b"]


def test_the_last_one_that_fails_commits_for_the_others(world: World) -> None:
    end, first = world.hold()
    others = [world.start(insert("a")), world.start(insert_and_fail)]
    end.set()

    first.result(20)
    others[0].result(20)

    assert isinstance(others[1].exception(20), KeyError)
    assert world.names == ["a"]


def test_no_thread_continues_before_its_transaction_is_committed(world: World) -> None:
    end, first = world.hold()
    second = world.start(insert("a"))
    began, release = Event(), Event()

    def last(_: sqlite3.Connection) -> None:
        began.set()
        assert release.wait(20)

    third = world.start(last)
    end.set()
    assert began.wait(20)

    assert not first.done()
    assert not second.done()
    assert world.names == []

    release.set()
    for each in (first, second, third):
        each.result(20)
    assert world.names == ["a"]


def test_a_large_group_is_committed_although_others_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes wait for the commit."""
    monkeypatch.setattr(group_commit, "_MOST", 2)
    end, first = world.hold()
    release = Event()
    # A lock does not give turns in the order in which threads wait for it.
    turns: Iterator[Callable[[sqlite3.Connection], object]] = iter(
        [insert("a"), lambda _: release.wait(20)]
    )

    def take_turn(connection: sqlite3.Connection) -> None:
        next(turns)(connection)

    others = [world.start(take_turn) for _ in range(2)]
    end.set()

    first.result(20)
    assert world.names == ["a"]
    assert not all(each.done() for each in others)

    release.set()
    for each in others:
        each.result(20)


def test_a_commit_that_fails_is_reported_to_all(world: World) -> None:
    end, first = world.hold()
    second = world.start(insert("a"))
    third = world.start(lambda connection: connection.execute("INSERT INTO links VALUES ('none')"))
    end.set()

    for each in (first, second, third):
        assert isinstance(each.exception(20), sqlite3.IntegrityError)
    assert world.names == []
    world.start(insert("b")).result(20)
    assert world.names == ["b"]


def test_a_transaction_that_the_database_rolled_back_fails_for_all(world: World) -> None:
    end, first = world.hold()
    second = world.start(lambda connection: connection.execute("ROLLBACK"))
    end.set()

    for each in (first, second):
        assert isinstance(each.exception(20), sqlite3.OperationalError)
    world.start(insert("b")).result(20)
    assert world.names == ["b"]


def test_all_learn_of_the_full_disk_that_undid_their_transactions(world: World) -> None:
    world.start(lambda connection: connection.execute("PRAGMA max_page_count = 9")).result(20)
    end, first = world.hold()
    second = world.start(insert("a"))
    third = world.start(insert("x" * 100_000))
    end.set()

    for each in (first, second, third):
        with pytest.raises(UnavailableError, match="disk is full"), translated("add", world.path):
            each.result(20)
    world.start(insert("b")).result(20)
    assert world.names == ["b"]


@pytest.mark.parametrize(
    ("statement", "is_done"),
    [("BEGIN IMMEDIATE", False), ("BEGIN IMMEDIATE", True), ("COMMIT", False), ("COMMIT", True)],
)
def test_a_signal_handler_that_raises_leaves_no_transaction_open(
    world: World, statement: str, *, is_done: bool
) -> None:
    interrupted = Interrupted(world.path, statement, is_done=is_done)
    writes = GroupCommit(lambda: cast("sqlite3.Connection", interrupted))

    with pytest.raises(KeyboardInterrupt), writes.transaction() as connection:
        insert("a")(connection)
    with writes.transaction() as connection:
        insert("b")(connection)
    writes.close()

    assert world.names == (["a", "b"] if (statement, is_done) == ("COMMIT", True) else ["b"])


def test_threads_learn_that_the_commit_they_wait_for_was_interrupted(world: World) -> None:
    interrupted = Interrupted(world.path, "COMMIT", is_done=False)
    world.writes = GroupCommit(lambda: cast("sqlite3.Connection", interrupted))
    end, first = world.hold()
    second = world.start(insert("a"))
    end.set()

    with pytest.raises(UnavailableError, match="interrupted"), translated("add", world.path):
        first.result(20)
    assert isinstance(second.exception(20), KeyboardInterrupt)
    assert world.names == []


class Interrupted:
    """A connection to *path*. A signal handler raises once before or, if *is_done*, after
    *statement*.
    """

    def __init__(self, path: Path, statement: str, *, is_done: bool) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._left = [statement]
        self._is_done = is_done

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        interrupts = statement in self._left
        if interrupts:
            self._left.remove(statement)
        if interrupts and not self._is_done:
            raise KeyboardInterrupt
        cursor = self._connection.execute(statement, *values)
        if interrupts:
            raise KeyboardInterrupt
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
