"""`nextfire audit`: what it prints, and the errors of commands that it cannot run."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, cast

import pytest
from typer.testing import CliRunner, Result

from nextfire.adapters.s3.audit_log import key_of, number_of
from nextfire.domain.chain import START, Batch, Event, chain
from nextfire_cli import audit_bucket
from nextfire_cli.audit_bucket import AuditBucket
from nextfire_cli.aws import Account
from nextfire_cli.main import app
from tests.unit.cli.conftest import Call

HASH = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"


def event(**item: str) -> Event:
    return {
        "table": "jobs",
        "item": item,
        "by": {"tenant": "acme", "principal": "p", "operation": "changeJob"},
        "writtenAt": "2026-05-24T10:00:00Z",
        "recordedAt": "2026-05-24T10:00:04.120Z",
    }


class Bucket:
    """A bucket with one batch of the chain."""

    def __init__(self, *events: Event) -> None:
        self._events = chain(events, START)

    def numbers(self, _since: object) -> range:
        return range(1, 2)

    def newest(self, _since: object) -> Iterator[int]:
        return iter([1])

    def batches(self, _numbers: object) -> Sequence[Batch]:
        return [Batch(1, self._events)]


@pytest.fixture
def call(command_environment: dict[str, str | None]) -> Call:
    """Run `nextfire audit …` without a local stack and without a region."""
    command_environment["NEXTFIRE_ENDPOINT"] = None

    def run(*args: str, **changes: str | None) -> Result:
        return CliRunner().invoke(app, ["audit", *args], env=command_environment | changes)

    return run


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put events into the bucket of the stack."""

    def put(*events: Event) -> None:
        found: Any = Bucket(*events)
        monkeypatch.setattr(Account, "outputs", lambda *_: {"AuditBucket": "audit"})
        monkeypatch.setattr(Account, "audit_bucket", lambda *_: found)

    return put


@pytest.mark.parametrize("command", ["verify", "list"])
def test_without_a_stack_and_a_region_it_names_both_remedies(call: Call, command: str) -> None:
    result = call(command)

    assert result.exit_code == 1
    assert "No local stack is up here" in result.stderr
    for text in ("nextfire up", "--stack Nextfire", "--region", "AWS_REGION"):
        assert text in result.stderr


@pytest.mark.parametrize("command", ["verify", "list"])
def test_a_named_stack_without_a_region_is_an_error(call: Call, command: str) -> None:
    result = call(command, "--stack", "Mine")

    assert result.exit_code == 1
    assert "No AWS region is given for the stack 'Mine'" in result.stderr
    assert "--stack Mine --region" in result.stderr


@pytest.mark.parametrize("expect", ["abc", "", HASH[:-1], HASH + "0", HASH.upper(), "g" * 64])
def test_a_malformed_hash_is_wrong_usage(
    call: Call, holds: Callable[..., None], expect: str
) -> None:
    holds(event(tenant="acme", job_id="nightly"))

    result = call("verify", "--expect", expect, AWS_REGION="eu-west-1")

    assert result.exit_code == 2
    assert "--expect" in result.stderr
    assert "64 digits" in result.stderr
    assert "broken" not in result.output


@pytest.mark.parametrize("command", ["verify", "list"])
def test_an_instant_without_an_offset_is_in_utc(
    call: Call, holds: Callable[..., None], command: str
) -> None:
    holds(event(tenant="acme", job_id="nightly"))

    result = call(command, "--since", "2026-05-24", AWS_REGION="eu-west-1")

    assert result.exit_code == 0, result.output
    assert "2026-05-24T10:00:04.120Z" in result.stdout or "acme/nightly" in result.stdout


def test_a_hash_that_no_event_has_is_a_broken_chain(call: Call, holds: Callable[..., None]) -> None:
    holds(event(tenant="acme", job_id="nightly"))

    result = call("verify", "--expect", HASH, AWS_REGION="eu-west-1")

    assert result.exit_code == 1
    assert f"no event has the expected hash {HASH}" in result.stderr


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ({"job_id": "nightly", "tenant": "acme"}, "acme/nightly"),
        ({"tenant": "acme", "key_id": "3f9c"}, "acme/3f9c"),
        ({"run_id": "3f9c"}, "3f9c"),
        ({}, ""),
    ],
)
def test_list_prints_the_tenant_of_an_item_first(
    call: Call, holds: Callable[..., None], item: dict[str, str], shown: str
) -> None:
    holds(event(**item))

    result = call("list", AWS_REGION="eu-west-1")

    assert result.exit_code == 0, result.output
    [row] = [line for line in result.stdout.splitlines() if "changeJob" in line]
    assert row.split("jobs")[1].strip() == shown


