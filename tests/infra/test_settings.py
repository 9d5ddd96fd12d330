import json
import os
from datetime import timedelta

import pytest
from pydantic import ValidationError

from infra.__main__ import main
from infra.pool_settings import PoolSettings
from infra.setting_types import iso8601
from infra.settings import Settings, StackTarget
from nextfire.domain.quotas import TenantQuotas


def test_defaults_need_no_context() -> None:
    settings = Settings.from_context({})

    assert settings.target is StackTarget.AWS
    assert settings.lease == timedelta(seconds=60)
    assert settings.pools["default"].executor == "lambda"


def test_keys_of_the_cdk_are_passed_over() -> None:
    assert Settings.from_context({"aws:cdk:x": 1, "@aws-cdk/core:y": True}) == Settings()


@pytest.mark.parametrize("key", ["leese", "write_shards", "Target"])
def test_unknown_key_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        Settings.from_context({key: "4"})


def test_unknown_key_of_a_pool_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="batch_sise"):
        Settings.from_context({"pools": {"default": {"executor": "lambda", "batch_sise": 2}}})


_JWT = {"issuer": "https://x.example", "audience": ["nextfire"], "tenantClaim": "tenant"}


_ROLE = "arn:aws:iam::123456789012:role/workers"


_SEALED = {"executor": "worker", "isolation": "task", "fargate": {}}


def _served_by(principal: str) -> dict[str, object]:
    return {"pools": {"p": {"executor": "worker", "workerPrincipals": [principal]}}}


def _on_fargate(**fargate: object) -> dict[str, object]:
    return {"pools": {"p": {"executor": "worker", "fargate": fargate}}}


def _pools(*names: str) -> dict[str, object]:
    return {"pools": {name: {"executor": "lambda"} for name in names}}


