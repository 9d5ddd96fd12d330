"""Results for people and for programs, and waiting for a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
import yaml
from typer.testing import CliRunner

from nextfire.domain.key_text import secret_of, write_key
from nextfire_cli.main import app
from nextfire_cli.output import names
from tests.unit.cli.answers import DEAD, ENDPOINT, ID, JOB, OTHER
from tests.unit.cli.conftest import Api, Call

LISTED = {"items": [DEAD, DEAD | {"executionId": OTHER}]}


@pytest.fixture(autouse=True)
def runs(api: Api) -> None:
    api.routes["GET /v1/jobs/job_1/executions"] = [LISTED]


@pytest.mark.parametrize("flags", [("--json",), ("-o", "json"), ("--output=json",)])
def test_results_are_one_json_document(call: Call, flags: tuple[str, ...]) -> None:
    result = call("runs", "list", "job_1", *flags)

    assert [each["executionId"] for each in json.loads(result.stdout)["items"]] == [ID, OTHER]


def test_results_are_one_yaml_document(call: Call) -> None:
    result = call("-o", "yaml", "runs", "list", "job_1")

    assert [each["executionId"] for each in yaml.safe_load(result.stdout)["items"]] == [ID, OTHER]


def test_results_are_ids(call: Call) -> None:
    assert call("runs", "list", "job_1", "-o", "name").stdout == f"{ID}\n{OTHER}\n"


def test_an_unknown_form_is_answered_with_the_known_ones(call: Call) -> None:
    result = call("runs", "list", "job_1", "-o", "xml")

    assert result.exit_code == 2
    assert "'table', 'wide', 'json', 'yaml'" in " ".join(result.stderr.replace("│", "").split())


def test_lines_of_a_table_do_not_end_in_spaces(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs/job_1"] = JOB

    for result in (call("jobs", "get", "job_1"), call("runs", "list", "job_1")):
        assert result.exit_code == 0, result.stderr
        assert not [line for line in result.stdout.split("\n") if line != line.rstrip()]


@pytest.mark.parametrize(("form", "shown"), [("table", "20 \\u20ac"), ("json", "20 \\u20ac")])
def test_a_terminal_without_a_character_gets_an_escape(
    api: Api, form: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.routes["GET /v1/jobs/job_1"] = JOB | {"name": "ü 20 €"}
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", ENDPOINT)
    monkeypatch.setenv("NEXTFIRE_API_KEY", write_key("acme", "a" * 16, secret_of(bytes(32))))
    runner = CliRunner(charset="latin-1")

    result = runner.invoke(app, ["jobs", "get", "job_1", "-o", form], obj=httpx2.MockTransport(api))

    assert result.exit_code == 0, result.stderr
    assert shown in result.stdout
    assert form == "table" or json.loads(result.stdout)["name"] == "ü 20 €"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux")
@pytest.mark.parametrize(
    "args", [("doctor",), ("doctor", "-o", "json"), ("--help",), ("jobs", "--help"), ("--version",)]
)
def test_a_full_disk_is_an_error_without_a_traceback(tmp_path: Path, args: list[str]) -> None:
    command = [sys.executable, "-m", "nextfire_cli.main", *args]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False
        )

    assert "Cannot write to standard output: No space left on device." in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"results": [{"status": 201, "job": {"jobId": "a"}}, {"status": 422}]}, ["a"]),
        ({"jobId": "a", "state": "ACTIVE"}, ["a"]),
        ({"executionId": "a.1-x", "jobId": "a"}, ["a.1-x"]),
        ({"items": [{"pool": "calls", "destination": "a.example:443"}]}, ["a.example:443"]),
        ({"items": [{"versionId": "2", "size": 1}]}, ["2"]),
        ({"items": []}, []),
        ({"status": "ok"}, []),
        ([1], []),
    ],
)
def test_the_id_of_each_thing_in_a_result(document: object, expected: list[str]) -> None:
    assert [*names(document)] == expected


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("DEAD", 1), ("CANCELLED", 1)])
def test_run_waits_for_the_outcome_if_asked_to(
    call: Call,
    api: Api,
    state: str,
    code: int,
) -> None:
    made = DEAD | {"executionId": OTHER, "state": "PENDING"}
    api.routes["POST /v1/jobs/job_1/run"] = [made]
    api.routes[f"GET /v1/executions/{OTHER}"] = [
        made,
        made | {"state": "RUNNING"},
        made | {"state": state},
    ]

    result = call("jobs", "run", "job_1", "--wait", "--json")

    assert result.exit_code == code
    assert json.loads(result.stdout)["state"] == state
