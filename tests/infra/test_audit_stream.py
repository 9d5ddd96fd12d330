"""The stream of changes to the audit log, and its bucket."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.conftest import Template, synthesize
from tests.infra.resources import as_list, bucket_of, function_of, properties, statements

AUDITED = ("Jobs", "Runs", "Keys", "Requests")


def sources_of_audit(template: Template) -> list[dict[str, Any]]:
    name, _ = function_of(template, "auditlog")
    found = properties(template, "Lambda::EventSourceMapping")
    return [source for source in found if source["FunctionName"] == {"Ref": name}]


def test_changes_of_the_audited_tables_come_with_both_images(template: Template) -> None:
    streams = []
    for each in AUDITED:
        name = template["Outputs"][f"{each}Table"]["Value"]["Ref"]
        table = template["Resources"][name]["Properties"]
        assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
        streams.append({"Fn::GetAtt": [name, "StreamArn"]})

    assert [source["EventSourceArn"] for source in sources_of_audit(template)] == streams


def test_writes_without_a_request_do_not_invoke_the_audit_log(template: Template) -> None:
    of_keys = []
    for source in sources_of_audit(template):
        if "Keys" in source["EventSourceArn"]["Fn::GetAtt"][0]:
            of_keys.append(source)
            continue
        [criterion] = source["FilterCriteria"]["Filters"]
        pattern = json.loads(criterion["Pattern"])
        assert pattern == {"dynamodb": {"NewImage": {"changed_by": {"S": [{"exists": True}]}}}}

    [unfiltered] = of_keys  # a key that was not made by a request is an event too
    assert "FilterCriteria" not in unfiltered


def test_a_batch_that_fails_is_retried_for_hours_and_then_put_aside(template: Template) -> None:
    for source in sources_of_audit(template):
        assert source["StartingPosition"] == "TRIM_HORIZON"
        assert source["MaximumRetryAttempts"] == -1
        assert source["MaximumRecordAgeInSeconds"] == 6 * 3600
        assert source["BisectBatchOnFunctionError"] is True
        queue = source["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
        assert template["Resources"][queue]["Type"] == "AWS::SQS::Queue"


def test_audit_log_appends_to_its_bucket_and_cannot_delete(template: Template) -> None:
    bucket, _ = bucket_of(template, "AuditBucket")
    reaching = {
        name: as_list(statement["Action"])
        for name, statement in statements(template)
        if bucket in json.dumps(statement["Resource"])
        and "s3:ListBucket" not in statement["Action"]
    }

    [(name, actions)] = reaching.items()
    assert name.startswith("Auditlog")
    assert actions == ["s3:GetObject", "s3:PutObject"]


def test_objects_of_the_audit_chain_cannot_be_overwritten(template: Template) -> None:
    bucket, audit = bucket_of(template, "AuditBucket")
    [policy] = [
        policy["PolicyDocument"]["Statement"]
        for policy in properties(template, "S3::BucketPolicy")
        if policy["Bucket"] == {"Ref": bucket}
    ]
    [denial] = [statement for statement in policy if statement["Action"] == "s3:PutObject"]

    assert audit["VersioningConfiguration"]["Status"] == "Enabled"
    assert denial["Effect"] == "Deny"
    assert denial["Principal"] == {"AWS": "*"}
    assert denial["Condition"]["Null"] == {"s3:if-none-match": "true"}


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_object_lock_is_set_by_setting_and_then_outlives_the_stack(
    tmp_path: Path, template: Template, mode: str
) -> None:
    lock = {"mode": mode, "period": "P400D"}
    _, _, locked, _ = synthesize(tmp_path, {"auditLock": lock, "removeData": "true"})
    name, bucket = bucket_of(locked, "AuditBucket")
    _, unlocked = bucket_of(template, "AuditBucket")

    assert bucket["ObjectLockEnabled"] is unlocked["ObjectLockEnabled"] is True
    retention = bucket["ObjectLockConfiguration"]["Rule"]["DefaultRetention"]
    assert retention == {"Mode": mode, "Days": 400}
    assert locked["Resources"][name]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert "ObjectLockConfiguration" not in unlocked
