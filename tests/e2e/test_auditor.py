"""The deployed auditor repairs what is lost in the tables and queues.

IAM is enforced, so these tests check the auditor's role: it is sufficient and grants no more.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.e2e.conftest import Stack
from tests.e2e.user import Document, User, instant, until

HELLO = "print('hello')"
TARGET = {"handler": "audited"}
PERIOD = timedelta(seconds=20)


def entries(stack: Stack, job: Document) -> list[dict[str, Any]]:
    """The due entries of *job*."""
    pages = (
        stack.client("dynamodb")
        .get_paginator("scan")
        .paginate(
            TableName=stack.info.tables["due"],
            FilterExpression="job_id = :job",
            ExpressionAttributeValues={":job": {"S": job["jobId"]}},
        )
    )
    return [item for page in pages for item in page["Items"]]


def audit(stack: Stack) -> dict[str, Any]:
    """Run a complete audit from the beginning."""
    report = stack.invoke("auditor", {"full": True})
    assert report["done"] is True, report
    assert report["jobs"] >= 1
    return report


def delete_entries(stack: Stack, job: Document) -> list[dict[str, Any]]:
    """Delete the due entries of *job*. Returns them."""
    deleted = entries(stack, job)
    for entry in deleted:
        key = {name: entry[name] for name in ("bucket", "entry")}
        stack.client("dynamodb").delete_item(TableName=stack.info.tables["due"], Key=key)
    assert entries(stack, job) == []
    return deleted


def lose_worker(stack: Stack, job: Document) -> None:
    """Write a run of *job* whose worker and message vanished 20 minutes ago."""
    item = stack.client("dynamodb").get_item(
        TableName=stack.info.tables["jobs"],
        Key={"tenant": {"S": stack.info.account_id}, "job_id": {"S": job["jobId"]}},
    )["Item"]
    started_at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)
    text = started_at.isoformat().replace("+00:00", "Z")
    attempt = {"M": {"worker": {"S": "vanished"}, "started_at": {"S": text}}}
    lapsed_at = started_at + timedelta(minutes=1)
    stack.client("dynamodb").put_item(
        TableName=stack.info.tables["runs"],
        Item={
            "job": {"S": f"{stack.info.account_id}/{job['jobId']}"},
            "run_id": {"S": f"{started_at:%Y%m%dT%H%M%S}000Z-{item['uid']['S']}"},
            "state": {"S": "RUNNING"},
            "dispatch": {"N": "1"},
            "attempt": {"N": "1"},
            "fence": {"N": "1"},
            "claim_token": {"S": "t"},
            "worker": {"S": "vanished"},
            "pool": {"S": "default"},
            "lease_until": {"N": str(int(lapsed_at.timestamp() * 1000))},
            "dispatched_at": {"S": text},
            "started_at": {"S": text},
            "attempts": {"L": [attempt]},
        },
    )


def backdate(stack: Stack, job: Document, by: timedelta) -> None:
    """Let *job* have begun *by* earlier, so that it has occurrences without a record."""
    since = datetime.now(UTC) - by
    stack.client("dynamodb").update_item(
        TableName=stack.info.tables["jobs"],
        Key={"tenant": {"S": stack.info.account_id}, "job_id": {"S": job["jobId"]}},
        UpdateExpression="SET effective_from = :since",
        ExpressionAttributeValues={":since": {"S": f"{since:%Y-%m-%dT%H:%M:%SZ}"}},
    )


@dataclass(frozen=True)
class Damaged:
    """Jobs that lost something, and are repaired. All wait at once for the audits that do it."""

    user: User
    without_entry: Document
    deleted: list[dict[str, Any]]
    """The due entries of `without_entry`."""
    restored: list[dict[str, Any]]
    """Its due entries after an audit."""
    without_worker: Document
    without_records: Document


@pytest.fixture(scope="module")
def damaged(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    stack.put_script("default", "audited", HELLO)
    with stack.api() as http:
        user = User(stack, http, tmp_path_factory.mktemp("audited"))
        without_entry = user.create(type="INTERVAL", schedule="PT20S", target=TARGET)
        without_worker = user.create(type="MANUAL", target=TARGET)
        without_records = user.create(type="CRON", schedule="*/10 * * * *", target=TARGET)
        deleted = delete_entries(stack, without_entry)
        lose_worker(stack, without_worker)
        backdate(stack, without_records, timedelta(minutes=60))

        found = Counter(audit(stack))
        restored = entries(stack, without_entry)

        def all_found() -> bool:
            found.update(audit(stack))
            return all(found[what] for what in ("restored", "revived", "resent"))

        until(all_found, "an empty queue, and audits that repaired all")
        yield Damaged(user, without_entry, deleted, restored, without_worker, without_records)
        for job in (without_entry, without_records):
            user.call("DELETE", f"/v1/jobs/{job['jobId']}")
    assert audit(stack)["quarantined"] == 0


def test_a_job_whose_fire_entry_was_deleted_runs_again(damaged: Damaged) -> None:
    job = damaged.without_entry
    assert damaged.restored == damaged.deleted != []

    def earliest() -> Document | None:
        *_, run = damaged.user.ended(job)
        return run if run["state"] == "SUCCEEDED" else None

    run = until(earliest, "the success of the earliest run")
    assert instant(run["scheduledAt"]) == instant(job["createdAt"]) + PERIOD


def test_a_run_that_lost_its_worker_and_its_message_is_taken_over(damaged: Damaged) -> None:
    [run] = damaged.user.ended(damaged.without_worker)
    assert (run["state"], run["attempt"], run["dispatch"]) == ("SUCCEEDED", 2, 2)
    assert [a["outcome"] for a in run["attempts"]] == ["WORKER_LOST", "SUCCEEDED"]


def test_occurrences_without_record_are_sent_as_the_misfire_policy_says(damaged: Damaged) -> None:
    def both() -> list[Document] | None:
        runs = [
            run
            for run in damaged.user.runs(damaged.without_records)
            if run["state"] in {"SUCCEEDED", "SKIPPED"}
        ]
        return runs if {run["state"] for run in runs} == {"SUCCEEDED", "SKIPPED"} else None

    runs = until(both, "a range record and a run")
    ranges = [run for run in runs if run["state"] == "SKIPPED"]
    assert "lost, found by the audit" in ranges[0]["reason"]
    assert ranges[0]["range"]["count"] in {3, 4}


def test_woken_in_between_it_ends_at_once(stack: Stack) -> None:
    with stack.api() as api:
        api.post("/v1/jobs", json={"type": "MANUAL", "target": TARGET}).raise_for_status()
    audit(stack)

    report = stack.invoke("auditor", {})

    assert report == dict.fromkeys(report, 0) | {"done": True}


@pytest.mark.parametrize(
    ("service", "operation", "request_"),
    [
        ("dynamodb", "put_item", {"TableName": "runs", "Item": {}}),
        ("dynamodb", "delete_item", {"TableName": "due", "Key": {}}),
        ("sqs", "receive_message", {}),
        ("sqs", "send_message", {"MessageBody": "{}", "MessageGroupId": "g"}),
    ],
)
def test_it_may_do_no_more_than_it_does(
    stack: Stack, service: str, operation: str, request_: dict[str, Any]
) -> None:
    client = stack.client(service, role="auditor")
    request = dict(request_)
    if service == "sqs":
        request["QueueUrl"] = stack.info.pools["default"].queue_url
        if operation == "send_message":
            request["MessageDeduplicationId"] = "none"
    else:
        table = request["TableName"]
        names = {
            "jobs": ("tenant", "job_id"), "runs": ("job", "run_id"), "due": ("bucket", "entry"),
        }[table]  # fmt: skip
        key = {name: {"S": "none"} for name in names}
        request |= {"TableName": stack.info.tables[table]}
        request |= {"Item": key} if "Item" in request else {"Key": key}

    with pytest.raises(ClientError) as refusal:
        getattr(client, operation)(**request)

    assert refusal.value.response["Error"]["Code"] in {"AccessDenied", "AccessDeniedException"}
