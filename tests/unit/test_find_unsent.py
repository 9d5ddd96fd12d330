"""How the due entries of a job are found before the job forgets the schedule of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from threading import Barrier
from typing import Any

import pytest

from nextfire.domain.due import FireEntry
from nextfire.domain.instants import floor_minute
from nextfire.usecases import find_unsent
from nextfire.usecases.find_unsent import FindUnsent
from tests.builders import NOON, a_job
from tests.fakes import MemoryControlStore, MemoryDueStore

SHARDS = 16
JOB = a_job()


@pytest.fixture
def control() -> MemoryControlStore:
    control = MemoryControlStore()
    control.seed_cursors(SHARDS, floor_minute(NOON) - timedelta(minutes=1))
    return control


def test_the_shards_of_a_minute_are_read_concurrently(control: MemoryControlStore) -> None:
    """An hour of minutes in each shard, one read after the other, takes seconds: with 128 shards
    more than the 30 s of a request.
    """
    due = MemoryDueStore(shards=SHARDS)
    entry = FireEntry(JOB.key, JOB.uid, NOON, 1)
    due.put([entry], NOON)
    shards = {JOB.key.shard(number) for number in range(1, SHARDS + 1)}
    together = Barrier(len(shards), timeout=5)
    read: list[Any] = []

    class Slow:
        def read(self, *given: Any, **named: Any) -> Iterator[Any]:
            together.wait()
            read.append(given)
            return due.read(*given, **named)

    with ThreadPoolExecutor(len(shards)) as executor:
        find = FindUnsent(Slow(), control, read_shards=SHARDS, executor=executor)  # type: ignore[arg-type]
        found = find.of(JOB.key, JOB.uid, NOON)

    assert found is not None
    assert {*found} == {entry}
    minutes = [(minute, len([*reads])) for minute, reads in groupby(read, itemgetter(0))]
    once = [*dict.fromkeys(minutes)]
    assert minutes[: len(once)] == sorted(once), "an entry moves to later minutes meanwhile"
    assert {number for _, number in minutes} == {len(shards)}


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_table_with_too_many_entries_is_not_read_whole(
    control: MemoryControlStore, monkeypatch: pytest.MonkeyPatch, *, concurrent: bool
) -> None:
    monkeypatch.setattr(find_unsent, "_READ_AT_MOST", 20)
    due = MemoryDueStore(shards=1)
    with ThreadPoolExecutor(4) as pool:
        executor = pool if concurrent else None
        find = FindUnsent(due, control, read_shards=SHARDS, executor=executor)
        entries = [FireEntry(JOB.key, JOB.uid, NOON, version) for version in range(1, 22)]
        due.put(entries[:10], NOON)  # those of the present minute are read twice
        assert len(find.of(JOB.key, JOB.uid, NOON) or []) == 20
        due.put(entries, NOON)
        assert find.of(JOB.key, JOB.uid, NOON) is None
