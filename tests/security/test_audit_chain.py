"""Tampering with the stored audit chain, and whether `nextfire audit verify` detects it.

Each attack has full access to the bucket: only the chain itself protects the events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws
from typer.testing import CliRunner, Result

from nextfire.adapters.aws.clients import s3
from nextfire.adapters.s3.audit_log import S3AuditLog, key_of
from nextfire.domain.chain import START, Batch, Event, chain, hash_of
from nextfire_cli.audit_bucket import AuditBucket
from nextfire_cli.aws import Account
from nextfire_cli.main import app

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "audit"
AT = datetime(2026, 5, 24, 12, tzinfo=UTC)


def body(number: int) -> Event:
    return {
        "id": f"write-{number}",
        "table": "jobs",
        "kind": "MODIFY",
        "item": {"tenant": "acme", "job_id": "größer"},
        "attributes": ["payload"],
        "by": {"tenant": "acme", "principal": f"key-{number}", "operation": "changeJob"},
        "writtenAt": (AT + timedelta(minutes=number)).isoformat(),
        "recordedAt": (AT + timedelta(minutes=number)).isoformat(),
    }


class Store:
    """A bucket with a chain of three batches of two events each."""

    def __init__(self, client: S3Client) -> None:
        self.s3 = client
        client.create_bucket(Bucket=BUCKET)
        log, last = S3AuditLog(client, bucket=BUCKET), START
        for number in (1, 2, 3):
            batch = Batch(number, chain([body(2 * number - 1), body(2 * number)], last))
            assert log.append(batch)
            last = batch.end
        self.head = last.hash

    def read(self, number: int) -> dict[str, Any]:
        text = self.s3.get_object(Bucket=BUCKET, Key=key_of(number))["Body"].read()
        document: dict[str, Any] = json.loads(text)
        return document

    def write(self, number: int, events: list[Event]) -> None:
        document = {"batch": number, "events": events}
        self.s3.put_object(Bucket=BUCKET, Key=key_of(number), Body=json.dumps(document).encode())

    def delete(self, number: int) -> None:
        self.s3.delete_object(Bucket=BUCKET, Key=key_of(number))


Verify = Callable[..., Result]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield Store(s3())


@pytest.fixture
def verify(store: Store, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Runs `nextfire audit verify` with the given arguments."""
    monkeypatch.setattr(Account, "outputs", lambda *_: {"AuditBucket": BUCKET})
    monkeypatch.setattr(Account, "audit_bucket", lambda *_: AuditBucket(store.s3, BUCKET))

    def call(*arguments: str) -> Result:
        endpoint = ["--endpoint", "https://api.example.com"]
        return CliRunner().invoke(app, ["audit", "verify", *arguments, *endpoint])

    return call


def test_an_untouched_chain_is_verified(verify: Verify, store: Store) -> None:
    found = verify()

    assert found.exit_code == 0, found.output
    assert "6 events verified, 1 to 6" in found.output
    assert store.head in found.output


def test_a_changed_event_is_named(verify: Verify, store: Store) -> None:
    events = store.read(2)["events"]
    events[1]["by"]["principal"] = "someone-else"
    store.write(2, events)

    found = verify()

    assert found.exit_code == 1
    assert "event 4 of batch 2" in found.output
    assert "was changed" in found.output


def test_a_changed_event_with_a_new_hash_is_seen_at_the_next_one(
    verify: Verify, store: Store
) -> None:
    events = store.read(2)["events"]
    events[1]["by"]["principal"] = "someone-else"
    events[1]["hash"] = hash_of(events[1])
    store.write(2, events)

    found = verify()

    assert found.exit_code == 1
    assert "event 5 of batch 3" in found.output


def test_a_removed_event_is_seen(verify: Verify, store: Store) -> None:
    store.write(2, store.read(2)["events"][:1])

    found = verify()

    assert found.exit_code == 1
    assert "expected event 4" in found.output


