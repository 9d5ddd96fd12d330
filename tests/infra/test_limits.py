"""Limits of AWS that a synthesis checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra import app
from infra.limits import ENVIRONMENT_BYTES, MAX_GROUPS
from tests.infra.conftest import synthesize

_QUOTAS = {"tenants": {f"tenant-{n}": {"jobs": 100, "runsPerMinute": 60} for n in range(35)}}


def workers(count: int) -> dict[str, Any]:
    return {f"a-pool-with-a-long-name-{n}": {"executor": "worker"} for n in range(count)}


def test_an_environment_that_is_too_large_is_rejected_with_what_to_change(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the function watcher would have about") as raised:
        synthesize(tmp_path, {"pools": workers(12), "quotas": _QUOTAS})

    assert f"allows {ENVIRONMENT_BYTES}. Use fewer pools" in str(raised.value)


def test_a_pool_of_calls_with_too_many_actions_is_rejected_with_what_to_change(
    tmp_path: Path,
) -> None:
    actions = [f"stepfunctions:AnActionWithAVeryLongName{n}" for n in range(100)]
    pools = {"calls": {"executor": "lambda", "targets": "calls", "awsActions": actions}}

    with pytest.raises(Exception, match=r"would have about .* shorter .*awsActions"):
        synthesize(tmp_path, {"pools": pools})


def test_the_policy_of_the_watcher_holds_the_largest_number_of_groups(tmp_path: Path) -> None:
    context = {"groups": MAX_GROUPS, "readShards": MAX_GROUPS, "accountConcurrency": 1000}
    template = synthesize(tmp_path, context | {"writeShards": MAX_GROUPS})[2]

    statements = [
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Permission"
        and "Watcher" in json.dumps(resource["Properties"]["FunctionName"])
    ]
    # Lambda adds an id and the ARNs of function and rule, of up to 140 characters each.
    size = sum(len(json.dumps(each)) + 2 * 140 for each in statements)
    assert len(statements) == MAX_GROUPS + 1  # and the rule that wakes a watcher
    assert size < 20_480


def test_a_limit_is_a_message_of_a_synthesis_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(*_: object, **__: object) -> None:
        synthesize(tmp_path, {"pools": workers(12), "quotas": _QUOTAS})

    monkeypatch.setattr(app, "build_app", build)

    with pytest.raises(SystemExit, match="the function watcher would have about"):
        app.main()
