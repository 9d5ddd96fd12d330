"""Each type of schedule on the deployed stack: the upcoming occurrences are the ones that run.

All jobs live in one window of a little over a minute, so it includes the start of a minute.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.user import COUNTING, Document, User, instant, until

WINDOW = timedelta(seconds=64)
AFTERWARDS = timedelta(seconds=8)
"""Longer than the longest gap between two occurrences: an extra occurrence would show."""
MOST_LATE = timedelta(seconds=30)
WHEN = ("type", "schedule", "timezone", "startAt", "endAt", "exceptDates", "maxRuns", "jitterSec")


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for pool in stack.info.pools:
        stack.put_script(pool, "counting", COUNTING)
    with stack.api() as http:
        yield User(stack, http, scratch)


def schedules(start: datetime, end: datetime) -> dict[str, Document]:
    """A job of each type, by its special feature. No job has an occurrence after *end*."""

    def after(seconds: float) -> str:
        return (start + timedelta(seconds=seconds)).isoformat()

    berlin = (start + timedelta(seconds=21)).astimezone(ZoneInfo("Europe/Berlin"))
    soon, last = after(3), end.isoformat()
    dates = [after(9.5), after(4), f"{berlin:%Y-%m-%dT%H:%M:%S}", after(4), after(15.123)]
    return {
        "cron": {"type": "CRON", "schedule": "* * * * *", "endAt": last},
        "cron-once": {
            "type": "CRON",
            "schedule": "*/1 * * * *",
            "timezone": "Asia/Kolkata",
            "maxRuns": 1,
        },
        "interval": {"type": "INTERVAL", "schedule": "PT5S", "startAt": soon, "endAt": last},
        "interval-phase": {"type": "INTERVAL", "schedule": "PT6S", "maxRuns": 5},
        "interval-past": {
            "type": "INTERVAL",
            "schedule": "PT8S",
            "startAt": after(-3596),
            "endAt": last,
        },
        "interval-jitter": {
            "type": "INTERVAL",
            "schedule": "PT5S",
            "startAt": soon,
            "endAt": last,
            "jitterSec": 4,
        },
        "dates": {"type": "DATES", "schedule": dates, "timezone": "Europe/Berlin"},
        "dates-lambda": {"type": "DATES", "schedule": [after(6), after(12)]},
        "dates-except": {
            "type": "DATES",
            "schedule": [after(7), after(7 + 86_400)],
            "exceptDates": [f"{start + timedelta(seconds=7 + 86_400):%Y-%m-%d}"],
        },
        "once": {"type": "ONCE", "schedule": after(10.25)},
        "delay": {"type": "DELAY", "schedule": "PT12S"},
        "manual": {"type": "MANUAL"},
    }


def named(user: User, job: Document) -> list[Document]:
    items: list[Document] = user.call("GET", f"/v1/jobs/{job['jobId']}/upcoming?count=100")["items"]
    return items


def previewed(user: User, job: Document) -> list[Document]:
    """What the preview lists for a job created at the same time as *job*."""
    when = {name: job[name] for name in WHEN if job.get(name) is not None}
    body = {**when, "after": job["createdAt"], "count": 100}
    items: list[Document] = user.call("POST", "/v1/schedules/preview", body)["items"]
    return items


def finished(user: User, job: Document, count: int) -> list[Document] | None:
    """The job's runs, earliest first, if *count* or more have ended."""
    runs = user.call("GET", f"/v1/jobs/{job['jobId']}/executions?limit=100")["items"]
    over = [run for run in runs if run["state"] == "SUCCEEDED"]
    return runs[::-1] if len(over) >= count else None


def test_each_type_of_schedule_runs_at_the_instants_that_were_named(user: User) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    end = start + WINDOW
    jobs: dict[str, Document] = {}
    upcoming: dict[str, list[Document]] = {}
    for name, when in schedules(start, end).items():
        pool = "lambda" if name.endswith("lambda") else "default"
        target = {"handler": "counting", "pool": pool}
        more: Any = {"target": target, "payload": {"marks": str(user.marks)}}
        jobs[name] = user.create(jobId=f"schedule-{name}", **when, **more)
        upcoming[name] = named(user, jobs[name])
        preview = previewed(user, jobs[name])
        assert [item["at"] for item in preview] == [item["at"] for item in upcoming[name]], name
        first = upcoming[name][0]["at"] if upcoming[name] else None
        assert jobs[name].get("nextFireAt") == first, name
    assert datetime.now(UTC) < start + timedelta(seconds=3), "too slow for a meaningful test"
    counts = {name: len(items) for name, items in upcoming.items()}
    assert counts.pop("cron") in {1, 2}
    assert counts == {
        "cron-once": 1,
        "interval": 13,
        "interval-phase": 5,
        "interval-past": 8,
        "interval-jitter": 13,
        "dates": 4,
        "dates-lambda": 2,
        "dates-except": 1,
        "once": 1,
        "delay": 1,
        "manual": 0,
    }
    delays = [instant(i["dueAt"]) - instant(i["at"]) for i in upcoming["interval-jitter"]]
    assert timedelta() <= min(delays) < max(delays) < timedelta(seconds=4)

    time.sleep(max((end + AFTERWARDS - datetime.now(UTC)).total_seconds(), 0))

    ran = []
    for name, job in jobs.items():
        what = f"the end of all runs of {name}"
        items = upcoming[name]
        if not items:
            assert user.runs(job) == []
            continue
        runs = until(partial(finished, user, job, len(items)), what)
        assert [run["scheduledAt"] for run in runs] == [item["at"] for item in items], name
        assert [run["executionId"] for run in runs] == [item["executionId"] for item in items]
        for run, item in zip(runs, items, strict=True):
            due_at = instant(item["dueAt"] if "dueAt" in item else item["at"])
            assert due_at <= instant(run["dispatchedAt"]) <= instant(run["startedAt"]), name
            assert instant(run["startedAt"]) <= due_at + MOST_LATE, name
            assert run["attempt"] == 1
        ran += [run["executionId"] for run in runs]
    assert sorted(user.marked()) == sorted(ran), "each ran once, and nothing else ran"
    for name, job in jobs.items():
        over = user.call("GET", f"/v1/jobs/{job['jobId']}")
        assert over["state"] == ("ACTIVE" if name == "manual" else "COMPLETED"), name
        assert over.get("nextFireAt") is None
        assert named(user, job) == []
