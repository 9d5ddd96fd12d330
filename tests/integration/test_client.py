"""The client against the API's own handler; reads every field of every answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from nextfire import (
    Client,
    Conflict,
    Invalid,
    JobRequest,
    NotFound,
    PreconditionFailed,
    RateLimited,
)
from nextfire.client import operations
from nextfire.client.calls import LONGEST_WAIT
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.target import Target
from nextfire.responses.base import ApiResponse
from nextfire.responses.reading import field_types
from tests.integration.deployment import TENANT, Deployment, http_event, identity


class Handler(httpx2.BaseTransport):
    """The API's function behind a gateway that knows the caller."""

    def __init__(self, system: Deployment) -> None:
        self.system = system
        self.lose = 0
        """The number of answers to lose. Their requests are executed."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        event = http_event(
            request.method,
            request.url.path,
            request.read().decode() or None,
            query=dict(request.url.params),
            authorizer=identity(TENANT),
        )
        event["headers"] |= dict(request.headers)
        answer = self.system.answer(event)
        if self.lose:
            self.lose -= 1
            raise httpx2.ReadError("the line went dead", request=request)
        return httpx2.Response(
            answer.status, json=answer.document, headers=dict(answer.headers), request=request
        )


@pytest.fixture
def handler(system: Deployment) -> Handler:
    return Handler(system)


@pytest.fixture
def client(handler: Handler) -> Iterator[Client]:
    with Client(
        "https://api.example.com", auth=httpx2.Auth(), transport=handler, sleep=lambda _: None
    ) as client:
        yield client


REPORT: dict[str, Any] = {
    "jobId": "report",
    "type": "CRON",
    "schedule": "0 3 * * *",
    "target": {"handler": "report", "env": {"A": "b", "KEY": {"secret": "billing"}}},
}


def read(answer: object) -> None:
    """Read every field of *answer* recursively."""
    if isinstance(answer, list):
        for each in answer:
            read(each)
    if isinstance(answer, ApiResponse):
        for name in field_types(type(answer)):
            read(getattr(answer, name))


def test_the_life_of_a_job(client: Client) -> None:
    job = client.create_job(REPORT)
    read(job)
    assert (job.job_id, job.state, job.type) == ("report", JobState.ACTIVE, ScheduleType.CRON)
    assert client.create_job({**REPORT, "jobId": "other"}).job_id == "other"

    shown = client.get_job("report")
    read(shown)
    assert shown.etag == job.etag is not None
    assert [each.at.hour for each in shown.upcoming] == [3] * 5

    changed = client.change_job("report", {"priority": "HIGH"}, if_match=shown.etag)
    assert changed.priority == "HIGH"
    with pytest.raises(PreconditionFailed):
        client.change_job("report", {"priority": "LOW"}, if_match=shown.etag)
    with pytest.raises(PreconditionFailed):
        client.put_job("report", REPORT, if_none_match="*")
    assert client.put_job("report", REPORT, if_match=changed.etag).priority == "NORMAL"

    paused = client.pause_job("report", reason="the ledger is closed")
    read(paused)
    assert (paused.state, paused.pause_reason) == ("PAUSED", "the ledger is closed")
    assert client.resume_job("report", if_match=paused.etag).state is JobState.ACTIVE
    assert client.skip_next("report").skips == [shown.upcoming[0].at]
    assert client.undo_skip_next("report").skips is None
    assert len(client.list_upcoming("report", count=3).items) == 3

    assert [each.job_id for each in client.jobs()] == ["other", "report"]
    assert [each.job_id for each in client.jobs(state="ACTIVE", name="none")] == []
    assert client.delete_job("report").state is JobState.CANCELLED
    with pytest.raises(NotFound, match="report"):
        client.pause_job("report")


def test_a_run_on_request_and_its_execution(client: Client) -> None:
    client.create_job({"jobId": "m", "type": "MANUAL", "target": {"handler": "report"}})

    run = client.run_job("m", payload={"day": 1}, reason="by hand")
    read(run)
    assert (run.state, run.payload, run.request_reason) == (
        RunState.PENDING,
        {"day": 1},
        "by hand",
    )
    [listed] = client.executions("m")
    assert listed.execution_id == run.execution_id
    read(client.get_execution(run.execution_id))
    assert [*client.log(run.execution_id)] == []
    with pytest.raises(Conflict):
        client.redrive_execution(run.execution_id)
    assert client.cancel_execution(run.execution_id, reason="enough").state is RunState.CANCELLED
    assert [*client.all_executions(state="DEAD", pool="default")] == []
    assert [each.job_id for each in client.all_executions(job_id="m")] == ["m"]
    assert client.redrive_pool("default").redriven == []


def test_a_typed_job_is_taken_as_it_is(client: Client) -> None:
    job = client.create_job(
        JobRequest(
            job_id="typed",
            type=ScheduleType.INTERVAL,
            schedule="PT90M",
            target=Target(handler="report"),
            labels={"team": "billing"},
        )
    )

    assert (job.schedule, job.labels) == ("PT90M", {"team": "billing"})
    assert [each.job_id for each in client.jobs(label=["team:billing"])] == ["typed"]


def test_pages_are_gone_through_to_their_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "_PAGE", 3)
    for number in range(7):
        client.create_job({**REPORT, "jobId": f"job-{number}"})

    page = client.list_jobs(limit=3)
    again = client.list_jobs(limit=3, cursor=page.cursor)

    ids = [each.job_id for each in (*page.items, *again.items)]
    assert ids == [f"job-{number}" for number in range(6)]
    assert len([*client.jobs()]) == 7


def test_what_is_unreadable_is_shown_as_such(client: Client, system: Deployment) -> None:
    client.create_job(REPORT)
    key = {"tenant": {"S": TENANT}, "job_id": {"S": "report"}}
    system.database.update_item(
        TableName=system.jobs_table,
        Key=key,
        UpdateExpression="SET #state = :odd",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={":odd": {"S": "ODD"}},
    )

    [job] = client.jobs()

    assert (job.job_id, job.state) == ("report", "UNREADABLE")
    assert job.reason


def test_a_post_whose_answer_was_lost_is_done_once(client: Client, handler: Handler) -> None:
    handler.lose = 2

    job = client.create_job({"type": "MANUAL", "target": {"handler": "report"}})
    handler.lose = 1
    run = client.run_job(job.job_id)

    assert [each.job_id for each in client.jobs()] == [job.job_id]
    assert [each.execution_id for each in client.executions(job.job_id)] == [run.execution_id]


def test_a_refusal_names_its_fields(client: Client) -> None:
    with pytest.raises(Invalid) as refused:
        client.create_job({**REPORT, "timeout_sec": 5})

    [fault] = refused.value.errors
    assert (fault.field, fault.remedy) == ("timeout_sec", "Did you mean `timeoutSec`?")
    assert "Did you mean `timeoutSec`?" in refused.value.remedy


def test_a_quota_that_is_used_up_is_named_and_not_asked_for_in_vain(
    client: Client, system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, quotas=json.dumps({"default": {"jobs": 1}}))
    client.create_job(REPORT)

    with pytest.raises(RateLimited) as refused:
        client.create_job({**REPORT, "jobId": "other"})

    assert refused.value.quota == "jobs"
    assert refused.value.retry_after is not None
    assert refused.value.retry_after > LONGEST_WAIT
    answer = client.get_quotas()
    read(answer)
    assert (answer.quotas.jobs, answer.used.jobs, answer.weight) == (1, 1, 1)
    assert (answer.quotas.runs_per_minute, answer.used.runs_per_minute) == (None, None)


def test_previews_and_what_the_api_says_of_itself(client: Client) -> None:
    found = client.preview_schedule({"type": "CRON", "schedule": "0 9 * * MON", "count": 2})

    read(found)
    assert [each.at.weekday() for each in found.items] == [0, 0]
    read(client.get_health())
    assert client.get_description()["openapi"].startswith("3.1")
