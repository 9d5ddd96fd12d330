"""A customer-managed key encrypts all stored data, and each role may use it for its services."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crons import LONG
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import as_list, of_type, properties, statements
from tests.infra.test_lint import check_with_cfn_lint

POOLS = {
    "default": {"executor": "lambda"},
    "etl": {"executor": "worker", "fargate": {"image": "example.com/worker:1"}},
}
ARN = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-0000-1111-2222-333344445555"
SERVICES = {
    "ApiRole": {"dynamodb", "s3"},
    "AuthorizerRole": {"dynamodb"},
    "WatcherRole": {"dynamodb", "sqs"},
    "AuditorRole": {"dynamodb"},
    "AuditlogRole": {"dynamodb", "s3", "sqs"},
    "ProjectorRole": {"dynamodb", "sqs"},
    "ExecutorDefaultRole": {"dynamodb", "s3", "sqs"},
    "WorkerEtl": {"dynamodb", "s3", "sqs"},
}
"""By the prefix of the policy's name."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(tmp_path_factory.mktemp("kms"), {"pools": POOLS, "kms": "create"})[3]


@pytest.fixture(scope="module")
def created(file: Path) -> Template:
    loaded: Template = json.loads(file.read_text())
    return loaded


@pytest.fixture(scope="module")
def key(created: Template) -> dict[str, Any]:
    """How the template refers to the ARN of the key."""
    [name] = of_type(created, "KMS::Key")
    return {"Fn::GetAtt": [name, "Arn"]}


def test_every_table_queue_bucket_and_log_group_has_the_key(
    created: Template, key: dict[str, Any]
) -> None:
    for table in properties(created, "DynamoDB::Table"):
        assert table["SSESpecification"] == {
            "KMSMasterKeyId": key, "SSEEnabled": True, "SSEType": "KMS",
        }  # fmt: skip
    for queue in properties(created, "SQS::Queue"):
        assert queue["KmsMasterKeyId"] == key
        assert queue["KmsDataKeyReusePeriodSeconds"] == 3600
    for bucket in properties(created, "S3::Bucket"):
        [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
        assert rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"] == key
        assert rule["BucketKeyEnabled"] is True
    for group in properties(created, "Logs::LogGroup"):
        assert group["KmsKeyId"] == key


def test_each_role_uses_the_key_through_its_services_only(
    created: Template, key: dict[str, Any]
) -> None:
    found: dict[str, set[str]] = {}
    for name, statement in statements(created):
        if not any(action.startswith("kms:") for action in as_list(statement["Action"])):
            continue
        assert statement["Resource"] == key, name
        assert "*" not in json.dumps(statement["Action"]), name
        assert set(statement["Condition"]) == {"StringEquals"}, name
        [via] = statement["Condition"]["StringEquals"].values()
        [service] = {part.partition(".")[0] for part in via["Fn::Join"][1][:1]}
        found.setdefault(name, set()).add(service)

    by_role = {
        role: services
        for name, services in found.items()
        for role in SERVICES
        if name.startswith(role)
    }
    assert by_role == SERVICES
    assert len(found) == len(SERVICES)


def test_roles_may_use_the_key_before_the_stores_have_it(created: Template) -> None:
    """`kms` can be added to a stack that exists: CloudFormation changes a resource after those that
    it names or depends on. A policy that names a table would follow the table.
    """
    stores = {
        *of_type(created, "DynamoDB::Table"),
        *of_type(created, "SQS::Queue"),
        *of_type(created, "S3::Bucket"),
    }
    permissions = {
        name for name, each in statements(created) if "kms:Decrypt" in as_list(each["Action"])
    }

    assert len(permissions) == len(SERVICES)
    for name in permissions:
        policy = json.dumps(created["Resources"][name])
        assert [store for store in stores if f'"{store}"' in policy] == []
    for store in stores:
        assert set(created["Resources"][store].get("DependsOn", [])) >= permissions, store


def test_the_condition_names_the_service_and_the_region(created: Template) -> None:
    for _, statement in statements(created):
        if "kms:Decrypt" in as_list(statement["Action"]):
            assert statement["Condition"]["StringEquals"]["kms:ViaService"]["Fn::Join"][1][1:] == [
                {"Ref": "AWS::Region"}, ".", {"Ref": "AWS::URLSuffix"},
            ]  # fmt: skip


def test_an_auditor_of_jobs_and_an_authorizer_cannot_read_objects_by_the_key(
    created: Template,
) -> None:
    for name, statement in statements(created):
        if name.startswith(("AuthorizerRole", "AuditorRole")):
            assert "s3." not in json.dumps(statement.get("Condition", {}))


def test_the_keys_policy_lets_logs_of_this_account_use_it(created: Template) -> None:
    [key] = of_type(created, "KMS::Key").values()
    [of_logs] = [
        statement
        for statement in key["Properties"]["KeyPolicy"]["Statement"]
        if "Service" in statement["Principal"]
    ]

    assert key["DeletionPolicy"] == "RetainExceptOnCreate"
    assert key["Properties"]["EnableKeyRotation"] is True
    assert "logs." in json.dumps(of_logs["Principal"])
    assert "*" not in json.dumps(of_logs["Action"])
    [condition] = of_logs["Condition"]["ArnLike"].items()
    assert condition[0] == "kms:EncryptionContext:aws:logs:arn"
    assert {"Ref": "AWS::AccountId"} in condition[1]["Fn::Join"][1]


def test_a_given_key_is_used_as_it_is(tmp_path: Path) -> None:
    _, _, template, _ = synthesize(tmp_path, {"kms": {"keyArn": ARN}})

    assert "AWS::KMS::Key" not in {each["Type"] for each in template["Resources"].values()}
    for table in properties(template, "DynamoDB::Table"):
        assert table["SSESpecification"]["KMSMasterKeyId"] == ARN
    for name, statement in statements(template):
        if any(action.startswith("kms:") for action in as_list(statement["Action"])):
            assert statement["Resource"] == ARN, name


def test_without_the_setting_no_role_may_use_a_key(template: Template) -> None:
    assert "kms:" not in json.dumps([statement for _, statement in statements(template)])


def test_locally_there_is_no_key(tmp_path: Path) -> None:
    _, _, template, _ = synthesize(tmp_path, {"kms": "create", "target": "local"})

    assert "AWS::KMS::Key" not in {each["Type"] for each in template["Resources"].values()}


@pytest.mark.skipif(not LONG, reason="the default template is always checked")
def test_cfn_lint_finds_nothing(file: Path) -> None:
    check_with_cfn_lint(file)
