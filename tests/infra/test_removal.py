"""What happens to data when a stack is removed, and how a new stack adopts it."""

from pathlib import Path

from infra.constructs.stores import FIRST_DEPLOYMENT
from tests.infra.conftest import synthesize

_STREAM = "arn:aws:dynamodb:us-east-1:123456789012:table/old-jobs/stream"


def test_data_are_removed_only_on_request(tmp_path: Path) -> None:
    _, _, template, _ = synthesize(tmp_path, {"removeData": "true"})

    for resource in template["Resources"].values():
        if resource["Type"] in {
            *("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup")
        }:
            assert resource["DeletionPolicy"] == "Delete"
            assert not resource["Properties"].get("DeletionProtectionEnabled")


def test_retained_buckets_keep_their_policies(tmp_path: Path) -> None:
    """Without it they accept requests without TLS, and the audit chain can be overwritten."""
    lock = {"mode": "GOVERNANCE", "period": "P30D"}
    for settings in ({}, {"removeData": "true", "auditLock": lock}):
        resources = synthesize(tmp_path, settings)[2]["Resources"]

        policies = [each for each in resources.values() if each["Type"] == "AWS::S3::BucketPolicy"]
        assert len(policies) == 3
        for policy in policies:
            bucket = resources[policy["Properties"]["Bucket"]["Ref"]]
            assert policy.get("DeletionPolicy", "Delete") == bucket["DeletionPolicy"]
            assert policy.get("UpdateReplacePolicy", "Delete") == bucket["UpdateReplacePolicy"]


def test_a_first_deployment_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """CloudFormation removes what it created, unless a policy or a protection keeps it."""
    lock = {"mode": "GOVERNANCE", "period": "P30D"}
    context = {"kms": "create", "auditLock": lock, FIRST_DEPLOYMENT: "true"}
    first = synthesize(tmp_path, context)[2]["Resources"].values()

    assert {each.get("DeletionPolicy") for each in first} <= {
        None,
        "Delete",
        "RetainExceptOnCreate",
    }
    tables = [each["Properties"] for each in first if each["Type"] == "AWS::DynamoDB::Table"]
    assert tables
    assert not any(each["DeletionProtectionEnabled"] for each in tables)


def test_adopted_stores_are_used_and_not_created(tmp_path: Path) -> None:
    names = {
        "jobs": "old-jobs",
        "due": "old-due",
        "runs": "old-runs",
        "control": "old-control",
        "keys": "old-keys",
        "requests": "old-requests",
        "endpoints": "old-endpoints",
        "overview": "old-overview",
        "scripts": "old-scripts",
        "outputs": "old-outputs",
        "audit": "old-audit",
        "streams": {"jobs": f"{_STREAM}/2026-05-24T10:00:00.000"},
    }
    _, _, template, _ = synthesize(tmp_path, {"adopt": names})

    kinds = {resource["Type"] for resource in template["Resources"].values()}
    assert not kinds & {"AWS::DynamoDB::Table", "AWS::S3::Bucket"}
    assert template["Outputs"]["RunsTable"]["Value"] == "old-runs"
    assert "table/old-runs" in str(template["Resources"])
    assert template["Outputs"]["AuditBucket"]["Value"] == "old-audit"
    sources = [
        resource["Properties"]["EventSourceArn"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::EventSourceMapping"
    ]
    assert f"{_STREAM}/2026-05-24T10:00:00.000" in sources
    assert len([arn for arn in sources if isinstance(arn, str)]) == 1  # no other table's stream
