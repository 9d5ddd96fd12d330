"""Tables, buckets and queues of the template: retained, private, encrypted, with an expiry."""

from datetime import timedelta
from pathlib import Path

from infra.settings import Settings
from nextfire.domain.retention import RETENTION
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import as_list, bucket_of, of_type, properties, queues_of_pools


def test_tables_outlive_the_stack_and_can_be_restored(template: Template) -> None:
    for table in of_type(template, "DynamoDB::Table").values():
        assert table["DeletionPolicy"] == "RetainExceptOnCreate"
        assert table["UpdateReplacePolicy"] == "Retain"
        assert table["Properties"]["DeletionProtectionEnabled"] is True
        assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
        assert table["Properties"]["SSESpecification"]["SSEEnabled"] is True
        recovery = table["Properties"]["PointInTimeRecoverySpecification"]
        assert recovery["PointInTimeRecoveryEnabled"] is True


def test_runs_expire_and_an_index_has_the_keys_of_dead_ones(template: Template) -> None:
    [runs] = [
        table
        for table in properties(template, "DynamoDB::Table")
        if table["KeySchema"][-1]["AttributeName"] == "run_id"
    ]

    assert runs["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    [index] = runs["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "dead"
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_buckets_are_private_encrypted_and_retained(template: Template) -> None:
    for bucket in of_type(template, "S3::Bucket").values():
        assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"
        assert bucket["UpdateReplacePolicy"] == "Retain"
        assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
        assert "BucketEncryption" in bucket["Properties"]


def test_scripts_keep_their_versions_and_never_expire(template: Template) -> None:
    _, scripts = bucket_of(template, "ScriptsBucket")

    assert scripts["VersioningConfiguration"]["Status"] == "Enabled"
    assert "LifecycleConfiguration" not in scripts


def test_outputs_outlive_the_longest_retention_of_records() -> None:
    assert Settings().output_retention == RETENTION + timedelta(days=7)
    kept = {"runRetention": {"succeeded": "P200D"}}
    assert Settings.from_context(kept).output_retention == timedelta(days=207)


def test_outputs_expire_after_the_records_that_name_them(template: Template) -> None:
    _, outputs = bucket_of(template, "OutputsBucket")
    [rule] = outputs["LifecycleConfiguration"]["Rules"]

    assert rule["Status"] == "Enabled"
    assert rule["ExpirationInDays"] > RETENTION.days
    assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1
    # A log is rewritten again and again under one name: versions would keep each state of it.
    assert "VersioningConfiguration" not in outputs


def test_buckets_and_queues_refuse_requests_without_tls(template: Template) -> None:
    guarded = []
    for kind, key in (("S3::BucketPolicy", "Bucket"), ("SQS::QueuePolicy", "Queues")):
        for policy in properties(template, kind):
            denials = [
                statement
                for statement in policy["PolicyDocument"]["Statement"]
                if statement["Effect"] == "Deny"
                and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            ]
            if denials:
                guarded += [reference["Ref"] for reference in as_list(policy[key])]

    stores = {*of_type(template, "S3::Bucket"), *of_type(template, "SQS::Queue")}
    assert set(guarded) == stores


def test_every_queue_of_a_pool_has_dead_letters_or_holds_them(template: Template) -> None:
    queues = queues_of_pools(template)
    policies = [queue["Properties"].get("RedrivePolicy") for queue in queues.values()]
    holding = {policy["deadLetterTargetArn"]["Fn::GetAtt"][0] for policy in policies if policy}

    for name, queue in queues.items():
        if name in holding:
            assert queue["Properties"]["MessageRetentionPeriod"] == 14 * 86_400
        else:
            assert queue["Properties"]["RedrivePolicy"]["maxReceiveCount"] == 1000


def test_queues_are_encrypted(template: Template) -> None:
    for queue in properties(template, "SQS::Queue"):
        assert queue["SqsManagedSseEnabled"] is True


def test_queues_of_pools_are_fifo_of_high_throughput(template: Template) -> None:
    for resource in queues_of_pools(template).values():
        queue = resource["Properties"]
        assert queue["FifoQueue"] is True
        assert queue["DeduplicationScope"] == "messageGroup"
        assert queue["FifoThroughputLimit"] == "perMessageGroupId"


def test_the_runs_table_is_without_recovery_only_by_setting(tmp_path: Path) -> None:
    template = synthesize(tmp_path, {"runsRecovery": False})[2]
    tables = {
        name: each["Properties"]["PointInTimeRecoverySpecification"]
        for name, each in template["Resources"].items()
        if each["Type"] == "AWS::DynamoDB::Table"
    }
    without = [name for name, of in tables.items() if not of["PointInTimeRecoveryEnabled"]]
    [name] = without
    assert name.startswith("StoresRuns")


def test_the_due_table_has_a_provisioned_capacity_only_by_setting(tmp_path: Path) -> None:
    template = synthesize(tmp_path, {"dueCapacity": {"writes": 30, "reads": 10}})[2]
    by_mode = {
        mode: [
            (name, each["Properties"].get("ProvisionedThroughput"))
            for name, each in of_type(template, "DynamoDB::Table").items()
            if each["Properties"]["BillingMode"] == mode
        ]
        for mode in ("PROVISIONED", "PAY_PER_REQUEST")
    }
    [(name, capacity)] = by_mode["PROVISIONED"]
    due = template["Resources"][name]

    assert name.startswith("StoresDue")
    assert capacity == {"WriteCapacityUnits": 30, "ReadCapacityUnits": 10}
    assert not {"GlobalSecondaryIndexes", "StreamSpecification"} & {*due["Properties"]}
    assert {capacity for _, capacity in by_mode["PAY_PER_REQUEST"]} == {None}
    assert due["DeletionPolicy"] == "RetainExceptOnCreate"
