"""A worker of the embedded stack is stopped while it takes messages from the queue."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.run_queue import SqliteInbox, SqliteRunQueue
from nextfire.usecases.serve_pool import StopWaiting
from tests.builders import LEASE, NOON, a_message
from tests.fakes import Clock


@contextmanager
def stops_raised() -> Iterator[None]:
    """SIGTERM raises `StopWaiting`, as in a worker."""

    def stop(*_: object) -> NoReturn:
        raise StopWaiting

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StoppedDatabase(Database):
    """The process gets SIGTERM while the disk stores the first transaction."""

    stopped = False

    @contextmanager
    def writing(self, what: str) -> Iterator[object]:  # type: ignore[override]
        with super().writing(what) as connection:
            yield connection
        if not self.stopped:
            self.stopped = True
            os.kill(os.getpid(), signal.SIGTERM)


def test_messages_that_a_stopped_worker_took_do_not_wait_for_their_lease(tmp_path: Path) -> None:
    path, clock = tmp_path / "nextfire.db", Clock(NOON)
    SqliteRunQueue(Database(path), clock=clock, pools=["default"]).send([("default", a_message())])
    stopped = SqliteInbox(StoppedDatabase(path), clock=clock, pool="default")
    with stops_raised(), pytest.raises(StopWaiting):
        stopped.receive(10, wait=timedelta(), hidden_for=LEASE)

    other = SqliteInbox(Database(path), clock=clock, pool="default")

    assert len(other.receive(10, wait=timedelta(), hidden_for=LEASE)) == 1