@pytest.mark.parametrize("number", [1, 2])
def test_a_removed_batch_is_seen(verify: Verify, store: Store, number: int) -> None:
    store.delete(number)

    found = verify()

    assert found.exit_code == 1
    assert f"batch {number} " in found.output
    assert "missing" in found.output


def test_exchanged_batches_are_seen(verify: Verify, store: Store) -> None:
    first, second = store.read(1)["events"], store.read(2)["events"]
    store.write(1, second)
    store.write(2, first)

    assert verify().exit_code == 1


def test_an_object_that_is_not_a_batch_is_seen(verify: Verify, store: Store) -> None:
    store.s3.put_object(Bucket=BUCKET, Key=key_of(3), Body=b"\xff\x00")

    found = verify()

    assert found.exit_code == 1
    assert "batch 3" in found.output
    assert "does not decode" in found.output


@pytest.mark.parametrize("number", [-1, 0, 5, 10**12 - 1])
def test_an_object_with_a_number_that_is_not_the_next_is_seen(
    verify: Verify, store: Store, number: int
) -> None:
    store.write(number, [])

    found = verify()

    assert found.exit_code == 1, found.output
    assert "The audit chain is broken at" in found.output


@pytest.mark.parametrize(
    "value",
    [b'"\\ud800"', b"[" * 100_000 + b"]" * 100_000, b"1" * 5_000],
    ids=["no text", "too deep", "too long"],
)
def test_what_has_no_canonical_form_is_seen(verify: Verify, store: Store, value: bytes) -> None:
    body = json.dumps(store.read(2)).encode().replace(b'"MODIFY"', value, 1)
    store.s3.put_object(Bucket=BUCKET, Key=key_of(2), Body=body)

    found = verify()

    assert isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code == 1
    assert "The audit chain is broken at" in found.output
    assert "batch 2" in found.output


def test_removed_newest_events_are_seen_by_the_head_hash_only(verify: Verify, store: Store) -> None:
    assert verify("--expect", store.head).exit_code == 0
    store.delete(3)

    assert verify().exit_code == 0  # the remaining batches are a valid chain
    found = verify("--expect", store.head)
    assert found.exit_code == 1
    assert "no event has the expected hash" in found.output


def test_a_chain_rewritten_from_an_event_on_is_seen_by_the_head_hash(
    verify: Verify, store: Store
) -> None:
    """The strongest attack on a bucket without versions: all hashes are valid again."""
    last = START
    for number in (1, 2, 3):
        events = store.read(number)["events"]
        for event in events:
            event["by"]["principal"] = "someone-else"
        batch = Batch(number, chain(events, last))
        store.write(number, [*batch.events])
        last = batch.end

    assert verify().exit_code == 0
    assert verify("--expect", store.head).exit_code == 1


@pytest.mark.parametrize("attack", ["overwrite", "delete"])
def test_in_a_versioned_bucket_any_overwritten_or_deleted_object_is_seen(
    verify: Verify, store: Store, attack: str
) -> None:
    """The stack's bucket is versioned: even an attack that leaves all hashes valid is detected."""
    store.s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    if attack == "overwrite":
        store.write(3, store.read(3)["events"])
    else:
        store.delete(3)

    found = verify()

    assert found.exit_code == 1
    assert "batch 3" in found.output


def test_a_later_start_is_verified_from_there(verify: Verify, store: Store) -> None:
    store.write(1, [{**event, "table": "runs"} for event in store.read(1)["events"]])

    assert verify().exit_code == 1
    assert verify("--since", "2030-01-01T00:00:00Z").output.strip() == "No events."


def test_an_empty_chain_is_not_what_was_expected(verify: Verify, store: Store) -> None:
    for number in (1, 2, 3):
        store.delete(number)

    assert verify().exit_code == 0
    assert verify("--expect", store.head).exit_code == 1
