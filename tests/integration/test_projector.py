"""From a run to the overview of the API: the stream's records, the function, the answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from functions.projector import handler as projector
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.run_stream import steps_in
from nextfire.domain.errors import UnavailableError
from nextfire.domain.run import RunState
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.wiring import projector as projector_wiring
from tests.integration.deployment import OTHER_TENANT, Context, Deployment
from tests.integration.streams import Streams, record

NOW = SystemClock().now()
MANUAL = {"type": "MANUAL", "target": {"handler": "hello"}}


class Feed:
    """The function, and the stream that feeds it."""

    def __init__(self, system: Deployment) -> None:
        self.system = system
        self._streams = Streams(system)

    def records(self) -> list[dict[str, Any]]:
        """The records of the stream of the runs since the last call."""
        found = self._streams.records(SystemClock().now())
        return [each for each in found if each["eventSourceARN"].split("/")[1] == "runs"]

    def deliver(self, records: list[dict[str, Any]] | None = None) -> list[dict[str, str]]:
        records = self.records() if records is None else records
        answer = projector.handler({"Records": records}, Context())
        failures: list[dict[str, str]] = answer["batchItemFailures"]
        return failures

    def runs(self, **query: str) -> dict[str, Any]:
        answer = self.system.call("GET", "/v1/executions", query=query)
        assert answer.status == 200, answer.document
        return answer.document

    def start(self, job_id: str) -> str:
        """Request a run of the job. Returns the execution's id."""
        answer = self.system.call("POST", f"/v1/jobs/{job_id}/run", {})
        assert answer.status == 201, answer.document
        return str(answer.document["executionId"])


@pytest.fixture
def feed(system: Deployment) -> Feed:
    projector._project_runs.cache_clear()  # noqa: SLF001 — like a new process
    projector._complete_begun.cache_clear()  # noqa: SLF001
    for job_id in "cab":
        system.call("POST", "/v1/jobs", MANUAL | {"jobId": job_id})
    return Feed(system)


def ids(page: dict[str, Any]) -> list[str]:
    return [each["jobId"] for each in page["items"]]


def test_executions_of_all_jobs_are_listed_latest_first(feed: Feed) -> None:
    for job_id in "cab":
        feed.start(job_id)
    assert "overview" not in feed.runs(), "before the first batch, they are listed by job"
    assert ids(feed.runs()) == ["a", "b", "c"]
    assert feed.deliver() == []

    page = feed.runs()
    assert ids(page) == ["b", "a", "c"]
    assert page["overview"]["lagSec"] >= 0
    assert "asOf" in page["overview"]
    assert "beginsAt" not in page["overview"], "a new stack has no earlier runs"
    assert ids(feed.runs(state="PENDING", limit="2")) == ["b", "a"]
    assert ids(feed.runs(state="RUNNING")) == []


def test_pages_continue(feed: Feed) -> None:
    for job_id in "cab":
        feed.start(job_id)
    feed.deliver()
    first = feed.runs(limit="2")
    second = feed.runs(limit="2", cursor=first["cursor"])

    assert ids(first) + ids(second) == ["b", "a", "c"]
    assert "cursor" not in second
    refused = feed.system.call("GET", "/v1/executions", query={"cursor": "c."})
    assert refused.status == 422


def test_another_tenant_sees_nothing(feed: Feed) -> None:
    feed.start("a")
    feed.deliver()

    answer = feed.system.call("GET", "/v1/executions", tenant=OTHER_TENANT)
    assert answer.document["items"] == []


def test_the_executions_of_one_job_are_selected_by_schedule(feed: Feed) -> None:
    feed.start("a")
    feed.deliver()

    page = feed.runs(jobId="a")
    assert ids(page) == ["a"]
    assert "overview" not in page


