"""Redriving the dead runs of a pool page by page, and listing them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from nextfire.domain.attempt import Attempt
from nextfire.domain.errors import UnavailableError
from nextfire.domain.run import RunState
from nextfire.usecases import manage_runs
from tests.builders import at, job_key, run_key
from tests.unit.manage_runs.conftest import Harness


def test_the_dead_of_a_pool_are_redriven_page_by_page(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_runs, "TOGETHER", 2)
    runs = [harness.dead(run_key(at(f"{hour:02}:00"))) for hour in (12, 11, 10, 8, 7)]
    harness.dead(run_key(at("09:00")), pool="batch")
    ids = [run.key.execution_id for run in runs]

    redriven, skipped, cursor = harness.redrive_dead(limit=2)
    assert (redriven, skipped) == (ids[:2], {})
    assert harness.redrive_dead(cursor=cursor) == (ids[2:], {}, None)
    assert harness.redrive_dead() == ([], {}, None)
    assert len(harness.due.entries) == 5


def test_an_error_of_one_run_does_not_affect_the_others(harness: Harness) -> None:
    harness.registered("gone", uid="uid00009")
    spoilt, refused, fine = (
        harness.dead(run_key(at(time), job_id=job, uid=uid))
        for time, job, uid in (
            ("10:00", "gone", "uid00001"),
            ("11:00", "report", "uid00001"),
            ("12:00", "report", "uid00001"),
        )
    )
    harness.faults.refuse("runs.redrive")

    redriven, skipped, _ = harness.redrive_dead()

    assert redriven == [refused.key.execution_id]
    assert set(skipped) == {spoilt.key.execution_id, fine.key.execution_id}
    assert skipped[spoilt.key.execution_id] == "Its job was deleted."
    assert "Try again" in skipped[fine.key.execution_id]


def test_a_job_that_cannot_be_read_costs_its_own_runs_only(harness: Harness) -> None:
    harness.registered("other")
    harness.jobs.spoil(job_key("other"))
    broken = harness.dead(run_key(at("12:00"), job_id="other"))
    fine = harness.dead(run_key(at("11:00")))

    redriven, skipped, _ = harness.redrive_dead()

    assert redriven == [fine.key.execution_id]
    assert list(skipped) == [broken.key.execution_id]


def test_a_listing_of_a_moment_ago_starts_nothing_twice(harness: Harness) -> None:
    run = harness.dead()

    def redriven_and_succeeded() -> None:
        now = harness.manage.redrive(run.key, None)
        attempts = (*now.attempts, Attempt(2, "w", at("12:30")))
        harness.runs._store(  # noqa: SLF001 - as its worker would store it
            replace(now, state=RunState.SUCCEEDED, attempt=2, fence=2, attempts=attempts)
        )

    harness.faults.call_before_next("jobs.get", redriven_and_succeeded)

    redriven, skipped, _ = harness.redrive_dead()

    assert redriven == []
    assert skipped == {run.key.execution_id: "The execution is SUCCEEDED."}


def test_a_failed_listing_is_an_error(harness: Harness) -> None:
    harness.faults.refuse("runs.list_dead")

    with pytest.raises(UnavailableError):
        harness.redrive_dead()


def test_a_search_for_a_pools_dead_ends(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage_runs, "PAGES_AT_MOST", 3)
    for minute in range(10):
        harness.dead(run_key(at(f"12:{minute:02}")), pool="batch")

    page = harness.manage.dead(
        "acme", first=at("00:00"), last=at("13:00"), pool="default", cursor=None, limit=2
    )

    assert page.items == []
    assert page.cursor is not None
    follows = harness.runs.list_dead(
        "acme", first=at("00:00"), last=at("13:00"), cursor=page.cursor, limit=1
    )
    assert [run.key.scheduled_at for run in follows.items] == [at("12:03")]


def test_a_page_of_large_dead_runs_is_short(harness: Harness) -> None:
    for minute in range(7):
        run = harness.dead(run_key(at(f"12:{minute:02}")))
        harness.runs.items[run.key] = replace(run, payload='"' + "x" * 100_000 + '"')
    cursor: str | None = None
    pages: list[list[datetime]] = []
    while not pages or cursor is not None:
        page = harness.manage.dead(
            "acme", first=at("00:00"), last=at("13:00"), pool=None, cursor=cursor, limit=100
        )
        cursor = page.cursor
        pages.append([run.key.scheduled_at for run in page.items])

    assert [len(each) for each in pages] == [3, 3, 1]
    listed = [each for page in pages for each in page]
    assert listed == [at(f"12:{minute:02}") for minute in reversed(range(7))]
