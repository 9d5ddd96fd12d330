"""The command that shows what runs next, across jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import typer

from nextfire_cli import durations, upcoming
from nextfire_cli.durations import ahead, moment
from tests.unit.cli.answers import problem
from tests.unit.cli.conftest import Api, Call

NOON = datetime(2026, 5, 24, 12, tzinfo=UTC)


def every(job_id: str, minutes: int, *, first: int, **more: Any) -> dict[str, Any]:
    """A job due *first* minutes after noon, then each *minutes*."""
    times = [NOON + timedelta(minutes=first + n * minutes) for n in range(100)]
    return {
        "jobId": job_id,
        "state": "ACTIVE",
        "target": {"handler": f"script-{job_id}"},
        "nextFireAt": times[0].isoformat(),
        "times": [each.isoformat().replace("+00:00", "Z") for each in times],
        **more,
    }


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "time", SimpleNamespace(time=NOON.timestamp))


def serve(api: Api, *jobs: dict[str, Any]) -> None:
    """Answer with *jobs* and the next occurrences of each."""

    def occurrences(job: dict[str, Any]) -> Any:
        def answer(request: httpx2.Request) -> httpx2.Response:
            at = job["times"][: int(request.url.params["count"])]
            zone = {"local": "", "offset": "+00:00"}
            items = [{"executionId": f"{job['jobId']}.{each}", "at": each, **zone} for each in at]
            return httpx2.Response(200, json={"items": items})

        return answer

    shown = [{name: job[name] for name in job if name != "times"} for job in jobs]
    api.routes["GET /v1/jobs"] = {"items": shown}
    for job in jobs:
        api.routes[f"GET /v1/jobs/{job['jobId']}/upcoming"] = occurrences(job)


def shown(stdout: str) -> list[tuple[str, str]]:
    return [(each["jobId"], each["at"][11:16]) for each in json.loads(stdout)["items"]]


def test_all_jobs_are_shown_in_order_of_time(call: Call, api: Api) -> None:
    child = {"jobId": "child", "state": "ACTIVE", "target": {"handler": "c"}, "times": []}
    serve(api, every("slow", 60, first=5), every("fast", 10, first=1), child)

    result = call("jobs", "upcoming", "--count", "4", "--json")

    assert result.exit_code == 0, result.output
    order = [("fast", "12:01"), ("slow", "12:05"), ("fast", "12:11"), ("fast", "12:21")]
    assert shown(result.stdout) == order
    assert api.queries[0] == {"state": "ACTIVE", "limit": "100"}
    table = call("jobs", "upcoming", "--count", "1").stdout
    assert table.splitlines()[1].split() == ["2026-05-24", "12:01:00", "fast", "script-fast"]
    names = call("jobs", "upcoming", "--count", "1", "-o", "name").stdout
    assert names == "fast.2026-05-24T12:01:00Z\n"


def test_only_jobs_that_can_be_among_the_first_are_asked_for(call: Call, api: Api) -> None:
    serve(api, *(every(f"job_{n}", 60, first=n) for n in range(20)))

    result = call("jobs", "upcoming", "--count", "3", "--json")

    assert [job for job, _ in shown(result.stdout)] == ["job_0", "job_1", "job_2"]
    assert len(api.requests) == 1 + 3
    assert not result.stderr


TEN_AGO: dict[str, Any] = {
    "jitterSec": 3600,
    "times": ["2026-05-24T11:50:00Z", "2026-05-25T11:50:00Z"],
}
"""Of a job whose occurrence of ten minutes ago may still be delayed."""


@pytest.mark.parametrize(
    ("schedule", "ends"),
    [
        ({"type": "CRON", "schedule": "50 11 * * *"}, False),
        ({"type": "CRON", "schedule": "50 13 * * *", "timezone": "Europe/Berlin"}, False),
        ({"type": "INTERVAL", "schedule": "P1D"}, False),
        ({"type": "INTERVAL", "schedule": "P1D", "startAt": "2026-05-01T11:50:00Z"}, False),
        ({"type": "INTERVAL", "schedule": "PT12H", "exceptDates": ["2026-05-25"]}, False),
        ({"type": "DATES", "schedule": ["2026-05-24T11:50:00Z", "2026-05-25T11:50:00Z"]}, False),
        ({"type": "ONCE", "schedule": "2026-05-24T11:50:00Z"}, True),
        ({"type": "DELAY", "schedule": "PT1H"}, True),
        ({"type": "INTERVAL", "schedule": "P1D", "maxRuns": 1}, True),
    ],
    ids=str,
)
def test_a_run_that_jitter_delays_is_shown_although_its_occurrence_is_over(
    call: Call, api: Api, schedule: dict[str, Any], *, ends: bool
) -> None:
    job = every("job", 60, first=0) | TEN_AGO | schedule | {"nextFireAt": TEN_AGO["times"][1]}
    if ends:
        del job["nextFireAt"]
    serve(api, every("fast", 10, first=1), job)

    first = call("jobs", "upcoming", "--count", "2", "--json")
    soon = call("jobs", "upcoming", "--until", "5m", "--json")

    assert shown(first.stdout) == shown(soon.stdout) == [("job", "11:50"), ("fast", "12:01")]


@pytest.mark.parametrize(
    "schedule",
    [
        {"type": "CRON", "schedule": "0 3 * * *"},
        {"type": "INTERVAL", "schedule": "P1D"},
        {"type": "ONCE", "schedule": "2026-05-25T03:00:00Z"},
    ],
    ids=str,
)
def test_a_job_without_an_occurrence_that_can_be_delayed_is_not_asked_for(
    call: Call, api: Api, schedule: dict[str, Any]
) -> None:
    nightly = schedule | {"jitterSec": 3600}
    child = {"jobId": "child", "state": "ACTIVE", "type": "AFTER", "jitterSec": 5, "times": []}
    serve(api, every("fast", 10, first=1), every("nightly", 1440, first=900, **nightly), child)

    call("jobs", "upcoming", "--count", "1")

    assert len(api.requests) == 1 + 1


def test_of_many_jobs_that_may_be_delayed_few_are_asked_for(call: Call, api: Api) -> None:
    spread = {"type": "CRON", "schedule": "0 * * * *", "jitterSec": 3600}
    serve(api, *(every(f"j{n:03}", 60, first=60, **spread) for n in range(upcoming.MOST + 1)))

    listed = call("jobs", "upcoming", "--count", "5", "--json")

    assert len(api.requests) == 1 + upcoming.MOST + 1, "the list, delayed jobs, the one left"
    assert f"of {upcoming.MOST} of them, the delayed runs are shown" in listed.stderr


def test_until_ends_the_list_and_says_if_there_is_more(call: Call, api: Api) -> None:
    serve(api, every("a", 10, first=5), every("late", 10, first=120))

    night = call("jobs", "upcoming", "--until", "12:30", "--json")

    assert shown(night.stdout) == [("a", "12:05"), ("a", "12:15"), ("a", "12:25")]
    assert not night.stderr
    assert len(api.requests) == 2, "no request for a job that is due later"
    few = call("jobs", "upcoming", "--until", "30m", "--count", "2", "--json")
    assert shown(few.stdout) == [("a", "12:05"), ("a", "12:15")]
    assert "There may be more than 2 until then: raise --count." in few.stderr
    one = call("jobs", "upcoming", "a", "--until", "20m", "--json")
    assert one.exit_code == 0, one.output
    assert [each["at"][11:16] for each in json.loads(one.stdout)["items"]] == ["12:05", "12:15"]
    assert call("jobs", "upcoming", "--until", "1m").stdout == "No upcoming occurrences.\n"
    all_of_one = call("jobs", "upcoming", "a", "--until", "2d").stderr
    assert "There may be more than 100 until then: give an earlier --until.\n" in all_of_one
    assert ", or leave jobs out by --label" in call("jobs", "upcoming", "--until", "2d").stderr


def test_only_jobs_with_the_labels_are_looked_at(call: Call, api: Api) -> None:
    serve(api, every("a", 10, first=5))

    result = call("jobs", "upcoming", "--label", "team=etl", "--label", "env=prod", "--json")

    assert result.exit_code == 0, result.output
    assert api.queries[0]["label"] == "team:etl,env:prod"
    assert call("jobs", "upcoming", "a", "--label", "team=etl").exit_code == 2


def test_a_job_that_was_deleted_since_does_not_hide_the_others(call: Call, api: Api) -> None:
    serve(api, every("a", 10, first=5), every("gone", 10, first=1))
    api.routes["GET /v1/jobs/gone/upcoming"] = problem(404, "Not found")

    result = call("jobs", "upcoming", "--count", "2", "--json")

    assert shown(result.stdout) == [("a", "12:05"), ("a", "12:15")]


def test_a_listing_of_too_many_jobs_is_cut_and_says_so(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upcoming, "PAGES", 2)
    serve(api, every("a", 10, first=5))
    api.routes["GET /v1/jobs"]["cursor"] = "next"

    result = call("jobs", "upcoming", "--count", "1")

    assert "Incomplete: only the first 200 jobs by id" in result.stderr
    assert [each.url.path for each in api.requests].count("/v1/jobs") == 2


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("08:00", NOON.replace(hour=8) + timedelta(days=1)),
        ("12:01", NOON.replace(minute=1)),
        ("12:00", NOON + timedelta(days=1)),
        ("90m", NOON + timedelta(minutes=90)),
        ("2026-05-25", NOON.replace(day=25, hour=0)),
        ("2026-05-25T08:00:00+02:00", NOON.replace(day=25, hour=6)),
    ],
)
def test_times_ahead(text: str, instant: datetime) -> None:
    assert ahead(text, "--until", NOON) == instant


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("08:00", NOON.replace(hour=8)),
        ("12:00", NOON),
        ("12:01", NOON.replace(day=23, minute=1)),
        ("90m", NOON - timedelta(minutes=90)),
    ],
)
def test_times_in_the_past(text: str, instant: datetime) -> None:
    assert datetime.fromisoformat(moment(text, "--since", NOON)) == instant


@pytest.mark.parametrize("text", ["", "8", "24:00", "08:60", "soon", "99999999999d"])
@pytest.mark.parametrize("read", [ahead, moment])
def test_what_is_not_a_time(text: str, read: Callable[[str, str, datetime], object]) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        read(text, "--until", NOON)


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_an_instant_that_utc_cannot_have_is_not_a_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        ahead(text, "--until", NOON)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (
            {"state": "PAUSED", "pausedAt": "2026-05-24T11:00:00Z", "pauseReason": "it is closed"},
            "2026-05-24T11:00:00Z (it is closed). Resume it: nextfire jobs resume a\n",
        ),
        (
            {
                "state": "PAUSED",
                "pausedAt": "2026-05-24T11:00:00Z",
                "resumesAt": "2026-05-24T13:00:00Z",
            },
            "It resumes at 2026-05-24T13:00:00Z.\n",
        ),
        ({"type": "MANUAL"}, "A MANUAL job has no schedule.\n"),
        ({"type": "AFTER"}, "It runs when the runs of its parents end.\n"),
        ({"state": "COMPLETED"}, "No occurrence is left."),
    ],
)
def test_a_job_without_upcoming_occurrences_says_why(
    call: Call, api: Api, job: dict[str, Any], why: str
) -> None:
    serve(api, {"jobId": "a", "state": "ACTIVE", "times": []})
    api.routes["GET /v1/jobs/a"] = {"jobId": "a", "state": "ACTIVE", "type": "CRON", **job}

    result = call("jobs", "upcoming", "a")

    assert (result.exit_code, result.stdout) == (0, "No upcoming occurrences.\n")
    assert why in result.stderr
    assert call("jobs", "upcoming", "a", "--json").stderr == ""
