"""From a request to an audit event on moto: one write makes a change and its event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError  # noqa: TID251 — what the SDK raises

from functions.api import audit_trail as api_trail
from functions.api import handler as api_handler
from functions.api.audit_trail import RejectionBudget
from functions.auditlog import handler as audit_log
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.change_stream import changes_of
from nextfire.adapters.s3.audit_log import S3AuditLog
from nextfire.domain.chain import START, Batch, Event, chain, verify
from nextfire.domain.errors import UnavailableError
from nextfire.domain.message import RunMessage
from nextfire.usecases.record_changes import RecordChanges
from nextfire_cli.audit_bucket import AuditBucket
from tests.builders import claim_run
from tests.integration.deployment import TENANT, Context, Deployment, Proxy, http_event, identity
from tests.integration.isolation import KEY, OPERATIONS, OWNER, Owner, caller, prepare
from tests.integration.streams import Streams, record
from tests.integration.test_api_audit import changes

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NOW = SystemClock().now()
JOB = {"jobId": "a", "type": "MANUAL", "target": {"handler": "hello"}, "payload": {"pin": "s3cret"}}
AUDITED = {"jobs", "runs", "keys"}


class Trail:
    """The streams of the system, and the chain written from them."""

    def __init__(self, system: Deployment, s3: S3Client) -> None:
        self._streams = Streams(system)
        self._s3 = s3
        self._bucket = system.outputs_bucket

    def log(self, client: Any = None) -> S3AuditLog:
        """The chain as seen by another process, through *client*."""
        return S3AuditLog(client or self._s3, bucket=self._bucket)

    def records(self) -> list[dict[str, Any]]:
        """The stream records since the last call."""
        return self._streams.records(NOW)

    def deliver(self, records: list[dict[str, Any]] | None = None, client: Any = None) -> int:
        """Append *records* as the function does, in another process. Returns the number of new
        events.
        """
        found = changes_of(self.records() if records is None else records, {})
        return RecordChanges(self.log(client), SystemClock()).record(found)

    def events(self) -> list[Event]:
        """All events, verified."""
        bucket = AuditBucket(self._s3, self._bucket)
        batches = [*bucket.batches(bucket.numbers(None))]
        verify(batches)
        return [event for batch in batches for event in batch.events]


@pytest.fixture
def trail(system: Deployment, s3: S3Client) -> Trail:
    return Trail(system, s3)


def test_the_function_appends_what_a_stream_delivers(
    system: Deployment, trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, audit_bucket=system.outputs_bucket)
    audit_log.settings.cache_clear()
    audit_log.record_changes.cache_clear()
    system.call("POST", "/v1/jobs", JOB)
    records = trail.records()

    answer = audit_log.handler({"Records": records}, Context())

    assert answer == {"records": len(records), "events": 1}
    [event] = trail.events()
    assert event["table"] == "jobs"


@pytest.mark.parametrize(
    ("stamp", "unreadable"),
    [
        ("[" * 100_000, "[" * 300),
        (r'{"a":"\ud800"}', r'{"a":"\ud800"}'),
        ("\ud800", "?"),
        ('{"tenant":"' + "a" * 10_000 + '"}', '{"tenant":"' + "a" * 289),
    ],
    ids=["deep", "surrogate", "bare surrogate", "long"],
)
def test_a_stamp_that_cannot_be_read_is_an_event_and_stops_no_stream(
    system: Deployment,
    trail: Trail,
    monkeypatch: pytest.MonkeyPatch,
    stamp: str,
    unreadable: str,
) -> None:
    system.configure(monkeypatch, audit_bucket=system.outputs_bucket)
    audit_log.settings.cache_clear()
    audit_log.record_changes.cache_clear()
    item = {"tenant": {"S": TENANT}, "job_id": {"S": "a"}, "changed_by": {"S": stamp}}
    written = record("jobs", None, item, event_id="1", at=NOW.timestamp())
    system.call("POST", "/v1/jobs", JOB | {"jobId": "b"})

    records = [written, *trail.records()]
    audit_log.handler({"Records": records}, Context())

    first, second = trail.events()
    assert first["by"] == {"unreadable": unreadable}
    assert second["by"]["operation"] == "createJob"


@pytest.mark.parametrize("name", [each for each in OPERATIONS if changes(each)])
def test_every_change_of_a_job_run_or_key_says_who_made_it(
    system: Deployment, trail: Trail, name: str
) -> None:
    owner = Owner(system)
    prepare(owner, name)
    ids = owner.ids_for(name)
    trail.records()

    assert caller(owner, name)(ids, OWNER, headers=KEY).status < 300
    records = trail.records()

    written = [
        each
        for each in records
        if each["eventSourceARN"].split("/")[1] in AUDITED
        and each["eventName"] != "REMOVE"
        and not each["dynamodb"]["Keys"].get("tenant", {"S": ""})["S"].startswith("#")
    ]
    for each in written:
        assert "changed_by" in each["dynamodb"]["NewImage"], each
    appended = trail.deliver(records)
    assert appended >= max(1, len(written))
    for event in trail.events():
        assert (event["by"]["tenant"], event["by"]["operation"]) == (OWNER, name)
        assert event["by"]["principal"] == f"arn:aws:iam::{OWNER}:user/u"
        assert (event["by"]["requestId"], event["by"]["sourceIp"]) == ("request-1", "192.0.2.1")


def test_a_process_that_dies_right_after_the_write_leaves_the_event(
    system: Deployment, trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log line of the function is lost, but the event in the chain is not."""

    def die(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(api_handler, "audit", die)
    event = http_event("POST", "/v1/jobs", json.dumps(JOB), authorizer=identity(TENANT))
    with pytest.raises(SystemExit):
        system.answer(event)

    assert trail.deliver() == 1
    [found] = trail.events()
    assert found["item"] == {"tenant": TENANT, "job_id": "a"}
    assert (found["kind"], found["by"]["operation"]) == ("INSERT", "createJob")


def test_events_name_what_changed_and_hold_no_values(system: Deployment, trail: Trail) -> None:
    system.call("POST", "/v1/jobs", JOB)
    system.call("POST", "/v1/keys", {"name": "ci", "scopes": ["read"]})
    trail.deliver()
    system.call("PATCH", "/v1/jobs/a", {"payload": {"pin": "s3cret2"}})
    trail.deliver()

    *_, changed = trail.events()
    assert changed["attributes"] == ["defined_in", "payload", "revision", "updated_at"]
    assert "s3cret" not in json.dumps(trail.events())
    assert "ci" not in json.dumps([event["attributes"] for event in trail.events()])


def test_a_refused_request_and_an_upload_are_events(system: Deployment, trail: Trail) -> None:
    system.call("DELETE", "/v1/jobs/missing")
    upload = {"pool": "default", "handler": "hello", "size": 1, "sha256": "0" * 64}
    system.call("POST", "/v1/scripts/uploads", upload)

    assert trail.deliver() == 2
    by = {event["by"]["operation"]: event["by"] for event in trail.events()}
    assert by["deleteJob"]["status"] == 404
    assert by["deleteJob"]["resource"] == {"jobId": "missing"}
    assert by["uploadScript"]["resource"] == {"pool": "default", "handler": "hello"}
    assert "https" not in json.dumps(by)


def test_refusals_beyond_a_rate_are_counted_in_the_next_event(
    system: Deployment,
    trail: Trail,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A read-only key cannot fill the chain with its rejected requests."""
    seconds = [0.0]
    budget = RejectionBudget(lambda: seconds[0])
    monkeypatch.setattr(api_trail, "rejection_budget", lambda _: budget)

    for _ in range(50):
        system.call("DELETE", "/v1/jobs/missing")
    assert trail.deliver() == 20
    seconds[0] = 0.9
    system.call("DELETE", "/v1/jobs/missing")
    assert trail.deliver() == 0
    seconds[0] = 2.0
    for _ in range(3):
        system.call("DELETE", "/v1/jobs/missing")
    assert trail.deliver() == 2

    omitted = [event["by"].get("omitted") for event in trail.events()]
    assert sorted(each for each in omitted if each) == [31]
    assert capsys.readouterr().out.count('"event":"audit"') == 54


def test_a_refusal_that_could_not_be_noted_is_counted() -> None:
    budget = RejectionBudget(lambda: 0.0)
    assert budget.take() == 0
    budget.add_omitted(1)
    assert [budget.take(), budget.take()] == [1, 0]


def test_requests_that_only_read_leave_none(system: Deployment, trail: Trail) -> None:
    system.call("POST", "/v1/jobs", JOB)
    trail.records()

    system.call("GET", "/v1/jobs/a")
    system.call("GET", "/v1/jobs/missing")

    assert trail.records() == []


def test_what_an_executor_writes_later_is_not_an_event(system: Deployment, trail: Trail) -> None:
    """The claim removes the attribute, so the filter of the stream drops all later writes."""
    system.upload("print(1)")
    system.call("POST", "/v1/jobs", JOB)
    run = system.call("POST", "/v1/jobs/a/run", {}).document
    assert trail.deliver() == 2

    job_id, _, run_id = run["executionId"].partition(".")
    claimed = claim_run(
        system.runs,
        RunMessage(tenant=TENANT, job_id=job_id, run_id=run_id, dispatch=1, dispatched_at=NOW),
        SystemClock().now(),
        lease_until=NOW,
    )
    assert claimed.taken
    [claim] = trail.records()
    assert "changed_by" not in claim["dynamodb"]["NewImage"]
    assert trail.deliver([claim]) == 0


def test_a_stale_changed_by_of_an_older_executor_is_not_an_event(trail: Trail) -> None:
    """An older version keeps the attribute when it writes the item."""
    by = {"S": '{"operation":"cancelExecution","n":1}'}
    old = {"job": {"S": "t/a"}, "run_id": {"S": "r"}, "changed_by": by, "fence": {"N": "1"}}
    streams = {"old": old, "new": old | {"fence": {"N": "2"}}}
    again = record("runs", streams["old"], streams["new"], event_id="1", at=NOW.timestamp())
    assert trail.deliver([again]) == 0


def test_a_batch_that_comes_twice_is_appended_once(system: Deployment, trail: Trail) -> None:
    system.call("POST", "/v1/jobs", JOB)
    records = trail.records()
    assert trail.deliver(records) == 1
    system.call("DELETE", "/v1/jobs/a")
    assert trail.deliver(records + trail.records()) == 1

    assert trail.deliver(records) == 0
    assert [event["number"] for event in trail.events()] == [1, 2]


def test_a_put_whose_answer_was_lost_is_not_repeated(
    system: Deployment, trail: Trail, s3: S3Client
) -> None:
    """As if the function died right after the put: Lambda delivers the batch again."""
    system.call("POST", "/v1/jobs", JOB)
    records = trail.records()

    def lose_the_answer(put: Any, request: dict[str, Any]) -> Any:
        put(**request)
        raise ReadTimeoutError(endpoint_url="s3")

    client = Proxy(s3)
    client.instead["put_object"] = lose_the_answer
    with pytest.raises(UnavailableError):
        trail.deliver(records, client)

    assert trail.deliver(records) == 0
    assert len(trail.events()) == 1


def test_two_writers_at_a_time_make_one_chain(
    system: Deployment, trail: Trail, s3: S3Client
) -> None:
    """Both know the same last batch; the second finds its number taken and appends after it."""
    system.call("POST", "/v1/jobs", JOB)
    first = trail.records()
    system.call("DELETE", "/v1/jobs/a")
    second = trail.records()

    def others_first(put: Any, request: dict[str, Any]) -> Any:
        others = trail.log()
        if others.last() is None:
            bodies = [each.body("2026-05-24T12:00:00Z") for each in changes_of(first, {})]
            assert others.append(Batch(1, chain(bodies, START)))
        return put(**request)

    client = Proxy(s3)
    client.instead["put_object"] = others_first
    assert trail.deliver(second, client) == 1
    assert [event["by"]["operation"] for event in trail.events()] == ["createJob", "deleteJob"]


def test_a_key_that_no_request_made_is_an_event(system: Deployment, trail: Trail) -> None:
    """A user with access to the table plants a key, extends one, or records a use."""
    item = {"tenant": {"S": "acme"}, "key_id": {"S": "planted"}, "hash": {"S": "0" * 64}}
    system.database.put_item(TableName=system.keys_table, Item=item)
    assert trail.deliver() == 1
    system.database.put_item(
        TableName=system.keys_table, Item=item | {"expires_at": {"S": "2036-01-01"}}
    )
    assert trail.deliver() == 1
    system.database.put_item(
        TableName=system.keys_table,
        Item=item | {"expires_at": {"S": "2036-01-01"}, "last_used_on": {"S": "2026-05-24"}},
    )
    assert trail.deliver() == 0

    planted, prolonged = trail.events()
    assert (planted["by"], planted["item"]["key_id"]) == (None, "planted")
    assert prolonged["attributes"] == ["expires_at"]
