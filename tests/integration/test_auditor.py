"""The auditor on moto: what it finds in the tables, what it writes, and where it continues."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — what the SDK raises

from functions.auditor import handler as auditor
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.items import from_item, to_item
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.instants import cut, floor_minute, isoformat
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from nextfire.usecases import audit as audit_jobs
from nextfire.usecases.audit_report import AuditReport
from nextfire.wiring import auditor as wiring
from tests.builders import claim_run
from tests.integration.deployment import SHARDS, TENANT, Context, Deployment, Proxy, message_for

MINUTE = timedelta(minutes=1)
IDLE = dict.fromkeys(
    (
        *("jobs", "restored", "resent", "covered", "revived", "completed"),
        *("waiting", "behind", "quarantined", "removed"),
    ),
    0,
)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_jobs, "RECHECK_AFTER", timedelta())


def audit(event: dict[str, Any] | None = None, context: Context | None = None) -> dict[str, Any]:
    """The answer of the handler, as Lambda passes it on."""
    answer: dict[str, Any] = json.loads(
        json.dumps(
            auditor.handler({"full": True} if event is None else event, context or Context())
        )
    )
    return answer


def entries(system: Deployment, job: Job) -> list[dict[str, Any]]:
    found = [from_item(item) for item in system.due_items()]
    return [item for item in found if item["uid"] == job.uid]


def lose_entries(system: Deployment, job: Job) -> None:
    for item in entries(system, job):
        key = to_item({name: item[name] for name in ("bucket", "entry")})
        system.database.delete_item(TableName=system.due_table, Key=key)


def owning_since(system: Deployment, job: Job, since: datetime) -> Job:
    """*job* as if it had been created at *since*."""
    system.database.update_item(
        TableName=system.jobs_table,
        Key=to_item({"tenant": TENANT, "job_id": job.key.job_id}),
        UpdateExpression="SET effective_from = :since",
        ExpressionAttributeValues=to_item({":since": isoformat(since)}),
    )
    return system.job(job.key.job_id)


def succeed(system: Deployment, job: Job, occurrence: datetime) -> None:
    claim = claim_run(system.runs, message_for(job, occurrence), occurrence)
    result = Result(AttemptOutcome.SUCCEEDED, "exit code 0", 0)
    system.runs.advance(claim.run, claim.run.ended(RunState.SUCCEEDED, result, occurrence))


def test_a_healthy_system_is_left_alone(system: Deployment) -> None:
    for n in range(3):
        system.register(jobId=f"job{n}", jitterSec=30 * n)
    before = system.due_items()

    assert audit() == IDLE | {"jobs": 3, "done": True}

    assert system.due_items() == before


def test_a_lost_entry_is_put_back_as_it_was(system: Deployment) -> None:
    job = system.register(schedule="0 0 1 1 *", jitterSec=600, maxRuns=3, priority="HIGH")
    system.register(schedule="0 0 1 1 *")
    before = entries(system, job)
    lose_entries(system, job)

    assert audit() == IDLE | {"jobs": 2, "restored": 1, "done": True}

    assert entries(system, job) == before
    assert audit() == IDLE | {"jobs": 2, "done": True}


def test_lost_runs_are_put_on_record_and_sent_through_the_due_table(system: Deployment) -> None:
    now = cut(SystemClock().now())
    job = system.register(
        schedule="*/5 * * * *", overlap="QUEUE", priority="LOW", retryPolicy={"maxAttempts": 1}
    )
    job = owning_since(system, job, now - timedelta(hours=1))
    first = job.next_after(job.effective_from)
    assert first is not None
    succeed(system, job, first)

    report = audit()

    assert report["resent"] == 1
    assert report["covered"] in {6, 7}
    [range_record] = [r for r in system.runs.between(job.key, "0", "9") if r.covered > 1]
    assert range_record.key.scheduled_at == first + 5 * MINUTE
    assert "lost, found by the audit" in (range_record.reason or "")
    [sent] = [entry for entry in entries(system, job) if entry["kind"] == "RETRY"]
    last = range_record.covers_until + 5 * MINUTE
    assert sent["run_id"] == message_for(job, last).run_id
    assert (sent["dispatch"], sent["pool"], sent["rank"], sent["exclusive"]) == (
        *(1, "default", 2),
        True,
    )
    report = audit()
    assert (report["resent"], report["covered"]) == (0, 0), "its entry is still in the table"


def test_what_may_be_in_the_queue_is_not_lost(system: Deployment) -> None:
    now = cut(SystemClock().now())
    job = owning_since(system, system.register(schedule="*/5 * * * *"), now - timedelta(hours=1))
    system.send("something", group="g", dedup="d")

    report = audit()

    assert (report["resent"], report["covered"]) == (0, 0)
    assert report["waiting"] in {8, 9}
    assert not [*system.runs.between(job.key, "0", "9")]


def test_a_run_without_worker_is_sent_under_the_next_number(system: Deployment) -> None:
    job = system.register(type="MANUAL", schedule=None)
    lapsed = floor_minute(SystemClock().now()) - 20 * MINUTE
    claim_run(system.runs, message_for(job, lapsed, dispatch=4), lapsed, worker="vanished")

    assert audit()["revived"] == 1

    [sent] = entries(system, job)
    assert (sent["kind"], sent["dispatch"]) == ("RETRY", 5)


def test_woken_too_early_it_reads_one_item(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.register()
    assert audit({})["jobs"] == 1
    proxy = Proxy(system.database)
    monkeypatch.setattr(wiring, "dynamodb", lambda: proxy)
    auditor._auditor.cache_clear()  # noqa: SLF001 — like a new process

    assert audit({}) == IDLE | {"done": True}
    assert [name for name, _ in proxy.calls] == ["get_item"]

    system.configure(monkeypatch, audit_every="PT0S")
    assert audit({})["jobs"] == 1


def test_an_audit_that_runs_out_of_time_continues_later(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_jobs, "PAGE", 2)
    for n in range(5):
        system.register(jobId=f"job{n}")
    control = DynamoDbControlStore(system.database, table=system.control_table)

    jobs, invocations, done = 0, 0, False
    while not done:
        report = audit({}, Context(remaining_ms=60_000))
        jobs, invocations, done = jobs + report["jobs"], invocations + 1, report["done"]
        stored = control.audit()
        assert stored is not None
        assert stored.done is done

    assert (jobs, invocations) == (5, 5)
    assert audit()["jobs"] == 5


def test_an_audit_that_is_overdue_is_an_error_of_the_function(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an alarm: auditor-errors."""
    monkeypatch.setattr(audit_jobs, "PAGE", 2)
    for n in range(3):
        system.register(jobId=f"job{n}")
    system.configure(monkeypatch, audit_every="PT0S")

    with pytest.raises(auditor.AuditOverdueError, match="auditSegments"):
        audit({}, Context(remaining_ms=60_000))

    assert audit({})["done"]