def _workers(*names: str, **settings: object) -> dict[str, object]:
    return {"pools": {name: {"executor": "worker", **settings} for name in names}}


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"writeShards": 8}, "readShards must be at least writeShards"),
        ({"quotas": {"default": {"runs": 5}}}, "runs"),
        ({"quotas": {"tenant": {}}}, "tenant"),
        ({"quotas": {"tenants": {"acme": {"concurrentRuns": 0}}}}, "greater than or equal to 1"),
        ({"quotas": {"tenants": {f"t{n}": {"jobs": n + 1} for n in range(200)}}}, "2000 bytes"),
        ({"quotas": {"default": {"requestBurst": 9}}}, "default: .* without requestsPerSecond"),
        (
            {"quotas": {"tenants": {"acme": {"keyRequestBurst": 9}}}},
            "acme: keyRequestBurst has no effect without keyRequestsPerSecond: set both",
        ),
        (_pools("a1", "a-1"), "'a1' and 'a-1' would have the same ids"),
        (_pools("a", "function-a"), "'a' and 'function-a' .* .ExecutorFunctionA.: rename"),
        (_pools("role-arn-a", "a"), "'role-arn-a' and 'a' .* .ExecutorRoleArnA.: rename"),
        (_workers("a", "environment-a"), "'a' and 'environment-a' .* .WorkerEnvironmentA.: rename"),
        (_workers("a", "service-a", fargate={}), "'service-a' .* .WorkerServiceA.: rename"),
        (_workers("vpc", fargate={}), "'vpc' would have the id of the workers' VPC"),
        ({"groups": 5}, "groups must not exceed readShards"),
        ({"life": "PT15M"}, "a watcher is a Lambda function"),
        ({"auditEvery": "PT10M"}, "at least auditorWakeEvery"),
        ({"auditorWakeEvery": "PT90S"}, "whole minutes"),
        ({"auditorWakeEvery": "PT12H1M", "auditEvery": "P2D"}, "at most PT12H: the alarm"),
        ({"jobRetention": "P14D"}, "days=15"),
        ({"dueCapacity": {"writes": 30}}, "dueCapacity.reads"),
        ({"dueCapacity": {"writes": 0, "reads": 8}}, "greater than or equal to 1"),
        ({"dueCapacity": {"writes": 40_001, "reads": 8}}, "less than or equal to 40000"),
        ({"dueCapacity": {"writes": 30, "reads": 7}}, "at least 8, not 7: 2 for each of the 4"),
        (
            {
                "dueCapacity": '{"writes": 30, "reads": 8}',
                "adopt": {"due": "mine", "control": "mine-too"},
            },
            "dueCapacity and adopt.due are mutually exclusive",
        ),
        ({"runRetention": {"succeeded": "P14D"}}, "succeeded"),
        ({"runRetention": {"skipped": "P20D"}}, "skipped"),
        ({"lease": "PT0S"}, "one or more whole seconds"),
        ({"lease": "PT0.5S"}, "one or more whole seconds"),
        ({"lease": "PT4S"}, "seconds=5"),
        ({"pools": {"etl": {"executor": "lambda", "lease": "PT4S"}}}, "seconds=5"),
        ({"logRetention": "P8D"}, "use one of P1D"),
        ({"auth": "none"}, "'keys', 'iam' or 'jwt'"),
        ({"auth": "jwt"}, '"auth": "jwt" belong together'),
        ({"jwt": _JWT}, '"auth": "jwt" belong together'),
        ({"auth": "jwt", "jwt": _JWT | {"issuer": "http://x.example"}}, "should match pattern"),
        ({"auth": "jwt", "jwt": _JWT | {"audience": []}}, "at least 1 item"),
        ({"auth": "jwt", "jwt": {"issuer": "https://x.example"}}, "tenantClaim"),
        ({"auth": "jwt", "jwt": _JWT | {"scopeClaim": "s"}}, "scopeClaim"),
        ({"kms": "alias/mine"}, '"create" or an existing key'),
        ({"kms": {"keyArn": "arn:aws:kms:us-east-1:123456789012:alias/mine"}}, "match pattern"),
        ({"auditLock": {"mode": "GOVERNANCE", "period": "PT36H"}}, "object locks have days"),
        ({"auditLock": {"mode": "NONE", "period": "P1D"}}, "'GOVERNANCE' or 'COMPLIANCE'"),
        ({"adopt": {"streams": {"jobs": "arn:aws:dynamodb:x"}}}, "should match pattern"),
        ({"pools": {}}, "at least 1 item"),
        ({"pools": {"Default": {"executor": "lambda"}}}, "should match pattern"),
        ({"pools": {"p": {"executor": "lambda", "timeout": "PT16M"}}}, "at most PT15M"),
        ({"pools": {"p": {"executor": "worker", "timeout": "PT13H"}}}, "at most PT12H"),
        ({"pools": {"p": {"executor": "lambda", "timeout": "PT1M"}}}, "more than PT1M"),
        ({"pools": {"p": {"executor": "lambda", "batchSize": 11}}}, "less than or equal to 10"),
        ({"pools": {"p": {"executor": "lambda", "packages": "inline"}}}, "cannot be inline"),
        ({"pools": {"p": {"executor": "lambda", "fargate": {}}}}, "applies to worker pools only"),
        ({"pools": {"p": {"executor": "worker", "jobRole": "admin"}}}, "should match pattern"),
        ({"pools": {"p": {"executor": "worker", "concurrency": 65}}}, "less than or equal to 64"),
        ({"pools": {"p": {"executor": "lambda", "isolation": "task"}}}, "not possible on Lambda"),
        ({"pools": {"p": {"executor": "worker", "isolation": "task"}}}, "needs fargate"),
        (
            {"pools": {"p": _SEALED | {"concurrency": 4}}},
            'concurrency must be 1 with isolation "task", not 4',
        ),
        ({"pools": {"p": _SEALED | {"isolation": "vm"}}}, "'process' or 'task'"),
        (_served_by("arn:aws:iam::123456789012:root"), "should match pattern"),
        (_served_by("arn:aws:iam::123456789012:role/*"), "should match pattern"),
        (_served_by("*"), "should match pattern"),
        (
            {"pools": {"p": {"executor": "worker", "workerPrincipals": [_ROLE] * 40}}},
            "limited to 2,048 characters",
        ),
        ({"auth": "jwt", "jwt": {**_JWT, "audience": ["a"] * 51}}, "at most 50 items"),
        (
            {"pools": {"p": {"executor": "lambda", "workerPrincipals": [_ROLE]}}},
            "workerPrincipals applies to worker pools only",
        ),
        (_on_fargate(cpu=1024, memory=1024), "memory must be one of 2048, 3072"),
        (_on_fargate(minTasks=5, maxTasks=4), "minTasks must be at most maxTasks"),
        (_on_fargate(vpcId="vpc-0a1b2c3d"), "set both, or neither"),
        (_on_fargate(subnetIds=["subnet-0a1b2c3d"]), "set both, or neither"),
        (_on_fargate(assignPublicIp=False), "has no NAT"),
        (_on_fargate(image="worker"), "should match pattern"),
    ],
)
def test_impossible_settings_are_refused_with_a_reason(
    context: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        Settings.from_context(context)


@pytest.mark.parametrize(
    "context",
    [
        _workers("a", "service-a", "vpc"),
        {"pools": {"a": {"executor": "lambda"}, "function-a": {"executor": "worker"}}},
        _workers("vpc", fargate={"vpcId": "vpc-0a1b2c3d", "subnetIds": ["subnet-0a1b2c3d"]}),
    ],
)
def test_names_of_pools_that_have_no_id_in_common_are_accepted(context: dict[str, object]) -> None:
    assert Settings.from_context(context).pools.keys() == context["pools"].keys()  # type: ignore[attr-defined]


def test_command_line_gives_structured_values_as_json() -> None:
    settings = Settings.from_context({"pools": '{"etl": {"executor": "worker"}}', "lease": "PT6S"})

    assert settings.pools == {"etl": PoolSettings(executor="worker")}
    assert settings.lease == timedelta(seconds=6)


def test_local_part_counts_on_the_local_target_only() -> None:
    local = {"pools": {"etl": {"executor": "worker"}}}

    assert list(Settings.from_context({"local": local, "target": "local"}).pools) == ["etl"]
    assert list(Settings.from_context({"local": local}).pools) == ["default"]


@pytest.mark.parametrize(("executor", "longest_run"), [("lambda", "PT14M"), ("worker", "PT11H")])
def test_longest_run_leaves_time_to_record_its_end(executor: str, longest_run: str) -> None:
    pool = PoolSettings.model_validate({"executor": executor})

    assert iso8601(pool.longest_run) == longest_run


@pytest.mark.parametrize(
    ("pool", "memory", "packages"),
    [
        ({"executor": "lambda"}, 512 - 128, "none"),
        ({"executor": "lambda", "memory": 128}, 64, "none"),
        ({"executor": "lambda", "scriptMemory": 300}, 300, "none"),
        ({"executor": "worker"}, 2048, "inline"),
        ({"executor": "worker", "packages": "none"}, 2048, "none"),
        ({"executor": "worker", "fargate": {"cpu": 256, "memory": 1024}}, 896, "inline"),
        ({"executor": "worker", "fargate": {}}, 2048, "inline"),
    ],
)
def test_scripts_get_what_their_host_can_spare(
    pool: dict[str, object], memory: int, packages: str
) -> None:
    settings = PoolSettings.model_validate(pool)

    assert settings.script_memory_or_default == memory
    assert settings.packages_or_default == packages


def test_quotas_come_to_the_functions_as_they_are_given() -> None:
    given = {"default": {"jobs": 5}, "tenants": {"acme": {"jobs": None, "runsPerMinute": 60}}}

    settings = Settings.from_context({"quotas": json.dumps(given)})

    assert json.loads(settings.quotas_json) == given
    read = TenantQuotas.model_validate_json(settings.quotas_json)
    assert (read.of("acme").jobs, read.of("acme").runs_per_minute, read.of("x").jobs) == (
        None,
        60,
        5,
    )


_RULES = [{"role": "team-*", "tenant": "etl"}, {"role": "ops", "tenant": "ops"}]


@pytest.mark.parametrize(
    ("auth", "names", "unknown"),
    [
        ({}, ["acme", "123456789012"], []),
        ({}, ["a b", "acme ", ""], ["", "a b", "acme "]),
        ({"auth": "iam", "iam": _RULES}, ["etl", "opps"], ["opps"]),
        ({"auth": "iam"}, ["123456789012", "acme"], ["acme"]),
    ],
)
def test_tenants_that_no_caller_has_are_found(
    auth: dict[str, object], names: list[str], unknown: list[str]
) -> None:
    """A mistyped name would leave its tenant with the default quotas, or close a pool to it."""
    quotas = {"tenants": {name: {"jobs": 1} for name in names}}
    pools = {"closed": {"executor": "worker", "tenants": [name for name in names if name]}}

    for setting in ({"quotas": quotas}, {"tenantWeights": dict.fromkeys(names, 2)}):
        assert Settings.from_context(auth | setting).tenants_without_callers == unknown
    found = Settings.from_context(auth | {"pools": pools}).tenants_without_callers
    assert found == [name for name in unknown if name]


@pytest.mark.parametrize("more", [{}, {"concurrency": 1}])
def test_task_that_is_for_one_run_has_one_slot(more: dict[str, object]) -> None:
    settings = Settings.from_context({"pools": {"p": _SEALED | more}})

    assert settings.pools["p"].slots == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("logRetenton=P90D", "logRetenton: unknown field. Did you mean `logRetention`?"),
        (
            "logRetention=90",
            "logRetention: not an ISO 8601 duration. For example `P30D`",
        ),
        ('pools={"a": {"executor": "lamda"}}', "pools.a.executor: Input should be 'lambda' or"),
        ('pools={"a": {"executor": "lamda"}}', "Did you mean `lambda`?"),
        ('pools={"a": {"batchSise": 2}}', "pools.a.batchSise: unknown field. Did you mean `batchS"),
        ("groups=41", "groups: Input should be less than or equal to 40"),
        ("auth=jwt", "jwt"),
        ("pools=lambda", "pools: not valid JSON. For example -c 'tenantWeights={\"acme\": 2}'"),
        ("kms={create}", "kms: not valid JSON"),
        ("local=pools", "local: not valid JSON"),
    ],
)
def test_an_invalid_setting_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, setting: str, said: str
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the command changes
    assert main(["check", "-c", setting]) == 1

    err = capsys.readouterr().err
    assert err.startswith("Invalid settings in cdk.json (or in -c options):\n")
    assert said in err
    assert "pydantic" not in err


def test_a_list_with_an_invalid_value_is_not_called_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pydantic counts the valid values only."""
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the command changes
    rule = '{"role": "team", "tenant": "etl", "scopes": ["runs"]}'

    assert main(["check", "-c", f"iam=[{rule}]"]) == 1

    [_, line] = capsys.readouterr().err.splitlines()
    assert line.startswith("  iam.0.scopes.0: Input should be")
