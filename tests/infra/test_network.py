"""The networks of executors: which hosts the settings allow, and the resources of a VPC."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.settings import Settings
from nextfire.domain.egress import Egress
from tests.crons import LONG
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import as_list, of_type, properties, statements
from tests.infra.test_lint import check_with_cfn_lint, check_with_nag

VPC = {"vpcId": "vpc-0a1b2c3d", "subnetIds": ["subnet-0a1b2c3d", "subnet-0a1b2d3e"]}
POOLS: dict[str, dict[str, Any]] = {
    "default": {"executor": "lambda"},
    "inside": {"executor": "lambda", "vpc": VPC, "egress": "none"},
    "given": {"executor": "lambda", "vpc": VPC | {"securityGroupIds": ["sg-0a1b2c3d"]}},
    "walled": {
        "executor": "worker",
        "egress": ["api.example.com", "*.example.com:8443"],
        "metadata": "open",
    },
    "plain": {"executor": "worker"},
}
_MEANT = {
    "AwsSolutions-IAM5[Resource::*]": "Describe actions for interfaces do not support resources.",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:*/*]": (
        "Lambda rejects a role that may not delete every interface."
    ),
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:"
    "network-interface/*]": "Lambda names the interfaces itself.",
    **{
        f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:*:{each}]": (
            "The account may own a shared VPC; the id is unique."
        )
        for each in (
            "subnet/subnet-0a1b2c3d",
            "subnet/subnet-0a1b2d3e",
            "security-group/sg-0a1b2c3d",
            "security-group/<NetworkInsideWallA9AEF574.GroupId>",
        )
    },
}


@pytest.fixture(scope="module")
def network_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(tmp_path_factory.mktemp("network"), {"pools": POOLS})[3]


@pytest.fixture(scope="module")
def network(network_file: Path) -> Template:
    loaded: Template = json.loads(network_file.read_text())
    return loaded


def executor(template: Template, part: str) -> dict[str, Any]:
    [found] = [
        resource["Properties"]
        for name, resource in of_type(template, "Lambda::Function").items()
        if name.startswith(f"Executor{part}")
    ]
    return dict(found)


def of_role(template: Template, part: str) -> list[dict[str, Any]]:
    return [each for name, each in statements(template) if name.startswith(f"Executor{part}")]


def test_pool_without_vpc_has_none(network: Template) -> None:
    assert "VpcConfig" not in executor(network, "Default")
    assert not [each for each in of_role(network, "Default") if "ec2:" in str(each)]


def test_locally_there_is_no_vpc(tmp_path: Path) -> None:
    _, _, template, _ = synthesize(tmp_path, {"target": "local", "local": {"pools": POOLS}})

    kinds = {resource["Type"] for resource in template["Resources"].values()}
    assert not [kind for kind in kinds if kind.startswith("AWS::EC2")]
    assert "VpcConfig" not in executor(template, "Inside")


def test_executor_is_in_its_subnets(network: Template) -> None:
    inside, given = executor(network, "Inside"), executor(network, "Given")

    assert inside["VpcConfig"]["SubnetIds"] == VPC["subnetIds"]
    assert given["VpcConfig"]["SecurityGroupIds"] == ["sg-0a1b2c3d"]
    assert list(of_type(network, "EC2::SecurityGroup")) == [
        inside["VpcConfig"]["SecurityGroupIds"][0]["Fn::GetAtt"][0]
    ]


def test_own_security_group_lets_https_out_and_nothing_in(network: Template) -> None:
    [wall] = properties(network, "EC2::SecurityGroup")

    assert wall["VpcId"] == "vpc-0a1b2c3d"
    [rule] = wall["SecurityGroupEgress"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert "SecurityGroupIngress" not in wall
    kinds = {resource["Type"] for resource in network["Resources"].values()}
    assert not {kind for kind in kinds if kind.startswith("AWS::EC2::SecurityGroup")} - {
        "AWS::EC2::SecurityGroup"
    }


def test_interfaces_are_made_in_the_given_subnets_and_groups_only(network: Template) -> None:
    [create] = [
        each
        for each in of_role(network, "Given")
        if each["Effect"] == "Allow" and "ec2:CreateNetworkInterface" in as_list(each["Action"])
    ]
    resources = [str(each["Fn::Join"][1][-1]) for each in create["Resource"]]

    assert as_list(create["Action"]) == ["ec2:CreateNetworkInterface"]
    assert {each.rpartition(":")[2] for each in resources} == {
        "network-interface/*",
        "security-group/sg-0a1b2c3d",
        "subnet/subnet-0a1b2c3d",
        "subnet/subnet-0a1b2d3e",
    }


@pytest.mark.parametrize("part", ["Inside", "Given"])
def test_code_of_the_function_may_not_touch_interfaces(network: Template, part: str) -> None:
    """Otherwise scripts could create interfaces in the VPC, and delete those of other functions."""
    allowed = {
        action
        for each in of_role(network, part)
        if each["Effect"] == "Allow"
        for action in as_list(each["Action"])
        if action.startswith("ec2:")
    }
    [denial] = [
        each
        for each in of_role(network, part)
        if each["Effect"] == "Deny" and "lambda:SourceFunctionArn" in str(each.get("Condition"))
    ]

    assert allowed == set(denial["Action"])
    assert denial["Resource"] == "*"
    [(operator, condition)] = denial["Condition"].items()
    assert operator == "ArnLike"
    assert str(condition["lambda:SourceFunctionArn"]["Fn::Join"][1][-1]).endswith(":function:*")


def test_wildcards_are_those_that_cannot_be_spared(network: Template) -> None:
    for name, each in statements(network):
        if each["Effect"] == "Allow" and "*" in as_list(each["Resource"]):
            assert set(as_list(each["Action"])) == {
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSubnets",
            }, name


def test_no_managed_policy_gives_more(network: Template) -> None:
    for role in properties(network, "IAM::Role"):
        assert "ManagedPolicyArns" not in role


def test_executors_know_what_scripts_may_reach(network: Template) -> None:
    given = {
        part: executor(network, part)["Environment"]["Variables"] for part in ("Default", "Inside")
    }

    assert given["Default"]["NEXTFIRE_EGRESS"] == "open"
    assert given["Inside"]["NEXTFIRE_EGRESS"] == "none"
    assert given["Inside"]["NEXTFIRE_METADATA"] == "open", "Lambda has no metadata addresses"
    walled = str(network["Outputs"]["WorkerEnvironmentWalled"]["Value"])
    assert '"NEXTFIRE_EGRESS":"api.example.com:443,*.example.com:8443"' in walled
    assert '"NEXTFIRE_METADATA":"open"' in walled
    plain = str(network["Outputs"]["WorkerEnvironmentPlain"]["Value"])
    assert '"NEXTFIRE_METADATA":"closed"' in plain


@pytest.mark.skipif(not LONG, reason="the default template is always checked")
def test_cfn_lint_finds_nothing(network_file: Path) -> None:
    check_with_cfn_lint(network_file)


def test_cdk_nag_finds_nothing_but_what_is_meant(tmp_path: Path) -> None:
    check_with_nag(tmp_path, {"pools": POOLS}, _MEANT)


_ROLE = "arn:aws:iam::123456789012:role/scripts"


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        ({"egress": "closed"}, 'must be "open", "none" or a list of hosts'),
        ({"egress": "api.example.com"}, r'use \["api.example.com"\]'),
        ({"egress": []}, "1 to 50 hosts"),
        ({"egress": ["127.0.0.1"]}, "loopback"),
        ({"egress": ["https://x.example"]}, "A path cannot be given"),
        ({"egress": [7]}, "egress"),
        ({"egress": "none", "jobRole": _ROLE}, "scripts without network cannot use a role"),
        ({"egress": ["x.example"], "fargate": {}}, "Fargate does not allow separate networks"),
        ({"executor": "lambda", "egress": ["x.example"]}, 'Set egress to "none", or to "open"'),
        ({"executor": "lambda", "metadata": "closed"}, "Lambda has no metadata addresses"),
        ({"vpc": VPC}, "vpc applies to lambda pools only"),
        ({"metadata": "shut"}, "'closed' or 'open'"),
        ({"executor": "lambda", "vpc": VPC | {"subnetIds": []}}, "at least 1 item"),
        ({"executor": "lambda", "vpc": VPC | {"vpcId": "vpc"}}, "should match pattern"),
        ({"executor": "lambda", "vpc": {"subnetIds": ["subnet-1"]}}, "vpcId"),
        ({"executor": "lambda", "vpc": VPC | {"securityGroupIds": ["x"]}}, "match pattern"),
    ],
)
def test_impossible_networks_are_refused_with_a_reason(pool: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Settings.from_context({"pools": {"p": {"executor": "worker", **pool}}})


def test_hosts_can_be_listed_along_with_a_role() -> None:
    pools = {
        "p": {"executor": "worker", "jobRole": _ROLE, "egress": ["s3.eu-west-1.amazonaws.com"]}
    }
    found = Settings.from_context({"pools": pools}).pools["p"].egress

    assert found == Egress.listed("s3.eu-west-1.amazonaws.com")
