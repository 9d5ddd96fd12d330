"""The commands that list upcoming occurrences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Api, Call

ITEM = {
    "at": "2026-10-25T00:30:00Z",
    "local": "2026-10-25T02:30:00",
    "offset": "+02:00",
    "note": "2026-10-25T02:30 occurs twice: fires the first time only",
}


@pytest.fixture
def items() -> list[dict[str, str]]:
    return [ITEM]


@pytest.fixture
def api(items: list[dict[str, str]]) -> Api:
    routes = ("POST /v1/schedules/preview", "GET /v1/jobs/job_1/upcoming")
    return Api({route: {"items": items} for route in routes})


def sent(api: Api) -> Any:
    [request] = api.requests
    assert (request.method, request.url.path) == ("POST", "/v1/schedules/preview")
    return json.loads(request.content)


@pytest.mark.parametrize(
    ("flags", "document"),
    [
        (["--cron", "@daily"], {"type": "CRON", "schedule": "@daily"}),
        (["--at", "2030-01-01"], {"type": "ONCE", "schedule": "2030-01-01"}),
        (["--in", "5m"], {"type": "DELAY", "schedule": "PT5M"}),
        (["--every", "1h30m"], {"type": "INTERVAL", "schedule": "PT1H30M"}),
        (
            ["--date", "2030-01-01", "--date", "2031-01-01"],
            {"type": "DATES", "schedule": ["2030-01-01", "2031-01-01"]},
        ),
    ],
)
def test_preview_sends_what_the_flags_say(
    call: Call, api: Api, flags: list[str], document: dict[str, Any]
) -> None:
    result = call("schedules", "preview", *flags)

    assert result.exit_code == 0, result.output
    assert sent(api) == document | {"count": 10}


def test_preview_sends_all_of_when_and_nothing_else(call: Call, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "type: DATES\nschedule: [2030-01-01, 2030-02-01T10:00:00]\njobId: a\n"
        "target: {handler: hello}\nmaxRuns: 3\n"
    )
    flags = (
        "--timezone Asia/Tokyo --start-at 2029-01-01 --end-at 2031-01-01 --dst EACH --max-runs 7"
        " --jitter 10m --after 2028-01-01 --count 3"
    )

    result = call("schedules", "preview", "-f", str(file), *flags.split())

    assert result.exit_code == 0, result.output
    assert sent(api) == {
        "type": "DATES",
        "schedule": ["2030-01-01", "2030-02-01T10:00:00"],
        "timezone": "Asia/Tokyo",
        "startAt": "2029-01-01",
        "endAt": "2031-01-01",
        "dst": "EACH",
        "maxRuns": 7,
        "jitterSec": 600,
        "after": "2028-01-01",
        "count": 3,
    }


def test_preview_takes_a_job_in_the_short_form(call: Call, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("taskId: report\ncron: 0 3 * * *\nparams: {day: 1}\ntimezone: Asia/Tokyo\n")

    result = call("schedules", "preview", "-f", str(file))

    assert result.exit_code == 0, result.output
    when = {"type": "CRON", "schedule": "0 3 * * *", "timezone": "Asia/Tokyo"}
    assert sent(api) == when | {"count": 10}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], "--every"),
        (["--cron", "@daily", "--every", "5m"], "--every"),
        (["--every", "soon"], "--every"),
        (["--every", "5m", "--jitter", "0.5s"], "--jitter"),
        (["--every", "5m", "--count", "101"], "--count"),
        (["--every", "5m", "--dst", "TWICE"], "--dst"),
    ],
)
def test_wrong_usage(call: Call, api: Api, flags: list[str], named: str) -> None:
    result = call("schedules", "preview", *flags)

    assert result.exit_code == 2
    assert named in result.stderr
    assert not api.requests


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("overlpa: SKIP", "overlpa"),
        ("overlap: SKPI", "overlap"),
        ("overlap: skip", "overlap"),
        ("misfire: {polcy: SKIP}", "misfire.polcy"),
        ("misfire: {policy: NEVER}", "misfire.policy"),
        ("count: 3", "count"),
    ],
)
def test_a_file_that_create_refuses_is_refused(
    call: Call, api: Api, tmp_path: Path, line: str, named: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"type: CRON\nschedule: '@daily'\ntarget: {{handler: a}}\n{line}\n")

    result = call("schedules", "preview", "-f", str(file))

    assert result.exit_code == 2
    assert f"{named}:" in result.stderr
    assert not api.requests


def test_what_says_when_is_left_to_the_api(call: Call, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("type: CRON\nschedule: [a]\njobId: a\nname: b\n")

    assert call("schedules", "preview", "-f", str(file)).exit_code == 0
    assert sent(api) == {"type": "CRON", "schedule": ["a"], "count": 10}


def test_upcoming_asks_for_the_job(call: Call, api: Api) -> None:
    result = call("jobs", "upcoming", "job_1", "--count", "3")

    assert result.exit_code == 0, result.output
    assert str(api.requests[0].url).endswith("/v1/jobs/job_1/upcoming?count=3")


@pytest.mark.parametrize(
    "command", [("schedules", "preview", "--cron", "30 2 * * *"), ("jobs", "upcoming", "job_1")]
)
def test_what_is_shown(call: Call, items: list[Any], command: tuple[str, ...]) -> None:
    output = call(*command).stdout
    assert all(text in output for text in ITEM.values())
    assert "DUE" not in output
    assert json.loads(call(*command, "--json").stdout) == {"items": [ITEM]}

    items[0] = ITEM | {"dueAt": "2026-10-25T00:30:07.125Z"}
    assert "2026-10-25T00:30:07.125Z" in call(*command).stdout

    items.clear()
    assert call(*command).stdout == "No upcoming occurrences.\n"


def test_no_width_of_a_terminal_cuts_an_execution_id(
    call: Call, items: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = "job_0123456789abcdef.20261025T003000000Z-0123456789abcdef"
    items[0] = ITEM | {"executionId": identity}
    monkeypatch.setattr("nextfire_cli.session._PIPE_WIDTH", 60)

    output = call("jobs", "upcoming", "job_1").stdout

    assert identity in output
    assert ITEM["local"] in output
