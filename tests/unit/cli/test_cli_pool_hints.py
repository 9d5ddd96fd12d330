"""Lists of a pool that does not exist are empty, and say so."""

from __future__ import annotations

import httpx2
import pytest

from tests.unit.cli import answers
from tests.unit.cli.answers import problem
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES
LISTS = [("runs", "list"), ("runs", "list", "job_1"), ("scripts", "list")]
UNKNOWN = {
    "title": "Unprocessable Entity",
    "status": 422,
    "detail": "pool: pool not found (got 'typo'). Available: calls, default.",
}


@pytest.fixture(autouse=True)
def _empty(api: Api) -> None:
    for route in ("executions", "scripts"):
        api.routes[f"GET /v1/{route}"] = {"items": []}


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_an_empty_list_of_an_unknown_pool_says_which_pools_there_are(
    call: Call, api: Api, command: tuple[str, ...]
) -> None:
    api.routes["GET /v1/endpoints"] = httpx2.Response(422, json=UNKNOWN)

    result = call(*command, "--pool", "typo")

    assert result.exit_code == 0
    assert "--pool: pool not found (got 'typo'). Available: calls, default." in result.stderr


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
@pytest.mark.parametrize("endpoints", [{"items": []}, problem(403, "Forbidden")])
def test_nothing_is_said_of_a_pool_that_exists_or_is_not_known(
    call: Call, api: Api, command: tuple[str, ...], endpoints: object
) -> None:
    """A key restricted by labels may not list endpoints."""
    api.routes["GET /v1/endpoints"] = endpoints

    result = call(*command, "--pool", "batch")

    assert result.exit_code == 0
    assert "pool" not in result.stderr


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_without_a_pool_nothing_is_asked(call: Call, api: Api, command: tuple[str, ...]) -> None:
    call(*command, *(["--since", "1d"] if command[0] == "runs" else []))

    assert not [each for each in api.requests if each.url.path == "/v1/endpoints"]
