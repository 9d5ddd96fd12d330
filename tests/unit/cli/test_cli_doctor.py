"""`nextfire doctor` names what is wrong and what to do."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire.adapters.files.stack_folder import DATA, DATABASE
from nextfire.client.folder import FOLDER
from nextfire.domain.activity import short_of_space
from nextfire_cli import doctor, session
from nextfire_cli.local.embedded import EmbeddedInfo
from nextfire_cli.local.open_files import few_open_files
from tests.unit.cli import answers
from tests.unit.cli.answers import problem
from tests.unit.cli.conftest import Api, Call
from tests.unit.cli.keys import KEY


@pytest.fixture(autouse=True)
def healthy(api: Api) -> None:
    api.routes["GET /v1/health"] = [lambda _: _health(timedelta())]
    api.routes["GET /v1/quotas"] = [{"quotas": {}, "used": {"jobs": 1}}]
    api.routes["GET /v1/overview"] = [problem(404, "Not Found")]


def _health(ahead: timedelta) -> httpx2.Response:
    now = datetime.now(UTC)  # noqa: TID251 — as the API
    return httpx2.Response(200, json={"status": "ok", "time": (now + ahead).isoformat()})


def verdicts(result: Any) -> dict[str, str]:
    checks = json.loads(result.stdout)["checks"]
    return {each["check"]: each["verdict"] for each in checks if each["check"] != "installation"}


def test_all_is_well(call: Call) -> None:
    result = call("doctor", "--json")

    assert result.exit_code == 0, result.output
    assert verdicts(result) == dict.fromkeys(["endpoint", "API", "clock", "credentials"], "ok")


def test_an_overview_without_older_runs_is_a_note(call: Call, api: Api) -> None:
    overview = {"asOf": "2026-05-24T09:59:58Z", "lagSec": 1.0, "beginsAt": "2026-05-24T09:00:00Z"}
    numbers = {"running": 0, "pending": 0, "from": "2026-05-24T09:59:00Z", "minutes": []}
    api.routes["GET /v1/overview"] = [numbers | {"overview": overview}]

    result = call("doctor", "--json")

    assert result.exit_code == 0, result.output
    assert verdicts(result)["overview"] == "note"
    assert "Add the older ones: nextfire runs reindex" in result.stdout


def test_a_clock_that_is_off(call: Call, api: Api) -> None:
    api.routes["GET /v1/health"] = [lambda _: _health(timedelta(minutes=6))]

    result = call("doctor")

    assert result.exit_code == 1
    assert "differs from the API's by 360 s" in result.stdout
    assert "Synchronize this machine's clock" in result.stdout


def test_credentials_that_are_refused(call: Call, api: Api) -> None:
    api.routes["GET /v1/quotas"] = [problem(403, "Forbidden")]

    result = call("doctor", "--json")

    assert result.exit_code == 1
    assert verdicts(result)["credentials"] == "problem"


def test_an_api_that_does_not_answer(call: Call, api: Api) -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    api.routes["GET /v1/health"] = [refuse]

    result = call("doctor", "--json")

    assert result.exit_code == 1
    assert verdicts(result) == {"endpoint": "ok", "API": "problem"}
    assert "it is killed" not in result.stdout, "only on the embedded stack"


@pytest.mark.parametrize(
    "document",
    [{"status": "UP"}, {"status": "", "time": "now"}, {"status": "", "time": "2026-05-24T10:00"}],
)
def test_another_api_is_a_problem(call: Call, api: Api, document: dict[str, str]) -> None:
    api.routes["GET /v1/health"] = [document]

    result = call("doctor", "--json")

    assert result.exit_code == 1
    assert verdicts(result) == {"endpoint": "ok", "API": "problem"}


@pytest.mark.parametrize(
    ("path", "answered"),
    [("/v1/quotas", {"endpoint", "clock"}), ("/v1/overview", {"endpoint", "clock", "credentials"})],
)
def test_an_api_that_stops_answering_hides_no_other_check(
    call: Call, api: Api, path: str, answered: set[str]
) -> None:
    def hang(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("timed out")

    api.routes[f"GET {path}"] = hang

    result = call("doctor", "--json")

    assert result.exit_code == 1
    assert verdicts(result) == {**dict.fromkeys(answered, "ok"), "API": "problem"}


def test_what_is_not_installed_is_a_note(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "boto3" else name)

    result = call("doctor")

    assert result.exit_code == 0
    assert "pip install 'nextfire[aws]'" in result.stdout


def test_a_part_that_is_down() -> None:
    parts: dict[str, dict[str, object]] = {
        "api": {"pid": 1, "deaths": 0, "lastDeath": None},
        "watcher": {"pid": None, "deaths": 2, "lastDeath": "killed by SIGKILL"},
    }

    [finding] = doctor._parts(parts)  # noqa: SLF001

    assert (finding.check, finding.verdict) == ("watcher", "problem")
    assert "killed by SIGKILL" in finding.found


def test_a_stack_that_is_stopped(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    below = tmp_path / "below"
    below.mkdir()
    data = tmp_path / FOLDER / DATA
    data.mkdir(parents=True)
    (data / DATABASE).touch()
    monkeypatch.chdir(below)

    result = call("doctor", "--json")

    found = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert found["local stack"]["verdict"] == "note"
    assert f"the data in {data}" in found["local stack"]["found"]
    assert f"cd {tmp_path}" in found["local stack"]["remedy"]


class EmbeddedStack:
    kind = "embedded"
    key_file = None

    def parts(self) -> dict[str, dict[str, object]]:
        return {"watcher": {"pid": 1, "deaths": 0, "lastDeath": None}}

    def free_space(self) -> int:
        return 2**40

    def few_open_files(self) -> list[str]:
        return []


@pytest.mark.parametrize("state", ["LOST", "STOPPED"])
@pytest.mark.parametrize(
    ("stack", "then"),
    [(EmbeddedStack(), "stop `nextfire up` and start it again"), (None, "watcher")],
)
def test_the_watcher_of_the_embedded_stack_has_no_standby(
    call: Call,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    stack: EmbeddedStack | None,
    then: str,
    state: str,
) -> None:
    lost = {"group": 0, "state": state, "renewedAt": "2026-05-24T09:59:55Z"}
    api.routes["GET /v1/overview"] = answers.NUMBERS | {"watchers": [lost]}
    monkeypatch.setattr(session.Session, "stack", lambda _: stack)

    result = call("doctor", "--json", NEXTFIRE_API_KEY=KEY)

    found = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    remedy = found["watcher of group 0"]["remedy"]
    assert result.exit_code == 1
    assert then in remedy
    assert ("another one takes over" in remedy.lower()) is (stack is None and state == "LOST")


def test_an_api_of_the_embedded_stack_that_hangs(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("timed out")

    api.routes["GET /v1/health"] = hang
    monkeypatch.setattr(session.Session, "stack", lambda _: EmbeddedStack())

    result = call("doctor", "--json", NEXTFIRE_API_KEY=KEY)

    found = {each["check"]: each for each in json.loads(result.stdout)["checks"]}["API"]
    assert "did not answer within 5 s" in found["found"]
    assert found["remedy"].startswith("The API is busy, waits for the disk, or hangs")
    assert "If it hangs, it is killed and started again" in found["remedy"]


def test_an_api_of_the_embedded_stack_that_fails(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.routes["GET /v1/health"] = problem(500, "Internal Server Error")
    monkeypatch.setattr(session.Session, "stack", lambda _: EmbeddedStack())

    result = call("doctor", "--json", NEXTFIRE_API_KEY=KEY)

    found = {each["check"]: each for each in json.loads(result.stdout)["checks"]}["API"]
    assert found["verdict"] == "problem"
    assert "hangs" not in found["remedy"]


def test_a_full_disk() -> None:
    [finding] = doctor._short("disk", short_of_space(0))  # noqa: SLF001

    assert (finding.check, finding.verdict) == ("disk", "problem")
    assert "has 0 MB left" in finding.found
    assert finding.remedy.startswith("Free some space")
    assert [*short_of_space(2**30)] == []


@pytest.mark.parametrize(("limit", "warns"), [(1_024, True), (1_300, False)])
def test_too_few_open_files(limit: int, *, warns: bool) -> None:
    """The command has other limits than a stack that a service manager started."""
    with subprocess.Popen(["sh", "-c", f"ulimit -n {limit}; echo; exec sleep 20"], stdout=-1) as of:
        assert of.stdout is not None
        of.stdout.readline()
        found = [*doctor._short("open files", few_open_files(of.pid))]  # noqa: SLF001
        of.kill()

    assert len(found) == warns
    for finding in found:
        assert "may open 1,024 files" in finding.found
        assert "LimitNOFILE=65536" in finding.remedy


def test_the_space_of_a_stack_whose_data_were_moved_is_that_of_its_disk(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del api
    data = tmp_path / ".nextfire" / "embedded"
    stack = EmbeddedInfo(
        endpoint="http://127.0.0.1:1",
        account_id="local",
        key_file=data / "api-key",
        parts_file=data / "parts.json",
        pools={},
        processes=[],
    )
    monkeypatch.setattr(session.Session, "stack", lambda _: stack)

    result = call("doctor", "--json")

    assert result.exit_code == 1
    found = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert "api-key cannot be read" in found["credentials"]["found"]
