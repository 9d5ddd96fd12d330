"""A change of settings replaces no table, bucket or queue of a deployed stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.infra.conftest import Template, synthesize

_ROLE = "arn:aws:iam::123456789012:role/jobs"
_REPLACING = {
    "AWS::DynamoDB::Table": ("TableName", "KeySchema"),
    "AWS::S3::Bucket": ("BucketName",),
    "AWS::SQS::Queue": ("QueueName", "FifoQueue"),
}
"""By kind of store, the properties whose change replaces it (CloudFormation's createOnly)."""
_BEFORE = {
    "accountConcurrency": 1000,
    "pools": {"one": {"executor": "lambda"}, "two": {"executor": "worker", "fargate": {}}},
}
_AFTER: dict[str, Any] = {
    "accountConcurrency": 200,
    "pools": {
        "two": {"executor": "lambda", "timeout": "PT5M", "memory": 1024, "tenants": ["acme"]},
        "three": {"executor": "worker"},
        "one": {"executor": "worker", "targets": "calls", "jobRole": _ROLE, "maxBacklog": 9},
    },
    "writeShards": 8,
    "readShards": 8,
    "groups": 2,
    "life": "PT5M",
    "lease": "PT30S",
    "auth": "iam",
    "kms": "create",
    "poolAccess": "all",
    "auditEvery": "P2D",
    "auditorWakeEvery": "PT1H",
    "auditSegments": 6,
    "auditLock": {"mode": "GOVERNANCE", "period": "P1D"},
    "dueCapacity": {"writes": 20, "reads": 16},
    "runRetention": {"dead": "P365D"},
    "jobRetention": "P30D",
    "runsRecovery": False,
    "logRetention": "P90D",
    "auditRetention": "P731D",
    "removeData": True,
    "alarmEmail": "ops@example.com",
    "alarmOnDeadRuns": True,
}


def _stores(template: Template) -> dict[str, list[object]]:
    """By logical id, what replaces the store if it changes."""
    return {
        name: [kind, *(resource["Properties"].get(each) for each in _REPLACING[kind])]
        for name, resource in template["Resources"].items()
        if (kind := resource["Type"]) in _REPLACING
    }


def test_settings_replace_and_remove_no_store(tmp_path: Path) -> None:
    before = _stores(synthesize(tmp_path / "before", _BEFORE)[2])
    after = _stores(synthesize(tmp_path / "after", _AFTER)[2])

    assert len(before) == 8 + 3 + 2 + 2 * 2  # tables, buckets, failed records, queues of pools
    assert {name: after.get(name) for name in before} == before
