"""What `nextfire quotas` and `nextfire status` say about the quotas of the tenant."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli import answers
from tests.unit.cli.answers import QUOTAS, problem
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (True, "Tenant acme, with its own entry in the setting quotas"),
        (False, "Tenant acme, without an entry in the setting quotas: it has the default ones"),
    ],
)
def test_a_tenant_whose_entry_has_another_name_is_seen(
    call: Call, api: Api, *, entry: bool, said: str
) -> None:
    """A mistyped name in the setting gives the tenant the default quotas."""
    api.routes["GET /v1/quotas"] = QUOTAS | {"ownEntry": entry}

    assert said in words(call("quotas").stdout)


def test_an_older_api_does_not_say_whose_quotas_they_are(call: Call, api: Api) -> None:
    old = {name: QUOTAS[name] for name in ("quotas", "used", "minuteEndsAt", "weight")}
    api.routes["GET /v1/quotas"] = old

    result = call("quotas")

    assert result.exit_code == 0, result.output
    assert "Tenant" not in result.stdout


def test_status_says_that_runs_wait_for_the_quota_of_the_minute(call: Call, api: Api) -> None:
    api.routes["GET /v1/quotas"] = QUOTAS | {"used": {"runsPerMinute": 600}}

    result = call("status")

    assert result.exit_code == 0, result.output
    said = (
        "Quota runsPerMinute is used up: 600 of 600; further runs wait until 2026-05-24T10:01:00Z"
    )
    assert said in words(result.stdout)
    assert json.loads(call("status", "--json").stdout)["usedUp"] == {
        "runsPerMinute": 600,
        "minuteEndsAt": "2026-05-24T10:01:00Z",
    }


@pytest.mark.parametrize("quotas", [QUOTAS, problem(404, "Not Found")])
def test_status_says_nothing_of_a_quota_that_is_not_used_up(
    call: Call, api: Api, quotas: object
) -> None:
    api.routes["GET /v1/quotas"] = quotas

    result = call("status")

    assert result.exit_code == 0, result.output
    assert "Quota" not in result.stdout