def test_segments_continue_their_parts_of_an_audit(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        system.register(jobId=f"job{n}")
    system.configure(monkeypatch, audit_segments="2")

    reports = [audit({"segment": segment}) for segment in (1, 0, 1)]

    assert [each["jobs"] for each in reports] == [5, 0, 0]
    assert all(each["done"] for each in reports)
    control = DynamoDbControlStore(system.database, table=system.control_table)
    audits = [control.audit(part) for part in (None, 1)]
    assert all(each is not None and each.done for each in audits)
    assert control.audit(0) is None


def test_an_ended_job_is_removed_after_its_retention(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = system.register(type="MANUAL", schedule=None)
    other = system.register(jobId="other", type="MANUAL", schedule=None)
    assert system.call("DELETE", f"/v1/jobs/{job.key.job_id}").status == 200
    assert audit() == IDLE | {"jobs": 2, "done": True}, "older executors do not set a retention"
    system.configure(monkeypatch, job_retention="PT0S")

    assert audit() == IDLE | {"jobs": 2, "removed": 1, "done": True}

    assert system.call("GET", f"/v1/jobs/{job.key.job_id}").status == 404
    assert system.job("other") == other


def test_a_table_that_throttles_is_come_back_to(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = system.register(schedule="0 0 1 1 *")
    lose_entries(system, job)
    proxy = Proxy(system.database)
    monkeypatch.setattr(wiring, "dynamodb", lambda: proxy)
    auditor._auditor.cache_clear()  # noqa: SLF001 — like a new process

    def refuse(_real: object, _request: object) -> None:
        answer: Any = {"Error": {"Code": "ThrottlingException", "Message": ""}}
        raise ClientError(answer, "Operation")

    for operation in ("scan", "batch_get_item", "query"):
        proxy.instead = {operation: refuse}
        assert audit({}) == IDLE | {"done": False}, operation

    proxy.instead = {}
    assert audit({}) == IDLE | {"jobs": 1, "restored": 1, "done": True}


def test_shards_that_no_one_has_come_to_are_not_judged(system: Deployment) -> None:
    job = system.register(schedule="0 0 1 1 *")
    lose_entries(system, job)
    control = DynamoDbControlStore(system.database, table=system.control_table)
    behind = floor_minute(SystemClock().now()) - timedelta(hours=1)
    control.move_cursor(job.key.shard(SHARDS), behind, epoch=1)

    assert audit() == IDLE | {"jobs": 1, "behind": 1, "done": True}

    assert entries(system, job) == []


def test_notes_are_logged_page_by_page_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of undecodable items would not fit into the function's memory."""
    total = AuditReport()
    pages = [AuditReport(jobs=100, quarantined=100, notes=["broken"] * 100) for _ in range(3)]
    monkeypatch.setattr(auditor, "AuditReport", lambda: total)
    monkeypatch.setattr(auditor, "_auditor", lambda: lambda *_: iter(pages))

    counts = audit()

    assert (counts["jobs"], counts["quarantined"]) == (300, 300)
    assert not total.notes
