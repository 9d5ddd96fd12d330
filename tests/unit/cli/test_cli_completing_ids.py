"""The shell's completion of ids, against an API that answers as a test says."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import typer

from nextfire_cli.completing_ids import execution_ids, job_ids
from nextfire_cli.main import app
from tests.unit.cli.answers import ENDPOINT, JOB, RUN
from tests.unit.cli.conftest import Api

ROUTES: dict[str, Any] = {
    "GET /v1/jobs": {
        "items": [JOB, JOB | {"jobId": "nightly"}, {"jobId": "nights", "state": "UNREADABLE"}]
    },
    "GET /v1/executions": {"items": [RUN, RUN | {"executionId": "nightly.2-x"}]},
}


def context(
    api: Api,
    environment: dict[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
    *words: str,
) -> Any:
    """What the shell's completion knows when *words* are typed after `nextfire`."""
    for name, value in environment.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    command: Any = typer.main.get_command(app)
    given = {"obj": httpx2.MockTransport(api), "resilient_parsing": True}
    return command.make_context("nextfire", list(words), **given)


def test_ids_of_jobs_and_runs_are_completed(
    api: Api, command_environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = context(api, command_environment, monkeypatch, "jobs", "get")

    assert job_ids(typed, "nigh") == ["nightly", "nights"]
    assert execution_ids(typed, "") == [RUN["executionId"], "nightly.2-x"]
    assert {str(each.url.copy_with(query=None)) for each in api.requests} == {
        f"{ENDPOINT}/v1/jobs",
        f"{ENDPOINT}/v1/executions",
    }


def test_an_endpoint_that_was_typed_is_the_one_that_is_asked(
    api: Api, command_environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ENDPOINT.replace("abc123", "other")
    typed = context(api, command_environment, monkeypatch, "jobs", "get", "--endpoint", other)

    job_ids(typed, "")

    assert [each.url.host for each in api.requests] == [httpx2.URL(other).host]


@pytest.mark.parametrize(
    "changes",
    [
        {"NEXTFIRE_ENDPOINT": "not a url"},
        {"NEXTFIRE_ENDPOINT": None},
        {"NEXTFIRE_ENDPOINT": None, "NEXTFIRE_CONTEXT": "unknown"},
    ],
)
def test_whatever_is_wrong_the_user_keeps_typing(
    api: Api,
    command_environment: dict[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    changes: dict[str, str | None],
) -> None:
    typed = context(api, command_environment | changes, monkeypatch, "jobs", "get")

    assert job_ids(typed, "") == []

    assert capfd.readouterr() == ("", "")
    assert api.requests == []


def test_an_api_that_refuses_completes_nothing(
    api: Api, command_environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.routes["GET /v1/jobs"] = httpx2.Response(403, json={"detail": "no"})
    typed = context(api, command_environment, monkeypatch, "jobs", "get")

    assert job_ids(typed, "") == []
