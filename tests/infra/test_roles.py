"""Roles of the template: what they may do, and whom they trust."""

import json
import re
from pathlib import Path
from typing import Any

from nextfire.adapters.aws.wakers import WAKE_SOURCE
from nextfire.domain.events import SOURCE
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import (
    as_list,
    bucket_of,
    function_of,
    of_type,
    properties,
    statements,
    statements_of,
)


def test_executors_publish_events_of_the_stacks_sources_only(template: Template) -> None:
    publishing = [
        statement
        for policy in properties(template, "IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "events:PutEvents"
    ]
    assert publishing
    for statement in publishing:
        assert statement["Condition"] == {
            "ForAllValues:StringEquals": {"events:source": [SOURCE, WAKE_SOURCE]}
        }


def test_the_api_may_invoke_the_watcher_and_no_one_else_may_invoke_anything(
    template: Template,
) -> None:
    name, _ = function_of(template, "watcher")
    invoking = [
        (policy["Roles"][0]["Ref"], statement["Resource"])
        for policy in properties(template, "IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if "lambda:" in json.dumps(statement["Action"])
    ]
    [(role, resource)] = invoking
    assert role.startswith("ApiRole")
    assert resource == {"Fn::GetAtt": [name, "Arn"]}


def test_executors_read_leases_and_nothing_else_of_the_control_table(template: Template) -> None:
    reads = [
        statement
        for policy in properties(template, "IAM::Policy")
        if policy["Roles"][0]["Ref"].startswith(("Executor", "Worker"))
        for statement in policy["PolicyDocument"]["Statement"]
        if "StoresControl" in json.dumps(statement["Resource"])
    ]
    assert reads
    for statement in reads:
        assert statement["Action"] == "dynamodb:GetItem"
        keys = statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
        assert keys == ["lease#*"]


def test_functions_that_complete_jobs_may_write_them(template: Template) -> None:
    jobs = {"Fn::GetAtt": [template["Outputs"]["JobsTable"]["Value"]["Ref"], "Arn"]}

    for function in ("api", "watcher", "auditor", "executor"):
        may = {
            action
            for statement in statements_of(template, function)
            if jobs in as_list(statement["Resource"])
            for action in as_list(statement["Action"])
        }
        assert "dynamodb:UpdateItem" in may, function


def test_no_policy_has_a_wildcard_but_for_objects_and_what_is_kept_for_jobs(
    template: Template,
) -> None:
    meant = [
        {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, "/*"]]}
        for bucket in of_type(template, "S3::Bucket")
    ]
    audit, _ = bucket_of(template, "AuditBucket")
    meant.append({"Fn::Join": ["", [{"Fn::GetAtt": [audit, "Arn"]}, "/chain/*"]]})
    for name, statement in statements(template):
        if statement["Effect"] == "Deny":
            continue  # wider is safer in a Deny statement
        for action in as_list(statement["Action"]):
            assert "*" not in action, name
        for resource in as_list(statement["Resource"]):
            text = json.dumps(resource)
            prefix = re.search(r'[:/](nextfire/)?pools/(default|long-jobs)/\*"\]\]}$', text)
            assert resource in meant or prefix or "*" not in text, name


def test_lists_of_attributes_have_an_order(template: Template) -> None:
    """A template that differs without a cause would change all roles at each deployment."""
    lists = re.findall(r'"dynamodb:Attributes": (\[.*?\])', json.dumps(template))

    assert lists
    assert [each for each in map(json.loads, lists) if each != sorted(each)] == []


def test_roles_have_no_managed_policies(template: Template) -> None:
    assert not [role for role in properties(template, "IAM::Role") if "ManagedPolicyArns" in role]


def trust_of(template: Template, output: str) -> list[dict[str, Any]]:
    """The statements of the trust policy of the role whose ARN is *output*."""
    name = template["Outputs"][output]["Value"]["Fn::GetAtt"][0]
    role = template["Resources"][name]["Properties"]
    found: list[dict[str, Any]] = role["AssumeRolePolicyDocument"]["Statement"]
    return found


def test_worker_role_trusts_ecs_tasks_of_this_account_and_region_only(template: Template) -> None:
    [statement] = trust_of(template, "WorkerRoleArnLongJobs")

    assert statement["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == {
        "aws:SourceAccount": {"Ref": "AWS::AccountId"}
    }
    parts = statement["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1]
    assert [part["Ref"] if isinstance(part, dict) else part for part in parts] == [
        *("arn:", "AWS::Partition", ":ecs:", "AWS::Region", ":", "AWS::AccountId", ":*")
    ]


def test_worker_role_trusts_the_named_principals_and_no_others(tmp_path: Path) -> None:
    named = [
        "arn:aws:iam::123456789012:role/workers/etl",
        "arn:aws:iam::123456789012:user/operator",
    ]
    pools = {
        "etl": {"executor": "worker", "workerPrincipals": named},
        "other": {"executor": "worker"},
    }
    _, _, template, _ = synthesize(tmp_path, {"pools": pools})

    tasks, callers = trust_of(template, "WorkerRoleArnEtl")
    assert tasks["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert callers["Principal"] == {"AWS": named}
    assert len(trust_of(template, "WorkerRoleArnOther")) == 1


def test_no_role_trusts_a_whole_account(template: Template) -> None:
    for role in properties(template, "IAM::Role"):
        assert ":root" not in json.dumps(role["AssumeRolePolicyDocument"])


def test_local_worker_role_trusts_the_root_user_only(local_template: Template) -> None:
    [_, statement] = trust_of(local_template, "WorkerRoleArnDefault")

    root = statement["Principal"]["AWS"]
    assert statement["Condition"] == {"ArnEquals": {"aws:PrincipalArn": root}}
