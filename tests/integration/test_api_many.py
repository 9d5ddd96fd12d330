"""Bulk operations on jobs: batches, and all jobs with some labels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from functions.api.routes.many_jobs import MAX_BATCH_JOBS
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import isoformat
from nextfire.domain.occurrences import JobState
from nextfire.usecases import many_jobs
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}
SHORT = {"taskId": "short", "cron": "0 3 * * *", "params": {"a": 1}}
KEY = {"Idempotency-Key": "k"}


def batch(system: Deployment, *jobs: object, **more: Any) -> list[dict[str, Any]]:
    answer = system.call("POST", "/v1/jobs:batch", {"jobs": jobs}, **more)
    assert answer.status == 200, answer.document
    assert len(answer.document["results"]) == len(jobs)
    return [*answer.document["results"]]


def ids(system: Deployment, tenant: str = TENANT, **query: str) -> list[str]:
    items = system.call("GET", "/v1/jobs", query={"limit": "100", **query}, tenant=tenant)
    return [job["jobId"] for job in items.document["items"]]


class TestBatch:
    def test_each_job_is_stored_as_by_itself(self, system: Deployment) -> None:
        results = batch(system, CRON | {"jobId": "b"}, SHORT, CRON)

        assert [result["status"] for result in results] == [201, 201, 201]
        assert [result["job"]["jobId"] for result in results[:2]] == ["b", "short"]
        for result in results:
            job = result["job"]
            stored = system.call("GET", f"/v1/jobs/{job['jobId']}").document
            assert stored.items() >= job.items()

    def test_parents_are_created_before_their_children(self, system: Deployment) -> None:
        def child(name: str, parent: str) -> dict[str, Any]:
            after = [{"job": parent}]
            return {"jobId": name, "type": "AFTER", "after": after, "target": CRON["target"]}

        jobs = [child("c", "b"), child("b", "a"), {**CRON, "jobId": "a"}, child("d", "d")]

        results = batch(system, *jobs)

        assert [each["status"] for each in results] == [201, 201, 201, 422]
        assert [each["job"]["jobId"] for each in results[:3]] == ["c", "b", "a"]

    def test_invalid_jobs_do_not_affect_the_others(self, system: Deployment) -> None:
        system.register(jobId="taken")
        results = batch(
            system,
            CRON | {"jobId": "a"},
            CRON | {"timeout_sec": 60},
            CRON | {"jobId": "taken"},
            SHORT | {"cron": "never"},
            CRON | {"target": {"handler": "x", "pool": "nowhere"}},
            5,
            CRON | {"jobId": "a"},
            CRON | {"jobId": "z"},
            {"taskId": "a", "cron": "0 3 * * *", "type": "CRON"},
        )

        assert [result["status"] for result in results] == [
            *(201, 422, 409, 422, 422, 422, 422, 201, 422),
        ]
        problems = [result["problem"] for result in results if "problem" in result]
        fields = [error["field"] for each in problems for error in each.get("errors", [])]
        assert fields == [
            *("jobs[1].timeout_sec", "jobs[3].cron", "jobs[4].target.pool", "jobs[5]"),
            *("jobs[6].jobId", "jobs[8].type"),
        ]
        assert problems[0]["errors"][0]["remedy"] == "Did you mean `timeoutSec`?"
        assert "jobs[1].timeout_sec" in problems[0]["detail"]
        assert ids(system) == ["a", "taken", "z"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "jobs"),
            ({"jobs": []}, "jobs"),
            ({"jobs": {}}, "jobs"),
            ({"jobs": [CRON] * (MAX_BATCH_JOBS + 1)}, "jobs"),
            ({"jobs": [CRON], "job": 1}, "job"),
            ({"jobs": [CRON | {"payload": "x" * 300_000}]}, "body"),
        ],
    )
    def test_refusals(self, system: Deployment, body: object, field: str) -> None:
        answer = system.call("POST", "/v1/jobs:batch", body)

        assert (answer.status, answer.fault["field"]) == (422, field)
        assert ids(system) == []

    def test_as_many_as_may_be(self, system: Deployment) -> None:
        made = {each["job"]["jobId"] for each in batch(system, *[CRON] * MAX_BATCH_JOBS)}

        assert (len(made), {*ids(system)}) == (MAX_BATCH_JOBS, made)

    def test_a_batch_that_comes_again_finds_what_it_made(self, system: Deployment) -> None:
        first = batch(system, CRON, CRON | {"jobId": "a"}, headers=KEY)
        system.call("PATCH", "/v1/jobs/a", {"name": "n"})

        assert batch(system, CRON, CRON | {"jobId": "a"}, headers=KEY) == first
        assert len(ids(system)) == 2

    def test_what_failed_is_tried_again_and_what_did_not_is_not_made_twice(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DynamoDbJobStore.create

        def refuse(self: DynamoDbJobStore, job: Any, *args: Any, **more: Any) -> Any:
            if job.key.job_id == "b":
                raise UnavailableError("not now")
            return store(self, job, *args, **more)

        jobs = [CRON, CRON | {"jobId": "a"}, CRON | {"jobId": "b"}]
        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbJobStore, "create", refuse)
            first = batch(system, *jobs, headers=KEY)
        again = batch(system, *jobs, headers=KEY)

        assert [result["status"] for result in first] == [201, 201, 503]
        assert [result["status"] for result in again] == [201, 201, 201]
        assert again[0]["job"]["jobId"] == first[0]["job"]["jobId"]
        assert len(ids(system)) == 3

    def test_a_defect_concerns_its_own_alone(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DynamoDbJobStore.create

        def fail(self: DynamoDbJobStore, job: Any, *args: Any, **more: Any) -> Any:
            if job.key.job_id == "a":
                raise ZeroDivisionError("secret")
            return store(self, job, *args, **more)

        monkeypatch.setattr(DynamoDbJobStore, "create", fail)
        results = batch(system, CRON | {"jobId": "a"}, CRON | {"jobId": "b"})

        assert [result["status"] for result in results] == [500, 201]
        assert "secret" not in str(results)

    def test_each_tenant_has_its_own(self, system: Deployment) -> None:
        ours = batch(system, CRON, CRON | {"jobId": "a"}, headers=KEY)
        theirs = batch(system, CRON, CRON | {"jobId": "a"}, headers=KEY, tenant=OTHER_TENANT)

        assert [result["status"] for result in theirs] == [201, 201]
        assert ours[0]["job"]["jobId"] != theirs[0]["job"]["jobId"]
        assert len(ids(system)) == len(ids(system, OTHER_TENANT)) == 2

    def test_under_the_other_prefix_and_by_its_encoded_name(self, system: Deployment) -> None:
        assert system.call("POST", "/api/v1/jobs:batch", {"jobs": [CRON]}).status == 200
        assert system.call("GET", "/v1/jobs:batch").status == 405


def act(system: Deployment, what: str, labels: object, **more: Any) -> dict[str, Any]:
    """Repeat the call until it is complete, each time with the cursor of the previous answer."""
    tenant = more.pop("tenant", TENANT)
    done: dict[str, Any] = {"matched": 0, "changed": 0, "failed": [], "calls": 0}
    body = {"labels": labels, **more}
    while True:
        answer = system.call("POST", f"/v1/jobs:{what}", body, tenant=tenant)
        assert answer.status == 200, answer.document
        for name in ("matched", "changed", "failed"):
            done[name] += answer.document[name]
        done["calls"] += 1
        if "progressToken" not in answer.document:
            return done
        body["progressToken"] = answer.document["progressToken"]


@pytest.fixture
def etl(system: Deployment) -> None:
    """Jobs a to e of the team etl, one of them in test; f of another; and another tenant's."""
    for job_id in "abcde":
        env = "test" if job_id == "c" else "prod"
        system.register(jobId=job_id, labels={"team": "etl", "env": env})
    system.register(jobId="f", labels={"team": "web"})
    theirs = CRON | {"jobId": "a", "labels": {"team": "etl"}}
    assert system.call("POST", "/v1/jobs", theirs, tenant=OTHER_TENANT).status == 201


