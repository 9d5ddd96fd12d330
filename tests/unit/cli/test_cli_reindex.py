"""`nextfire runs reindex`: invokes the projector until its rebuild is complete."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — as Lambda refuses
from typer.testing import CliRunner, Result

from nextfire_cli import aws
from nextfire_cli.main import app
from tests.unit.cli import answers
from tests.unit.cli.answers import NUMBERS
from tests.unit.cli.conftest import Api

ROUTES = answers.ROUTES

MORE = {"rebuild": {"after": "acme/a#1", "tenants": ["acme"]}}


class Lambda:
    """Answers with *answers*, one after the other."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.answers = answers
        self.events: list[dict[str, Any]] = []

    def invoke(self, **request: Any) -> dict[str, Any]:
        assert request["FunctionName"] == "projector-1"
        self.events.append(json.loads(request["Payload"]))
        answer = self.answers.pop(0)
        if "refused" in answer:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "Invoke")
        payload = io.BytesIO(json.dumps(answer).encode())
        return {"Payload": payload} | ({"FunctionError": "x"} if "errorMessage" in answer else {})


class Session:
    """The session of an account with one stack."""

    region_name = "eu-west-1"

    def __init__(self, function: Lambda, outputs: dict[str, str]) -> None:
        self._function = function
        self._outputs = [{"OutputKey": k, "OutputValue": v} for k, v in outputs.items()]

    def client(self, service: str, **_: object) -> Any:
        return self._function if service == "lambda" else self

    def describe_stacks(self, **_: object) -> dict[str, Any]:
        return {"Stacks": [{"Outputs": self._outputs}]}


def reindex(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *answers: dict[str, Any],
    outputs: dict[str, str] | None = None,
) -> tuple[Result, Lambda]:
    function = Lambda([*answers])
    deployed = {"ProjectorFunction": "projector-1"} if outputs is None else outputs
    session: Any = Session(function, deployed)
    monkeypatch.chdir(folder)  # without a local stack
    monkeypatch.setattr(aws, "callers_session", lambda *_: session)
    return CliRunner().invoke(app, ["runs", "reindex"]), function


def test_it_continues_until_all_records_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, function = reindex(
        monkeypatch,
        tmp_path,
        {"runs": 7, "undecodable": 1, "next": MORE},
        {"runs": 5, "undecodable": 0},
    )

    assert result.exit_code == 0, result.output
    assert "7 runs so far." in result.stderr
    assert "12 runs. 1 records do not decode." in result.stdout
    assert function.events == [{"rebuild": {}}, MORE]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"errorMessage": "out of memory"}, "projector-1 failed: out of memory."),
        ({"refused": True}, "need lambda:InvokeFunction"),
    ],
)
def test_a_failure_is_reported(
    answer: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, _ = reindex(monkeypatch, tmp_path, answer)

    assert result.exit_code != 0
    assert says in " ".join(result.stderr.split())


@pytest.mark.parametrize("fails", [{"errorMessage": "throttled"}, {"refused": True}])
def test_a_call_that_fails_after_others_is_repeated(
    fails: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rebuild of many records takes hours, and another command would begin again."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    first = {"runs": 7, "undecodable": 0, "next": MORE}
    result, function = reindex(
        monkeypatch, tmp_path, first, fails, fails, {"runs": 5, "undecodable": 0}
    )

    assert result.exit_code == 0, result.output
    assert "12 runs." in result.stdout
    assert function.events == [{"rebuild": {}}, MORE, MORE, MORE]
    assert slept == [5, 10]
    assert "Trying again" in result.stderr


def test_calls_that_keep_failing_end_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    first = {"runs": 7, "undecodable": 0, "next": MORE}
    result, function = reindex(monkeypatch, tmp_path, first, *[{"refused": True}] * 20)

    assert result.exit_code != 0
    assert len(function.events) == 11


def test_a_stack_without_overview(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = reindex(monkeypatch, tmp_path, outputs={})

    assert result.exit_code != 0
    assert "has no overview" in result.stderr


@pytest.mark.parametrize("command", [["status"], ["runs", "list"]])
def test_an_overview_that_lacks_runs_says_how_to_add_them(
    command: list[str],
    call: Callable[..., Result],
    api: Api,
) -> None:
    overview = {"asOf": "2026-05-24T09:59:58Z", "lagSec": 1.0, "beginsAt": "2999-01-01T00:00:00Z"}
    api.routes["GET /v1/overview"] = NUMBERS | {"overview": overview}
    api.routes["GET /v1/executions"] = {"items": [], "overview": overview}

    result = call(*command)

    assert result.exit_code == 0, result.output
    assert "2999-01-01T00:00:00Z" in result.stderr
    assert "nextfire runs reindex" in result.stderr


@pytest.mark.parametrize(
    ("span", "begins_at", "lacks_some"),
    [
        (["--to", "2026-05-20T00:00Z"], "2026-05-19T12:00:00Z", True),
        (["--to", "2026-05-20"], "2026-05-18T12:00:00Z", False),
        (["--from", "2026-05-24T01:00:00+05:00"], "2026-05-23T22:00:00Z", True),
        (["--from", "2026-05-23T22:00:00-05:00"], "2026-05-24T01:00:00Z", False),
        (["--from", "2026-05-24"], "2026-05-24T00:00:00.500Z", True),
    ],
)
def test_a_listing_says_whether_the_overview_lacks_runs_of_its_span(
    span: list[str],
    begins_at: str,
    *,
    lacks_some: bool,
    call: Callable[..., Result],
    api: Api,
) -> None:
    overview = {"asOf": "2026-05-24T09:59:58Z", "lagSec": 1.0, "beginsAt": begins_at}
    api.routes["GET /v1/executions"] = {"items": [], "overview": overview}

    result = call("runs", "list", *span)

    assert result.exit_code == 0, result.output
    assert ("nextfire runs reindex" in result.stderr) is lacks_some
