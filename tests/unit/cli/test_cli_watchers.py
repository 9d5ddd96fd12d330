"""`nextfire status` on the watchers of a deployed stack."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire.domain.activity import RECENT, Activity
from nextfire_cli import session, state
from tests.unit.cli import answers
from tests.unit.cli.conftest import Api, Call
from tests.unit.cli.keys import KEY

ROUTES = answers.ROUTES

TAKEOVER = {"lostAt": "2026-05-24T09:59:50Z", "takenAt": "2026-05-24T09:59:53.5Z"}


def watchers(api: Api, *groups: dict[str, Any]) -> None:
    api.routes["GET /v1/overview"] = answers.NUMBERS | {"watchers": [*groups]}


def test_a_lost_watcher_is_a_problem(call: Call, api: Api) -> None:
    lost = {"group": 1, "state": "LOST", "renewedAt": "2026-05-24T09:59:55Z"}
    watchers(api, {"group": 0, "state": "WATCHING", "renewedAt": "2026-05-24T10:00:00Z"}, lost)

    result = call("status")

    assert result.exit_code == 1
    assert "API time 2026-05-24T10:00:00Z" in " ".join(result.stdout.split())
    assert "Watcher 0 renews its lease" in " ".join(result.stdout.split())
    assert "Watcher 1 does not renew its lease" in " ".join(result.stdout.split())
    assert (
        "Not on time: the watcher of group 1 has not renewed its lease since 2026-05-24T09:59:55Z"
        ", so it died or hangs: another one takes over within about a minute."
    ) in " ".join(result.stderr.split())


def test_watchers_that_are_not_started_are_a_problem(call: Call, api: Api) -> None:
    watchers(api, {"group": 0, "state": "STOPPED"})

    result = call("status")

    assert result.exit_code == 1
    assert "Watcher 0 has not run for minutes" in " ".join(result.stdout.split())
    assert (
        "Not on time: the watcher of group 0 has not run for minutes: see watcher-silent in"
        " docs/operate/runbook.md."
    ) in " ".join(result.stderr.split())


def test_a_group_that_never_had_a_watcher_does_not_sleep(call: Call, api: Api) -> None:
    watchers(api, {"group": 0, "state": "NEW"})

    result = call("status")

    assert result.exit_code == 0
    said = "Watcher 0 was never started: the first one starts within a minute"
    assert said in " ".join(result.stdout.split())


def test_a_takeover_is_shown_and_no_problem(call: Call, api: Api) -> None:
    watchers(api, {"group": 0, "state": "ASLEEP", "takeover": TAKEOVER})

    result = call("status")

    assert result.exit_code == 0
    assert (
        "Watcher 0 sleeps: nothing is due soon; one was lost at 2026-05-24T09:59:50Z, and another"
        " took over after 3.50 s"
    ) in " ".join(result.stdout.split())


def test_a_state_of_a_newer_api_is_shown(call: Call, api: Api) -> None:
    watchers(api, {"group": 0, "state": "NEWER"})

    result = call("status", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["watchers"] == [{"group": 0, "state": "NEWER"}]
    assert "Watcher 0" in call("status").stdout


class EmbeddedStack:
    kind = "embedded"
    key_file = Path("embedded/key")
    account_id = "local"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"endpoint": answers.ENDPOINT}

    def parts(self) -> dict[str, Any]:
        return {"watcher": {"pid": 1, "deaths": 0, "lastDeath": None}}

    def free_space(self) -> int:
        return 2**40


def test_an_embedded_stack_whose_watcher_hangs_is_not_on_time_although_nothing_is_due(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = Activity(timedelta(), late=0, held=0, queued=0, wait=timedelta(), running=0, failed=0)
    monkeypatch.setattr(session.Session, "stack", lambda _: EmbeddedStack())
    monkeypatch.setattr(state, "_activity", lambda *_: idle)
    watchers(api, {"group": 0, "state": "LOST", "renewedAt": "2026-05-24T09:59:55Z"})

    result = call("status", "--json", NEXTFIRE_API_KEY=KEY)

    assert result.exit_code == 1, result.output
    assert not json.loads(result.stdout)["onTime"]
    assert "has not renewed its lease since 2026-05-24T09:59:55Z" in result.stderr
    assert "so it died, hangs or cannot write to the database" in result.stderr
    assert "if it hangs, about a minute later" in result.stderr


def test_an_embedded_stack_whose_api_hangs_is_not_on_time_and_shows_the_rest(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Activity(timedelta(), late=0, held=0, queued=7, wait=timedelta(), running=0, failed=0)
    waited: list[float] = []

    def hang(request: httpx2.Request) -> httpx2.Response:
        waited.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("timed out")

    monkeypatch.setattr(session.Session, "stack", lambda _: EmbeddedStack())
    monkeypatch.setattr(state, "_activity", lambda *_: late)
    api.routes["GET /v1/health"] = hang

    result = call("status", "--json", NEXTFIRE_API_KEY=KEY)

    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert {*waited} == {5}
    assert (found["status"], found["onTime"], found["activity"]["queued"]) == (
        "no answer",
        False,
        7,
    )
    assert (
        "did not answer within 5 s: the API is busy, waits for the disk, or hangs" in result.stderr
    )
    assert "killed and started again about a minute later" in result.stderr
    assert "Queued 7" in " ".join(call("status", NEXTFIRE_API_KEY=KEY).stdout.split())


def test_a_deployed_api_that_does_not_answer_is_an_error(call: Call, api: Api) -> None:
    def hang(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("timed out")

    api.routes["GET /v1/health"] = hang

    result = call("status", NEXTFIRE_API_KEY=KEY)

    assert result.exit_code == 6
    assert not result.stdout


def test_without_an_overview_recent_dead_runs_are_counted(call: Call, api: Api) -> None:
    api.routes["GET /v1/overview"] = answers.problem(404, "Not Found")

    result = call("status", "--json")

    assert json.loads(result.stdout)["activity"] == {"failed": 1, "more": False}
    [asked] = [each for each in api.queries if "state" in each]
    recent = datetime.now(UTC) - RECENT  # noqa: TID251 — as the command
    assert asked["state"] == "DEAD"
    assert abs(datetime.fromisoformat(asked["from"]) - recent) < timedelta(minutes=1)


def test_an_overview_without_older_runs_says_so(call: Call, api: Api) -> None:
    overview = {"asOf": "2026-05-24T09:59:58Z", "lagSec": 1.0, "beginsAt": "2026-05-24T09:00:00Z"}
    api.routes["GET /v1/overview"] = answers.NUMBERS | {"overview": overview}

    result = call("status")

    assert result.exit_code == 0
    assert "lacks those that have not changed since 2026-05-24T09:00:00Z" in result.stderr


def test_an_embedded_stack_whose_api_hangs_after_its_health_shows_the_rest(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Activity(timedelta(), late=0, held=0, queued=7, wait=timedelta(), running=0, failed=0)
    waited: list[float] = []

    def hang(request: httpx2.Request) -> httpx2.Response:
        waited.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("timed out")

    monkeypatch.setattr(session.Session, "stack", lambda _: EmbeddedStack())
    monkeypatch.setattr(state, "_activity", lambda *_: late)
    api.routes["GET /v1/overview"] = hang

    result = call("status", "--json", NEXTFIRE_API_KEY=KEY)

    assert result.exit_code == 1
    assert {*waited} == {5}
    assert json.loads(result.stdout)["activity"]["queued"] == 7
    assert "did not answer within 5 s: the API is busy" in result.stderr


@pytest.mark.parametrize(("waits", "measured"), [(5, 0), (40, 1)])
def test_the_disk_is_measured_if_runs_wait(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch, waits: int, measured: int
) -> None:
    wait = timedelta(seconds=waits)
    waiting = Activity(timedelta(), late=0, held=0, queued=7, wait=wait, running=0, failed=0)
    folders: list[Path] = []

    def measure(folder: Path) -> timedelta:
        folders.append(folder)
        return timedelta(seconds=0.4)

    monkeypatch.setattr(session.Session, "stack", lambda _: EmbeddedStack())
    monkeypatch.setattr(state, "_activity", lambda *_: waiting)
    monkeypatch.setattr(state, "write_time", measure)
    watchers(api)

    result = call("status", NEXTFIRE_API_KEY=KEY)

    assert folders == [Path("embedded")] * measured
    assert ("a write to the disk takes 0.4 s" in result.stderr) is bool(measured)


def test_the_doctor_finds_a_lost_watcher(call: Call, api: Api) -> None:
    lost = {"group": 1, "state": "LOST", "renewedAt": "2026-05-24T09:59:55Z"}
    watchers(api, {"group": 0, "state": "WATCHING", "renewedAt": "2026-05-24T10:00:00Z"}, lost)

    result = call("doctor", "--json")

    assert result.exit_code == 1
    [found] = [
        each for each in json.loads(result.stdout)["checks"] if each["check"].startswith("watcher")
    ]
    assert (found["check"], found["verdict"]) == ("watcher of group 1", "problem")
    assert "has not renewed its lease since 2026-05-24T09:59:55Z" in found["found"]
    assert "Another one takes over" in found["remedy"]
