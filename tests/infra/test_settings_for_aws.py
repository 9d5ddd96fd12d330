"""Settings that AWS or the CDK would reject are errors that name the setting and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from pydantic import ValidationError

from infra.app import main
from infra.setting_errors import explain
from infra.settings import Settings
from tests.infra.conftest import context_of_project

_TOPIC = "arn:aws:sns:eu-central-1:123456789012"
_TABLE = "arn:aws:dynamodb:eu-central-1:123456789012:table/old-jobs"
_STREAM = f"{_TABLE}/stream/2026-01-01T00:00:00.000"
_YEARS = {"mode": "GOVERNANCE", "period": "P36501D"}
_SUBNETS = {"vpcId": "vpc-0a1b2c3d", "subnetIds": [f"subnet-{n:08x}" for n in range(17)]}


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"alarmTopicArn": "alarms"}, "alarmTopicArn: String should match pattern '^arn:aws"),
        ({"alarmTopicArn": ""}, "alarmTopicArn: String should match pattern '^arn:aws"),
        ({"alarmTopicArn": _TOPIC.replace("sns", "sqs") + ":q"}, "alarmTopicArn: String should"),
        ({"adopt": {"jobs": _TABLE}}, "adopt.jobs: String should match pattern"),
        ({"adopt": {"jobs": ""}}, "adopt.jobs: String should match pattern"),
        ({"adopt": {"scripts": "s3://old-scripts"}}, "adopt.scripts: String should match pattern"),
        ({"adopt": {"audit": "arn:aws:s3:::old"}}, "adopt.audit: String should match pattern"),
        ({"adopt": {"jobs": "old", "runs": "old"}}, "adopt: jobs and runs name the same table"),
        ({"adopt": {"streams": {"jobs": _STREAM}}}, "adopt: streams.jobs requires jobs: set both"),
        (
            {"adopt": {"jobs": "older", "streams": {"jobs": _STREAM}}},
            "adopt: streams.jobs is not a stream of the table older",
        ),
        ({"auditLock": _YEARS}, "auditLock.period: Input should be less than or equal to P36500D"),
        ({"lease": "PT12H1S"}, "lease: Input should be less than or equal to PT12H"),
        ({"lease": "PT4S"}, "lease: Input should be greater than or equal to PT5S"),
        ({"jobRetention": "P20Y"}, "jobRetention: Input should be less than or equal to P3650D"),
        ({"lease": []}, "lease: not an ISO 8601 duration. For example"),
        ({"auditEvery": "P8D"}, "auditEvery: must be at most P7D: audits look back 14 days"),
        ({"kms": "arn:aws:kms:x"}, 'kms: must be "create" or an existing key, for example {"key'),
        ({"kms": True}, 'kms: must be "create" or an existing key, for example {"keyArn": "arn:aw'),
        (
            {"pools": {"p": {"executor": "lambda", "concurrency": 8}}},
            "pools.p: concurrency applies to worker pools only: set maxConcurrency",
        ),
        (
            {"pools": {"p": {"executor": "worker", "maxConcurrency": 8}}},
            "pools.p: maxConcurrency applies to lambda pools only: set concurrency, and with",
        ),
        (
            {"pools": {"p": {"executor": "worker", "memory": 4096, "fargate": {}}}},
            "pools.p: memory applies to lambda pools only: set fargate.memory",
        ),
        (
            {"pools": {"p": {"executor": "worker", "batchSize": 5}}},
            "pools.p: batchSize applies to lambda pools only: remove it",
        ),
        (
            {"pools": {"p": {"executor": "worker", "fargate": _SUBNETS}}},
            "pools.p.fargate.subnetIds: Tuple should have at most 16 items",
        ),
        (
            {"pools": {"p": {"executor": "worker", "egress": 443}}},
            'pools.p.egress: egress must be "open", "none" or a list of hosts',
        ),
        (
            {"pools": {"p": {"executor": "worker", "egress": {"mode": "none", "hosts": []}}}},
            'pools.p.egress: egress must be "open", "none" or a list of hosts',
        ),
    ],
)
def test_what_aws_would_reject_is_explained(context: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Settings.from_context(context)

    [_, line] = explain(raised.value).splitlines()
    assert line.strip().startswith(said)


@pytest.mark.parametrize(
    "context",
    [
        {"alarmTopicArn": f"{_TOPIC}:alarms"},
        {"adopt": {"jobs": "old-jobs", "scripts": "old.scripts-1", "streams": {"jobs": _STREAM}}},
        {"lease": "PT12H", "auditEvery": "P7D", "auditLock": {**_YEARS, "period": "P36500D"}},
    ],
)
def test_what_aws_accepts_is_accepted(context: dict[str, Any]) -> None:
    assert Settings.from_context(context) != Settings()


def test_keys_that_the_cdk_command_line_stores_are_passed_over() -> None:
    """`cdk acknowledge` and `cdk cli-telemetry` write them into cdk.context.json."""
    context = {"acknowledged-issue-numbers": [34892], "cli-telemetry": False}

    assert Settings.from_context(context) == Settings()


def test_a_limit_that_only_the_template_shows_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pools = {f"pool-{n}": {"executor": "worker"} for n in range(30)}
    context = {**context_of_project(), "aws:cdk:disable-asset-staging": True, "pools": pools}
    monkeypatch.setattr("infra.app.App", lambda: App(outdir=str(tmp_path), context=context))

    with pytest.raises(SystemExit) as ended:
        main()

    assert str(ended.value.code).startswith("Invalid settings in cdk.json (or in -c options):\n")
    assert "the environment of the function watcher would have about" in str(ended.value.code)
