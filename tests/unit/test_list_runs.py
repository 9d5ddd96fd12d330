"""Listing the runs of a tenant with filters and pages."""

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


class Harness:
    """Jobs and their runs, one run a minute from noon on."""

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
        """The runs on all pages, and the number of pages."""
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            reads = len(self.faults.calls)
            page = self.page(wanted, cursor, limit)
            assert len(self.faults.calls) - reads <= module.READS_AT_MOST
            assert len(page.items) <= limit
            found += [f"{run.key.job.job_id} {run.key.run_id[9:13]}" for run in page.items]
            cursor, pages = page.cursor, pages + 1
            assert pages < 100, "the listing does not end"
        return found, pages


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 50])
def test_each_run_is_found_once_however_the_pages_fall(harness: Harness, limit: int) -> None:
    harness.add("a", 3)
    harness.add("b", 0)
    harness.add("c", 1)
    harness.add("d", 2)
    harness.add("c", 4, tenant="other")

    found, _ = harness.all(limit=limit)

    assert found == ["a 1202", "a 1201", "a 1200", "c 1200", "d 1201", "d 1200"]


@pytest.mark.parametrize("most", [2, 3, 4, 7])
def test_a_call_reads_only_so_often(
    harness: Harness, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READS_AT_MOST", most)
    for n in range(9):
        harness.add(f"j{n}", n % 2)

    found, pages = harness.all()

    assert found == [f"j{n} 1200" for n in range(1, 9, 2)]
    assert pages > 1


def test_a_page_may_be_empty_though_others_follow(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READS_AT_MOST", 2)
    harness.add("a", 0)
    harness.add("b", 1)

    page = harness.page()

    assert (page.items, page.cursor) == ([], "a.")


def test_a_page_holds_only_so_much(harness: Harness) -> None:
    for job_id in "abc":
        harness.add(job_id, 1, stdout="x" * 200_000)

    assert [len(harness.page().items), harness.all()[1]] == [2, 2]


def test_a_job_without_matching_runs_is_skipped_in_one_page(harness: Harness) -> None:
    harness.add("a", 30)
    harness.add("b", 1, state=RunState.DEAD)

    found, pages = harness.all(RunFilter(NOON, NOON + HOUR, state=RunState.DEAD), limit=4)

    assert (found, pages) == (["b 1200"], 1)


def test_one_job_is_looked_at_alone(harness: Harness) -> None:
    for job_id in "abc":
        harness.add(job_id, 3)

    found, _ = harness.all(RunFilter(NOON, NOON + HOUR, job_id="b"), limit=2)

    assert found == ["b 1202", "b 1201", "b 1200"]
    assert set(harness.faults.calls) == {"runs.list"}


def test_a_job_that_came_meanwhile_is_met_where_its_id_stands(harness: Harness) -> None:
    harness.add("b", 2)
    harness.add("d", 1)
    cursor = harness.page(limit=1).cursor
    for job_id in "ac":
        harness.add(job_id, 1)

    page = harness.page(cursor=cursor)

    assert [run.key.job.job_id for run in page.items] == ["b", "c", "d"]


@pytest.mark.parametrize("cursor", ["", ".", "a", "a/b.", "é.", "x" * 65 + "."])
def test_an_invalid_cursor_is_rejected(harness: Harness, cursor: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        harness.page(cursor=cursor)

    assert refused.value.field == "cursor"
