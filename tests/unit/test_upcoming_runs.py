"""What is listed as upcoming is what runs, also if jitter delays it over a pause or a change."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.testing import Stack
from tests.builders import RUN_ALL, RUN_LATEST, SKIP

HOUR = timedelta(hours=1)
DELAYED: dict[str, Any] = {
    "type": "CRON",
    "schedule": "0 * * * *",
    "jitterSec": 3600,
    "target": {"handler": "report"},
}
TICKS = timedelta(seconds=60)
"""Occurrences that are due together start one after the other, each in a tick of the watcher."""


@pytest.fixture
def stack() -> Stack:
    stack = Stack("2027-01-01T11:30:00Z")
    stack.script("report", lambda _: None)
    return stack


def upcoming(stack: Stack, job_id: str, most: int = 100) -> dict[str, datetime]:
    """When the runs are due that are listed, by execution id."""
    items = stack.client.list_upcoming(job_id, count=most).items
    return {str(each.execution_id): each.due_at or each.at for each in items}


def delayed(stack: Stack, misfire: dict[str, Any] = RUN_LATEST) -> tuple[str, str, datetime]:
    """Create a job whose occurrence at 12:00 is delayed to 12:20 or later. Returns its id, that of
    the run and when it is due.
    """
    for number in count(1):
        job_id = f"j{number}"
        stack.put(job_id, DELAYED | {"misfire": misfire})
        [(run, due_at)] = upcoming(stack, job_id, 1).items()
        if due_at.minute >= 20:
            return job_id, run, due_at
    raise AssertionError


@pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=lambda m: m["policy"])
def test_an_occurrence_of_a_pause_is_listed_if_it_runs(stack: Stack, misfire: Any) -> None:
    job_id, run, _ = delayed(stack, misfire)
    stack.advance_to("2027-01-01T11:50:00Z")
    stack.pause(job_id)
    stack.advance_to("2027-01-01T12:10:00Z")
    stack.resume(job_id)

    listed = run in upcoming(stack, job_id)
    stack.advance(HOUR)

    state = stack.client.get_execution(run).state
    assert (listed, state) == ((False, "SKIPPED") if misfire is SKIP else (True, "SUCCEEDED"))


def test_what_was_delayed_before_a_change_of_the_schedule_is_still_listed(stack: Stack) -> None:
    job_id, run, due_at = delayed(stack)
    stack.advance_to("2027-01-01T12:10:00Z")
    stack.change(job_id, {"schedule": "30 * * * *", "jitterSec": 0})

    found = upcoming(stack, job_id, 1)
    stack.advance(HOUR)

    assert found == {run: due_at}
    assert stack.client.get_execution(run).started_at == due_at
    assert run not in upcoming(stack, job_id)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_listed_runs_and_nothing_else(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 — a history that replays
    stack = Stack("2027-01-01T11:30:00Z")
    stack.script("report", lambda _: None)
    document = DELAYED | when(dice) | {"jobId": "j", "misfire": policy(dice)}
    stack.client.create_job(document, idempotency_key=str(seed))  # which decides on the jitter
    stack.advance(seconds=dice.randint(0, 4000))
    for _ in range(dice.randint(1, 3)):
        if dice.random() < 0.3:
            stack.change("j", when(dice))
        else:
            stack.pause("j")
            stack.advance(seconds=dice.randint(0, 4000))
            stack.resume("j")
        stack.advance(TICKS, seconds=dice.choice([0, 0, 300, 4000]))

    before = started(stack)
    since, due = stack.now, upcoming(stack, "j")
    end = min(since + 3 * HOUR, max(due.values()))
    stack.advance_to(end + TICKS)

    ran = {run: at for run, at in started(stack).items() if run not in before}
    assert {run for run, at in due.items() if at <= end} == {
        run for run, at in ran.items() if due.get(run, at) <= end
    }
    for run, at in ran.items():
        assert timedelta() <= at - due.get(run, at) <= TICKS, run


def when(dice: random.Random) -> dict[str, Any]:
    return {
        "type": "INTERVAL",
        "schedule": f"PT{dice.choice([60, 77, 300, 900, 3600])}S",
        "jitterSec": dice.choice([30, 90, 600, 3600]),
    }


def policy(dice: random.Random) -> dict[str, Any]:
    window = {"relevancyWindowSec": dice.choice([60, 600])} if dice.random() < 0.3 else {}
    return dice.choice([RUN_ALL, RUN_LATEST, SKIP]) | window


def started(stack: Stack) -> dict[str, datetime]:
    """When the runs that were not skipped were started, by execution id."""
    return {run.execution_id: run.started_at for run in stack.runs("j") if run.started_at}