def test_executions_are_counted(feed: Feed) -> None:
    none = feed.system.call("GET", "/v1/overview").document
    assert (none["running"], none["minutes"]) == (0, [])
    feed.start("a")
    cancelled = feed.start("b")
    assert feed.system.call("POST", f"/v1/executions/{cancelled}/cancel", {}).status == 200
    feed.deliver()

    counts = feed.system.call("GET", "/v1/overview", query={"minutes": "2"}).document
    assert (counts["running"], counts["pending"]) == (0, 1)
    assert [each["cancelled"] for each in counts["minutes"]] == [1]
    assert feed.system.call("GET", "/v1/overview", query={"minutes": "61"}).status == 422


def test_writes_that_are_not_a_step_are_left_out() -> None:
    item = {
        "job": {"S": "acme/a"},
        "run_id": {"S": "20260524T120000000Z-uid00001"},
        "state": {"S": "RUNNING"},
        "fence": {"N": "1"},
        "lease_until": {"N": "1"},
    }
    heartbeat = record("runs", item, item | {"lease_until": {"N": "2"}}, event_id="1", at=1.5)
    join = record(
        "runs", None, {"job": {"S": "a/b/c/join"}, "run_id": {"S": "0"}}, event_id="2", at=1.5
    )
    expired = record("runs", item, None, event_id="3", at=1.5)
    broken = record("runs", None, item | {"state": {"S": "?"}}, event_id="4", at=1.5)
    claim = record("runs", None, item, event_id="5", at=1.5)

    [seen], undecodable = steps_in([heartbeat, join, expired, broken, claim])
    assert (seen.id, seen.seen_ms, seen.tenant, seen.step.state) == (
        "5",
        1500,
        "acme",
        RunState.RUNNING,
    )
    assert undecodable == 1


def test_what_could_not_be_stored_is_delivered_again(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in "ab":
        feed.start(job_id)
    records = feed.records()

    def fail(*_: object) -> None:
        raise UnavailableError("throttled")

    with monkeypatch.context() as patch:
        patch.setattr(ProjectRuns, "_apply", fail)
        failures = feed.deliver(records)
    assert failures == [{"itemIdentifier": records[0]["dynamodb"]["SequenceNumber"]}]
    assert feed.deliver(records) == []
    assert len(feed.runs()["items"]) == 2


def test_a_rebuild_adds_the_records_that_no_stream_delivered(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of a large stack take too long to be added with the first batch."""
    feed.start("a")
    feed.records()  # lost
    feed.start("b")
    with monkeypatch.context() as patch:
        patch.setattr(projector, "rebuild_overview", Mock(side_effect=UnavailableError("busy")))
        assert feed.deliver() == []
    page = feed.runs()
    assert ids(page) == ["b"]
    assert "beginsAt" in page["overview"]

    done = projector.handler({"rebuild": {}}, Context())
    assert done == {"runs": 2, "undecodable": 0}
    page = feed.runs()
    assert ids(page) == ["b", "a"]
    assert "beginsAt" not in page["overview"]


def test_the_first_batch_of_a_small_stack_adds_what_was_not_delivered(feed: Feed) -> None:
    feed.start("a")
    feed.records()  # lost, as before an update that adds the projector
    feed.start("b")
    feed.deliver()

    page = feed.runs()
    assert ids(page) == ["b", "a"]
    assert "beginsAt" not in page["overview"]


def test_a_rebuild_that_has_no_time_left_says_how_to_continue(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in "abc":
        feed.start(job_id)
    client = feed.system.database
    paged = SimpleNamespace(
        scan=lambda **request: client.scan(**request, Limit=1),
        query=client.query,
        get_item=client.get_item,
        put_item=client.put_item,
        batch_get_item=client.batch_get_item,
        batch_write_item=client.batch_write_item,
    )
    monkeypatch.setattr(projector_wiring, "dynamodb", lambda: paged)
    event: dict[str, Any] = {"rebuild": {}}
    calls = 0
    while event:
        answer = projector.handler(event, Context(remaining_ms=0))
        event = answer.get("next", {})
        calls += 1

    assert calls >= 3
    assert ids(feed.runs()) == ["c", "b", "a"]
