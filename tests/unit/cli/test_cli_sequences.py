"""The commands for sequences: redrive and cancel, after their plan was shown."""

import json

import pytest

from tests.unit.cli.answers import ID, OTHER
from tests.unit.cli.conftest import Api, Call


def step(job_id: str, state: str, action: str, reason: str) -> dict[str, str]:
    execution = f"{job_id}.20260524T100000000Z-abcdefgh"
    return {
        "jobId": job_id,
        "executionId": execution,
        "state": state,
        "action": action,
        "reason": reason,
    }


PLAN = {
    "scheduledAt": "2026-05-24T10:00:00Z",
    "dryRun": True,
    "items": [
        step("extract", "SUCCEEDED", "KEEP", "not below load"),
        step("load", "DEAD", "RUN", "DEAD: exit code 1"),
        step("report", "SKIPPED", "FOLLOW", "after load, if ALL_SUCCEEDED allows it"),
    ],
}
CHAIN = f"POST /v1/executions/{ID}/chain/redrive"


def test_a_redrive_of_a_sequence_shows_its_plan_first(call: Call, api: Api) -> None:
    api.routes[CHAIN] = [PLAN, PLAN | {"dryRun": False}]

    flags = ("--from", "load", "--downstream", "--definition", "run", "--yes")
    result = call("runs", "redrive", ID, *flags)

    asked = {"from": "load", "downstream": True, "definition": "run"}
    assert api.bodies == [asked | {"dryRun": True}, asked]
    assert "report   SKIPPED    follows" in result.stdout
    assert "after load, if ALL_SUCCEEDED allows it" in result.stdout
    assert result.stdout.endswith("Started: load.\n")


def test_a_redrive_of_a_sequence_is_confirmed(call: Call, api: Api) -> None:
    api.routes[CHAIN] = [PLAN]

    refused = call("runs", "redrive", ID, "--from", "load")
    as_json = call("runs", "redrive", ID, "--from", "load", "--json")
    planned = call("runs", "redrive", ID, "--from", "load", "--dry-run", "--json")

    assert [each.exit_code for each in (refused, as_json, planned)] == [1, 1, 0]
    assert "--yes" in refused.stderr
    assert json.loads(planned.stdout) == PLAN
    assert all(body["dryRun"] for body in api.bodies)


def test_a_redrive_that_starts_nothing_asks_nothing(call: Call, api: Api) -> None:
    done = [step("load", "SUCCEEDED", "KEEP", "has succeeded")]
    api.routes[CHAIN] = [PLAN | {"items": done}]

    result = call("runs", "redrive", ID, "--from", "load", "--reason", "why")

    assert result.exit_code == 0
    assert "Nothing starts again." in result.stderr
    assert len(api.bodies) == 1


@pytest.mark.parametrize(
    "flags",
    [
        (ID, "--downstream"),
        (ID, "--definition", "run"),
        (ID, "--dry-run"),
        (ID, "--yes"),
        (ID, OTHER, "--from", "x"),
    ],
)
def test_flags_for_a_sequence_do_not_fit_runs(call: Call, api: Api, flags: tuple[str, ...]) -> None:
    result = call("runs", "redrive", *flags)

    assert result.exit_code == 2
    assert api.requests == []


def test_a_cancel_of_a_sequence_shows_its_plan_first(call: Call, api: Api) -> None:
    steps = [
        step("load", "WAITING", "CANCEL", "has no run yet"),
        step("a", "DEAD", "KEEP", "ended"),
    ]
    plan = {"scheduledAt": "2026-05-24T10:00:00Z", "dryRun": True, "items": steps}
    api.routes[f"POST /v1/executions/{ID}/chain/cancel"] = [plan]
    flags = ("runs", "cancel", ID, "--downstream")

    done = call(*flags, "--yes", "--reason", "why")
    refused, planned = call(*flags), call(*flags, "--dry-run")
    invalid = [call("runs", "cancel", ID, "--yes"), call(*flags, "--wait")]

    assert [each.exit_code for each in (done, refused, planned)] == [0, 1, 0]
    assert [each.exit_code for each in invalid] == [2, 2]
    assert api.bodies == [{"dryRun": True}, {"reason": "why"}, {"dryRun": True}, {"dryRun": True}]
    assert done.stdout.endswith("Cancelled: load.\n")
    assert "has no run yet" in planned.stdout