@pytest.mark.usefixtures("etl")
class TestByLabel:
    def test_pause_and_resume(self, system: Deployment) -> None:
        done = act(system, "pause", {"team": "etl"}, reason="why")
        assert (done["matched"], done["changed"], done["failed"]) == (5, 5, [])
        assert ids(system, state="PAUSED") == [*"abcde"]
        assert system.job("a").pause_reason == "why"
        assert system.job("a").paused_by == f"arn:aws:iam::{TENANT}:user/u"

        again = act(system, "pause", {"team": "etl"}, reason="other")
        assert (again["matched"], again["changed"]) == (5, 0)
        assert system.job("a").pause_reason == "why"

        assert act(system, "resume", {"team": "etl", "env": "prod"})["changed"] == 4
        assert ids(system, state="PAUSED") == ["c"]
        rest = act(system, "resume", {"team": "etl"})
        assert (rest["matched"], rest["changed"]) == (5, 1)

    def test_pause_until(self, system: Deployment) -> None:
        act(
            system,
            "pause",
            {"team": "web"},
            until=isoformat(SystemClock().now() + timedelta(days=1)),
        )

        assert system.job("f").resumes_at is not None

    def test_cancel(self, system: Deployment) -> None:
        done = act(system, "cancel", {"env": "prod"})

        assert (done["matched"], done["changed"], done["failed"]) == (4, 4, [])
        assert ids(system, state="CANCELLED") == [*"abde"]
        assert act(system, "cancel", {"env": "prod"})["matched"] == 0
        assert act(system, "pause", {"team": "etl"})["matched"] == 1

    def test_cancel_of_a_sequence(self, system: Deployment) -> None:
        """Parents before their children, by id, and one with a child without the label."""
        labels = {"pipeline": "etl"}
        batch(
            system,
            CRON | {"jobId": "p1", "labels": labels},
            *(
                {"jobId": f"p{n + 1}", "type": "AFTER", "after": [{"job": f"p{n}"}]}
                | {"target": CRON["target"], "labels": labels}
                for n in range(1, 5)
            ),
            CRON | {"jobId": "q1", "labels": labels},
            {"jobId": "q2", "type": "AFTER", "after": [{"job": "q1"}], "target": CRON["target"]},
        )

        done = act(system, "cancel", labels)

        assert (done["matched"], done["changed"]) == (6, 5)
        assert [each["jobId"] for each in done["failed"]] == ["q1"]
        assert system.job("p1").state is JobState.CANCELLED
        assert system.job("q2").state is JobState.ACTIVE

    @pytest.mark.parametrize("what", ["pause", "cancel"])
    def test_listing_of_a_moment_ago(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        """A query may return a state before the latest writes."""
        page = system.jobs.list(TENANT, cursor=None, limit=20)
        system.call("PATCH", "/v1/jobs/a", {"labels": {"team": "web"}})
        system.call("PATCH", "/v1/jobs/b", {"name": "still of the team"})
        system.call("DELETE", "/v1/jobs/c")
        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbJobStore, "list", lambda *_, **__: page)

            done = act(system, what, {"team": "etl"})

        assert (done["matched"], done["changed"], done["failed"]) == (3, 3, [])
        assert system.job("a").state is JobState.ACTIVE, "it no longer has the label"
        assert system.job("b").state is not JobState.ACTIVE

    def test_a_job_that_ends_meanwhile_is_not_changed(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page = system.jobs.list(TENANT, cursor=None, limit=20)
        system.call("PATCH", "/v1/jobs/a", {"name": "so that it is read again"})
        assert system.jobs.complete(system.job("a"), SystemClock().now())
        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbJobStore, "list", lambda *_, **__: page)

            done = act(system, "pause", {"team": "etl"})

        assert (done["matched"], done["changed"], done["failed"]) == (4, 4, [])

    def test_a_bounded_number_a_call(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(many_jobs, "TOGETHER", 1)
        monkeypatch.setattr(many_jobs, "PAGES_AT_MOST", 2)

        done = act(system, "pause", {"team": "etl"})

        assert (done["matched"], done["changed"]) == (5, 5)
        assert done["calls"] >= 3  # six jobs, two per call
        assert ids(system, state="PAUSED") == [*"abcde"]

    def test_a_job_that_cannot_be_changed_is_reported_and_does_not_affect_the_others(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DynamoDbJobStore.update

        def refuse(self: DynamoDbJobStore, job: Any, *args: Any, **more: Any) -> bool:
            if job.key.job_id == "b":
                raise UnavailableError("not now")
            return store(self, job, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbJobStore, "update", refuse)
            answer = system.call(
                "POST", "/v1/jobs:pause", {"labels": {"team": "etl"}}, headers=KEY
            ).document
        again = system.call("POST", "/v1/jobs:pause", {"labels": {"team": "etl"}}, headers=KEY)

        assert (answer["matched"], answer["changed"]) == (5, 4)
        [failed] = answer["failed"]
        assert (failed["jobId"], failed["problem"]["status"]) == ("b", 503)
        assert (again.document["changed"], again.document["failed"]) == (1, [])

    @pytest.mark.parametrize("what", ["pause", "resume", "cancel"])
    def test_others_are_not_touched(self, system: Deployment, what: str) -> None:
        act(system, "pause", {"team": "web"})
        before = [system.job(job_id) for job_id in "abcdef"]
        token = system.call("GET", "/v1/jobs", query={"limit": "1"}).document["cursor"]

        theirs = act(system, what, {"team": "etl"}, tenant=OTHER_TENANT, progressToken=token)
        web = act(system, what, {"team": "web", "env": "prod"})

        assert (theirs["matched"], web["matched"]) == (0, 0)
        assert [system.job(job_id) for job_id in "abcdef"] == before

    @pytest.mark.parametrize("what", ["pause", "resume", "cancel"])
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "labels"),
            ({"labels": {}}, "labels"),
            ({"labels": {"team": 1}}, "labels.team"),
            ({"labels": ["team"]}, "labels"),
            ({"label": {"team": "etl"}, "labels": {"team": "etl"}}, "label"),
            ({"labels": {"team": "etl"}, "progressToken": "x"}, "progressToken"),
        ],
    )
    def test_refusals(self, system: Deployment, what: str, body: object, field: str) -> None:
        answer = system.call("POST", f"/v1/jobs:{what}", body)

        assert (answer.status, answer.fault["field"]) == (422, field)

    def test_a_request_that_fits_no_job_is_rejected(self, system: Deployment) -> None:
        body = {"labels": {"team": "etl"}, "until": "2020-01-01T00:00:00Z"}
        answer = system.call("POST", "/v1/jobs:pause", body)

        assert (answer.status, answer.fault["field"]) == (422, "until")
        assert ids(system, state="PAUSED") == []