def test_list_shows_what_was_refused_and_what_it_was_about(
    call: Call, holds: Callable[..., None]
) -> None:
    asked = {"tenant": "acme", "principal": "p", "operation": "deleteJob"}
    refused = asked | {"resource": {"jobId": "nightly"}, "status": 404}
    holds({"table": "requests", "item": {"request": "#note#3f9c"}, "by": refused})

    lines = call("list", AWS_REGION="eu-west-1").stdout.splitlines()

    assert lines[0].split()[-3:] == ["REFUSED", "TABLE", "ITEM"]
    assert lines[1].split()[-4:] == ["deleteJob", "404", "requests", "nightly"]


@pytest.mark.parametrize("command", ["list", "verify"])
@pytest.mark.parametrize("absent", ["recordedAt", "writtenAt", "table", "by"])
def test_an_event_of_another_version_is_shown_without_what_it_lacks(
    call: Call, holds: Callable[..., None], command: str, absent: str
) -> None:
    """Its hash is right, so it is part of the chain."""
    holds({name: value for name, value in event(job_id="nightly").items() if name != absent})

    for output in ((), ("--json",)):
        result = call(command, *output, AWS_REGION="eu-west-1")

        assert (result.exit_code, result.exception) == (0, None), result.output


def test_list_reads_the_newest_batches_only(
    call: Call, holds: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = chain([event(job_id=f"job{number}") for number in range(1, 7)], START)
    read: list[int] = []

    def batches(_bucket: Bucket, numbers: Sequence[int]) -> Iterator[Batch]:
        for number in numbers:
            read.append(number)
            yield Batch(number, events[2 * number - 2 : 2 * number])

    monkeypatch.setattr(Bucket, "newest", lambda *_: iter([3, 2, 1]))
    monkeypatch.setattr(Bucket, "batches", batches)
    holds()

    result = call("list", "--limit", "3", "--json", AWS_REGION="eu-west-1")

    assert [each["number"] for each in json.loads(result.stdout)["items"]] == [4, 5, 6]
    assert read == [3, 2]
    named = call("list", "--limit", "3", "-o", "name", AWS_REGION="eu-west-1")
    assert named.stdout.split() == ["4", "5", "6"]


class Listed:
    """S3 with a chain of six batches, one an hour until 06:00, two on each page of its list."""

    def __init__(self) -> None:
        self.pages = 0
        self.read: list[str] = []

    def get_paginator(self, name: str) -> Listed:
        assert name == "list_object_versions"
        return self

    def paginate(self, **_: str) -> Iterator[dict[str, Any]]:
        for newest in (6, 4, 2):
            self.pages += 1
            yield {
                "Versions": [
                    {"Key": key_of(number), "LastModified": hour(number)}
                    for number in (newest, newest - 1)
                ]
            }

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 — boto3's
        assert Bucket == "audit"
        self.read.append(Key)
        number = number_of(Key)
        body = json.dumps({"batch": number, "events": [event(job_id=f"job{number}")]})
        return {"Body": BytesIO(body.encode())}


def hour(number: int) -> datetime:
    return datetime(2026, 5, 24, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "numbers", "pages"),
    [
        (hour(6), [6], 1),
        (hour(5), [6, 5], 2),
        (hour(4), [6, 5, 4], 2),
        (None, [*range(6, 0, -1)], 3),
    ],
)
def test_the_newest_batches_are_listed_as_far_as_needed(
    since: datetime | None, numbers: list[int], pages: int
) -> None:
    s3 = Listed()

    assert [*AuditBucket(cast("Any", s3), "audit").newest(since)] == numbers
    assert s3.pages == pages


def test_batches_are_listed_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_bucket, "_CONCURRENT_READS", 2)
    s3 = Listed()
    bucket = AuditBucket(cast("Any", s3), "audit")

    first = next(bucket.batches(bucket.newest(None)))

    assert first.number == 6
    assert (s3.pages, sorted(map(number_of, s3.read))) == (1, [5, 6])


class Long:
    """S3 with a chain of 200,000 batches, as `list_object_versions` lists them."""

    def get_paginator(self, _name: str) -> Long:
        return self

    def paginate(self, **_: str) -> Iterator[dict[str, Any]]:
        for newest in range(200_000, 0, -1000):
            yield {
                "Versions": [
                    {"Key": key_of(number), "LastModified": hour(1) if number > 1000 else hour(0)}
                    for number in range(newest, newest - 1000, -1)
                ]
            }


def test_the_list_of_a_long_chain_takes_no_more_memory() -> None:
    bucket = AuditBucket(cast("Any", Long()), "audit")
    tracemalloc.start()
    try:
        numbers = bucket.numbers(hour(1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert numbers == range(1001, 200_001)
    assert peak < 2_000_000
