"""The `nextfire` command against an API that answers as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire.client import executions
from nextfire_cli import waiting
from nextfire_cli.lazy import Later
from nextfire_cli.main import app
from tests.unit.cli.answers import ENDPOINT, JOB, RUN


class Api:
    """Answers by method and path, in order if a route has a list; records the requests."""

    def __init__(self, routes: dict[str, Any]) -> None:
        self.routes = routes
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self._answer(f"{request.method} {request.url.path}")
        if callable(answer):
            answer = answer(request)
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)

    def _answer(self, route: str) -> Any:
        if route.endswith("/versions") and route not in self.routes:
            return {"items": [{"version": "v1"}]}  # every script is there
        answers = self.routes[route]
        if isinstance(answers, list):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        return answers

    @property
    def body(self) -> Any:
        """The body of the last request that has one."""
        return json.loads([each.content for each in self.requests if each.content][-1])

    @property
    def authorization(self) -> str:
        """The caller's identity in the last request."""
        return self.requests[-1].headers["Authorization"]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(each.content) for each in self.requests if each.method == "POST"]

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(each.url.params) for each in self.requests]


Call = Callable[..., Result]
"""Runs the command; `input` is its standard input, other keywords change its environment."""


@pytest.fixture(scope="session", autouse=True)
def _built_once() -> Iterator[None]:
    """Build each command once, not for each call of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Later, "load", cache(Later.load))
        yield


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Api:
    """An API that has the answers in `ROUTES` of the test's file."""
    return Api(dict(getattr(request.module, "ROUTES", {})))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The folder of the user's settings."""
    return tmp_path / "config"


@pytest.fixture
def command_environment(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str | None]:
    """The variables of the command, which runs in a folder without a local stack."""
    monkeypatch.chdir(tmp_path)
    return {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PROFILE": None,
        "AWS_REGION": None,
        "AWS_DEFAULT_REGION": None,
        "NEXTFIRE_ENDPOINT": ENDPOINT,
        "NEXTFIRE_API_KEY": None,
        "NEXTFIRE_TOKEN": None,
        "NEXTFIRE_AUTH": None,
        "XDG_CONFIG_HOME": str(config),
    }


@pytest.fixture
def call(
    api: Api, command_environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.setattr(waiting, "POLL", 0)
    monkeypatch.setattr(executions, "CANCEL_CHECK_EVERY", 0)

    def run(*args: str, **changes: str | None) -> Result:
        answer = changes.pop("input", None)
        return CliRunner().invoke(
            app,
            list(args),
            input=answer,
            env=command_environment | changes,
            obj=httpx2.MockTransport(api),
        )

    return run


@pytest.fixture
def states(api: Api) -> list[tuple[str, list[dict[str, Any]]]]:
    """The job's state and its runs on each successive poll."""
    polls = [
        ("ACTIVE", []),
        ("ACTIVE", [RUN | {"state": "PENDING"}]),
        ("ACTIVE", [RUN | {"state": "PENDING"}]),
        ("COMPLETED", [RUN | {"state": "RUNNING"}]),
        ("COMPLETED", [RUN]),
    ]

    class Routes(dict[str, Any]):
        def __getitem__(self, route: str) -> Any:
            if route.endswith("/executions"):
                return {"items": polls.pop(0)[1]}
            return JOB | {"state": polls[0][0]}

    api.routes = Routes()
    return polls
