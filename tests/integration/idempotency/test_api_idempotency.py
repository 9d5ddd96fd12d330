"""Repeated requests with the same `Idempotency-Key`."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from functions.api import idempotency
from functions.api import services as api
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.requests import REQUESTS_KEPT
from tests.fakes import Clock
from tests.integration.deployment import OTHER_TENANT, Answer, Deployment, Proxy
from tests.integration.idempotency.conftest import CRON, KEY, OTHER, jobs

NOW = parse_instant("2026-05-24T10:00:00Z")


class TestAgain:
    def test_it_finds_its_own_answer(self, system: Deployment) -> None:
        first = system.call("POST", "/v1/jobs", CRON, headers=KEY)
        system.call("PATCH", f"/v1/jobs/{first.document['jobId']}", {"name": "n"})

        again = system.call("POST", "/v1/jobs", CRON, headers={"idempotency-key": "k"})

        assert first.status == 201
        assert again == first
        assert len(jobs(system)) == 1

    def test_what_was_undone_since_is_not_done_again(self, system: Deployment) -> None:
        system.register(jobId="a")
        first = system.call("POST", "/v1/jobs/a/pause", {}, headers=KEY)
        system.call("POST", "/v1/jobs/a/resume")

        again = system.call("POST", "/v1/jobs/a/pause", {}, headers=KEY)

        assert again == first
        assert system.job("a").state is JobState.ACTIVE

    def test_under_either_prefix(self, system: Deployment) -> None:
        first = system.call("POST", "/v1/jobs", CRON, headers=KEY)

        assert system.call("POST", "/api/v1/jobs", CRON, headers=KEY) == first

    def test_another_request_under_the_same_key_is_refused(self, system: Deployment) -> None:
        system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}, headers=KEY)

        for path, body in (
            ("/v1/jobs", CRON | {"jobId": "a", "name": "n"}),
            ("/v1/jobs/a/pause", None),
        ):
            answer = system.call("POST", path, body, headers=KEY)
            assert (answer.status, answer.fault["field"]) == (422, "Idempotency-Key")
        assert system.job("a").revision == 1

    def test_another_condition_is_another_request(self, system: Deployment) -> None:
        etag = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).headers["etag"]
        pause = partial(system.call, "POST", "/v1/jobs/a/pause")
        first = pause(headers=KEY | {"If-Match": etag})

        again = pause(headers=KEY | {"If-Match": etag})
        other = pause(headers=KEY | {"If-Match": "no tag"})

        assert again == first
        assert (other.status, other.fault["field"]) == (422, "Idempotency-Key")

    def test_each_key_makes_its_own_job(self, system: Deployment) -> None:
        for key in ("a", "b", "A", "a#b", "~!x"):
            assert system.call("POST", "/v1/jobs", CRON, headers={"Idempotency-Key": key}).status

        assert len(jobs(system)) == 5

    def test_each_tenant_has_its_own_keys(self, system: Deployment) -> None:
        ours = system.call("POST", "/v1/jobs", CRON, headers=KEY)
        theirs = system.call("POST", "/v1/jobs", CRON, headers=KEY, tenant=OTHER_TENANT)

        assert theirs.status == 201
        assert theirs.document["jobId"] != ours.document["jobId"]
        assert (len(jobs(system)), len(jobs(system, OTHER_TENANT))) == (1, 1)

    def test_what_was_refused_is_tried_again(self, system: Deployment) -> None:
        system.register(jobId="a")
        body = CRON | {"jobId": "a"}
        assert system.call("POST", "/v1/jobs", body, headers=KEY).status == 409
        system.call("DELETE", "/v1/jobs/a")

        assert system.call("POST", "/v1/jobs", body, headers=KEY).status == 201

    def test_a_rejected_request_is_dated_when_it_is_accepted(
        self, system: Deployment, clock: Clock
    ) -> None:
        for job_id in ("a", "c"):
            system.register(**CRON | {"jobId": job_id})
        body = CRON | {"jobId": "a", "schedule": "* * * * *"}
        with_one = {"jobs": [body | {"jobId": "b"}, body | {"jobId": "c"}]}
        assert system.call("POST", "/v1/jobs", body, headers=KEY).status == 409
        assert system.call("POST", "/v1/jobs:batch", with_one, headers=OTHER).status == 200
        clock.advance(timedelta(minutes=30))
        system.call("DELETE", "/v1/jobs/a")
        system.call("DELETE", "/v1/jobs/c")
        clock.advance(timedelta(minutes=1))

        job = system.call("POST", "/v1/jobs", body, headers=KEY)
        batch = system.call("POST", "/v1/jobs:batch", with_one, headers=OTHER)

        assert job.document["createdAt"] == "2026-05-24T10:31:00Z"
        existing, new = (result["job"]["createdAt"] for result in batch.document["results"])
        assert existing == "2026-05-24T10:00:00Z", "the stored job is returned"
        assert new == "2026-05-24T10:31:00Z"

    def test_an_unreadable_body_does_not_use_up_its_key(self, system: Deployment) -> None:
        assert system.call("POST", "/v1/jobs", CRON | {"type": "X"}, headers=KEY).status == 422

        assert system.call("POST", "/v1/jobs", CRON, headers=KEY).status == 201

    @pytest.mark.parametrize("key", ["", "x" * 129, "a b", "é", "\t"])
    def test_no_key(self, system: Deployment, key: str) -> None:
        answer = system.call("POST", "/v1/jobs", CRON, headers={"Idempotency-Key": key})

        assert (answer.status, answer.fault["field"]) == (422, "Idempotency-Key")
        assert jobs(system) == []

    def test_key_identifies_its_request_for_a_day(self, system: Deployment, clock: Clock) -> None:
        first = system.call("POST", "/v1/jobs", CRON, headers=KEY).document["jobId"]

        clock.advance(REQUESTS_KEPT - timedelta(seconds=1))
        assert system.call("POST", "/v1/jobs", CRON, headers=KEY).document["jobId"] == first
        clock.advance(timedelta(seconds=1))
        other = system.call("POST", "/v1/jobs", CRON | {"name": "n"}, headers=KEY)

        assert other.status == 201
        assert other.document["jobId"] != first

    def test_it_costs_nothing_without_a_key(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy(system.database)
        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
        api.own_services.cache_clear()

        system.call("POST", "/v1/jobs", CRON)
        system.call("GET", "/v1/jobs", headers=KEY)
        system.call("PUT", "/v1/jobs/a", CRON, headers=KEY)

        assert not [r for _, r in proxy.calls if r.get("TableName") == system.requests_table]

    def test_answer_that_is_too_large_to_keep(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idempotency, "MAX_STORED_RESPONSE_BYTES", 10)
        first = system.call("POST", "/v1/jobs", CRON, headers=KEY)

        again = system.call("POST", "/v1/jobs", CRON, headers=KEY)

        assert (again.status, again.document) == (first.status, first.document)
        assert len(jobs(system)) == 1


class TestTogether:
    def test_two_hundred_requests_with_one_key_make_one_job(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send = partial(system.call, "POST", "/v1/jobs", CRON, headers=KEY)

        answers: list[Answer] = system.side_by_side(monkeypatch, *[send] * 200)

        assert answers[0].status == 201
        assert all(answer == answers[0] for answer in answers)
        assert len(jobs(system)) == 1
        assert len(system.due_items()) == 1


class TestStore:
    """`RequestStore`."""

    @pytest.fixture
    def store(self, system: Deployment) -> DynamoDbRequestStore:
        return DynamoDbRequestStore(system.database, table=system.requests_table)

    def test_the_first_answer_stays(self, store: DynamoDbRequestStore) -> None:
        at = parse_instant("2026-05-24T10:00:00Z")
        assert store.begin("t", "k", "f", at) is None

        assert store.finish("t", "k", at, "one") == "one"
        assert store.finish("t", "k", at, "two") == "one"

        kept = store.begin("t", "k", "g", at + timedelta(hours=1))
        assert kept is not None
        assert (kept.fingerprint, kept.at, kept.answer) == ("f", at, "one")

    def test_a_late_answer_to_a_restarted_request_is_not_stored(
        self, store: DynamoDbRequestStore
    ) -> None:
        at = parse_instant("2026-05-24T10:00:00Z")
        store.begin("t", "k", "f", at)
        assert store.begin("t", "k", "g", at + REQUESTS_KEPT) is None

        assert store.finish("t", "k", at, "late") == "late"

        kept = store.begin("t", "k", "g", at + REQUESTS_KEPT)
        assert kept is not None
        assert kept.answer is None

    def test_item_removes_itself(self, system: Deployment, store: DynamoDbRequestStore) -> None:
        at = parse_instant("2026-05-24T10:00:00Z")
        store.begin("t", "k", "f", at)

        [item] = system.database.scan(TableName=system.requests_table)["Items"]

        assert int(item["expires_at"]["N"]) == int((at + REQUESTS_KEPT).timestamp())
        assert item["at"]["S"] == isoformat(at)
