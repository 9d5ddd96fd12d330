"""A pool that makes calls: its settings, and what the template deploys for it."""

from ipaddress import ip_network
from typing import Any

import pytest
from pydantic import ValidationError

from infra.call_settings import call_environment
from infra.pool_settings import PoolSettings
from infra.settings import Settings
from nextfire.adapters.scripts.job_role import SESSION_TAGS
from nextfire.settings import ExecutorSettings
from nextfire.targets.http.addresses import AddressRules, allows
from tests.infra.conftest import Template, synthesize
from tests.infra.policies import Policies, rendered

ROLE = "arn:aws:iam::123456789012:role/calls"
POOLS = {
    "default": {"executor": "lambda"},
    "calls": {"executor": "lambda", "targets": "calls", "jobRole": ROLE, "lease": "PT9S"},
}


def pool(**settings: Any) -> PoolSettings:
    return PoolSettings.model_validate({"executor": "lambda", "targets": "calls", **settings})


def test_lambda_pool_of_calls_takes_ten_messages_for_at_most_fourteen_minutes() -> None:
    assert pool().batch_size_or_default == 10
    assert pool().longest_run.total_seconds() == 840
    assert pool().memory == 512
    assert pool(batchSize=3).batch_size_or_default == 3


def test_pool_of_scripts_takes_one_message() -> None:
    assert PoolSettings(executor="lambda").batch_size_or_default == 1


def test_worker_pool_may_serve_calls() -> None:
    assert call_environment(pool(executor="worker", concurrency=7))["NEXTFIRE_SLOTS"] == "7"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("packages", "none"),
        ("packagePolicy", {}),
        ("scriptMemory", 64),
        ("trustedSigners", [f"ed25519:{'A' * 43}="]),
        ("egress", "none"),
        ("egress", "open"),
    ],
)
def test_setting_of_scripts_is_refused_in_a_pool_of_calls(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"{name} applies to pools of scripts only"):
        pool(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("callNetworks", ["10.0.0.0/8"]),
        ("callPorts", [8080]),
        ("callHttp", True),
        ("awsActions", ["sqs:SendMessage"]),
    ],
)
def test_setting_of_calls_is_refused_in_a_pool_of_scripts(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"{name} applies to pools of calls only"):
        pool(targets="scripts", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("callNetworks", ["10.0.0.1/8"]),
        ("callPorts", [65_536]),
        ("awsActions", ["SendMessage"]),
        ("awsActions", ["*:*"]),
    ],
)
def test_malformed_limit_of_calls_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        pool(**{name: value})


@pytest.mark.parametrize(
    "network",
    [
        *("169.254.169.254/32", "169.254.0.0/16", "0.0.0.0/8", "224.0.0.0/4", "239.1.0.0/16"),
        *("168.63.129.16/32", "255.255.255.255/32", "fe80::/10", "fd00:ec2::254/128", "ff02::/16"),
        *("::/128", "::ffff:10.0.0.0/104", "64:ff9b:1::/48"),
    ],
)
def test_network_that_never_opens_is_refused(network: str) -> None:
    with pytest.raises(ValidationError, match=r"never opens.*metadata"):
        pool(callNetworks=[network])
    rules = AddressRules.of([network], [], http=False)
    assert not allows(ip_network(network)[0], rules)


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "10.0.0.0/8", "fd00::/8", "169.0.0.0/8"])
def test_network_that_opens_in_part_is_accepted(network: str) -> None:
    assert pool(callNetworks=[network]).call_networks == (network,)


def test_executor_reads_the_limits_of_its_calls() -> None:
    limits = pool(
        callNetworks=["10.0.0.0/8", "::1/128"],
        callPorts=[8080],
        callHttp=True,
        awsActions=["sqs:SendMessage", "lambda:Invoke*"],
    )
    names = "jobs_table due_table runs_table scripts_bucket outputs_bucket event_bus"
    values = dict.fromkeys([*names.split(), "pool", "queue_url", "dlq_url"], "x")
    given = {
        name.removeprefix("NEXTFIRE_").lower(): value
        for name, value in call_environment(limits).items()
    }

    read = ExecutorSettings.model_validate({**values, "write_shards": "1", **given})

    assert read.targets == "calls"
    assert read.call_networks == limits.call_networks
    assert read.call_ports == (8080,)
    assert read.call_http is True
    assert read.aws_actions == ("sqs:SendMessage", "lambda:Invoke*")


def test_functions_get_the_library_for_signatures_if_a_pool_makes_calls() -> None:
    with_calls = {"pools": {"calls": {"executor": "lambda", "targets": "calls"}}}

    assert Settings.from_context(with_calls).signatures
    assert not Settings.from_context({}).signatures


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return synthesize(tmp_path_factory.mktemp("calls"), {"pools": POOLS})[2]


def named(template: Template, kind: str, prefix: str) -> dict[str, Any]:
    """The properties of the only resource of *kind* whose logical id starts with *prefix*."""
    [found] = [
        resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == f"AWS::{kind}" and name.startswith(prefix)
    ]
    properties: dict[str, Any] = found
    return properties


def test_function_of_calls_takes_batches_of_ten_from_its_own_queue(pools: Template) -> None:
    source = named(pools, "Lambda::EventSourceMapping", "PoolCallsSource")
    queue = named(pools, "SQS::Queue", "PoolCallsQueue")
    function = named(pools, "Lambda::Function", "ExecutorCalls")

    assert source["BatchSize"] == 10
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["EventSourceArn"]["Fn::GetAtt"][0].startswith("PoolCallsQueue")
    assert queue["FifoQueue"] is True
    assert queue["VisibilityTimeout"] == function["Timeout"] == 900
    assert function["MemorySize"] == 512


def test_function_of_calls_has_no_settings_of_scripts(pools: Template) -> None:
    variables = named(pools, "Lambda::Function", "ExecutorCalls")["Environment"]["Variables"]

    assert variables["NEXTFIRE_TARGETS"] == "calls"
    assert "NEXTFIRE_CALL_HTTP" not in variables
    assert "NEXTFIRE_CALL_NETWORKS" not in variables
    assert not {"NEXTFIRE_EGRESS", "NEXTFIRE_PACKAGES", "NEXTFIRE_SCRIPT_MEMORY"} & {*variables}


def test_a_pool_has_the_stacks_lease_or_its_own(pools: Template) -> None:
    def lease(pool: str) -> str:
        function = named(pools, "Lambda::Function", f"Executor{pool}")
        return str(function["Environment"]["Variables"]["NEXTFIRE_LEASE"])

    assert lease("Default") == "PT1M"
    assert lease("Calls") == "PT9S"


def test_function_of_calls_cannot_read_scripts(pools: Template) -> None:
    def reads(pool: str) -> bool:
        bucket = rendered(pools["Outputs"]["ScriptsBucket"]["Value"])[1:-1]
        script = f"<{bucket}.Arn>/pools/{pool.lower()}/acme/a.py"
        return Policies(pools, f"ExecutorRoleArn{pool}").allow("s3:GetObject", script, {})

    assert reads("Default")
    assert not reads("Calls")


def test_function_of_calls_may_assume_the_job_role_of_its_pool(pools: Template) -> None:
    context = {"aws:RequestTag/pool": "calls", "aws:TagKeys": [*SESSION_TAGS]}
    policies = Policies(pools, "ExecutorRoleArnCalls")

    assert policies.allow("sts:AssumeRole", ROLE, context)
    assert not policies.allow("sts:AssumeRole", f"{ROLE}-other", context)
