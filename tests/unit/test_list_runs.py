"""Runs found among those of a tenant's jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.run import Run, RunState
from nextfire.usecases import list_runs as module
from nextfire.usecases.list_runs import RunFilter, RunListing, list_runs
from tests.builders import NOON, a_job, run_key
from tests.fakes import Faults, MemoryDueStore, MemoryJobStore, MemoryRunStore

HOUR = timedelta(hours=1)
WANTED = RunFilter(first=NOON, before=NOON + HOUR)


class Desk:
    """Some jobs, and their runs: one a minute from noon on."""

    def __init__(self) -> None:
        self.faults = Faults()
        self._jobs = MemoryJobStore(MemoryDueStore())
        self._runs = MemoryRunStore()
        self.jobs = self.faults.through(self._jobs, "jobs")
        self.runs = self.faults.through(self._runs, "runs")

    def add(self, job_id: str, runs: int, *, tenant: str = "acme", **fields: Any) -> None:
        self._jobs.put(a_job(job_id, tenant=tenant))
        for n in range(runs):
            key = run_key(NOON + timedelta(minutes=n), job_id=job_id, tenant=tenant)
            self._runs.items[key] = Run(key, **{"state": RunState.SUCCEEDED, **fields})

    def page(
        self, wanted: RunFilter = WANTED, cursor: str | None = None, limit: int = 50
    ) -> RunListing:
        return list_runs(self.jobs, self.runs, "acme", wanted, cursor=cursor, limit=limit)

    def all(self, wanted: RunFilter = WANTED, limit: int = 50) -> tuple[list[str], int]:
        """What all pages name, and how many pages there are."""
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            reads = len(self.faults.calls)
            page = self.page(wanted, cursor, limit)
            assert len(self.faults.calls) - reads <= module.READS_AT_MOST
            assert len(page.items) <= limit
            found += [f"{run.key.job.job_id} {run.key.run_id[9:13]}" for run in page.items]
            cursor, pages = page.cursor, pages + 1
            assert pages < 100, "it ends"
        return found, pages


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 50])
def test_each_run_is_found_once_however_the_pages_fall(desk: Desk, limit: int) -> None:
    desk.add("a", 3)
    desk.add("b", 0)
    desk.add("c", 1)
    desk.add("d", 2)
    desk.add("c", 4, tenant="other")

    found, _ = desk.all(limit=limit)

    assert found == ["a 1202", "a 1201", "a 1200", "c 1200", "d 1201", "d 1200"]


@pytest.mark.parametrize("most", [2, 3, 4, 7])
def test_a_call_reads_only_so_often(desk: Desk, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READS_AT_MOST", most)
    for n in range(9):
        desk.add(f"j{n}", n % 2)

    found, pages = desk.all()

    assert found == [f"j{n} 1200" for n in range(1, 9, 2)]
    assert pages > 1


def test_a_page_may_be_empty_though_others_follow(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READS_AT_MOST", 2)
    desk.add("a", 0)
    desk.add("b", 1)

    page = desk.page()

    assert (page.items, page.cursor) == ([], "a.")


def test_a_page_holds_only_so_much(desk: Desk) -> None:
    for job_id in "abc":
        desk.add(job_id, 1, stdout="x" * 200_000)

    assert [len(desk.page().items), desk.all()[1]] == [2, 2]


def test_a_job_of_which_no_record_is_wanted_is_gone_through_to_its_end(desk: Desk) -> None:
    desk.add("a", 30)
    desk.add("b", 1, state=RunState.DEAD)

    found, pages = desk.all(RunFilter(NOON, NOON + HOUR, state=RunState.DEAD), limit=4)

    assert (found, pages) == (["b 1200"], 1)


def test_one_job_is_looked_at_alone(desk: Desk) -> None:
    for job_id in "abc":
        desk.add(job_id, 3)

    found, _ = desk.all(RunFilter(NOON, NOON + HOUR, job_id="b"), limit=2)

    assert found == ["b 1202", "b 1201", "b 1200"]
    assert set(desk.faults.calls) == {"runs.list"}


def test_a_job_that_came_meanwhile_is_met_where_its_id_stands(desk: Desk) -> None:
    desk.add("b", 2)
    desk.add("d", 1)
    cursor = desk.page(limit=1).cursor
    for job_id in "ac":
        desk.add(job_id, 1)

    page = desk.page(cursor=cursor)

    assert [run.key.job.job_id for run in page.items] == ["b", "c", "d"]


@pytest.mark.parametrize("cursor", ["", ".", "a", "a/b.", "é.", "x" * 65 + "."])
def test_a_cursor_of_nobody_is_refused(desk: Desk, cursor: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        desk.page(cursor=cursor)

    assert refused.value.field == "cursor"
