"""Repeated requests with the same `Idempotency-Key`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from functions.api import idempotency
from functions.api import services as api
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.requests import REQUESTS_KEPT
from nextfire.domain.run import Run, RunState
from tests.fakes import Clock
from tests.integration.deployment import (
    OTHER_TENANT,
    TENANT,
    Answer,
    Deployment,
    Proxy,
    message_for,
)

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}
KEY = {"Idempotency-Key": "k"}
NOW = parse_instant("2026-05-24T10:00:00Z")
OTHER = {"Idempotency-Key": "l"}


@pytest.fixture
def lost(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sends a request that crashes between its effect and its answer."""

    def send(
        method: str, path: str, body: object = None, *, more: Mapping[str, str] | None = None
    ) -> None:
        def die(*_: object) -> str:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbRequestStore, "finish", die)
            with pytest.raises(KeyboardInterrupt):
                system.call(method, path, body, headers=KEY | dict(more or {}))

    return send


def jobs(system: Deployment, tenant: str = TENANT) -> list[Any]:
    items: list[Any] = system.call("GET", "/v1/jobs", tenant=tenant).document["items"]
    return items


def dead_run(system: Deployment, job_id: str, *, state: RunState = RunState.DEAD) -> Run:
    job = system.job(job_id)
    message = message_for(job, job.created_at)
    run = system.runs.claim(
        message,
        token="t",
        worker="w",
        pool="default",
        job_revision=1,
        now=job.created_at,
        lease_until=job.created_at + timedelta(minutes=1),
    ).run
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    system.runs.advance(run, run.ended(state, failed, job.created_at))
    return system.run(message)


def claim_again(system: Deployment, run: Run, clock: Clock) -> Run:
    """Claim *run*, which was redriven; returns it RUNNING."""
    message = message_for(system.job(run.key.job.job_id), run.key.scheduled_at)
    return system.runs.claim(
        message.model_copy(update={"dispatch": run.dispatch + 2}),
        token="t2",
        worker="w",
        pool="default",
        job_revision=1,
        now=clock.now(),
        lease_until=clock.now() + timedelta(minutes=1),
    ).run


def end(system: Deployment, running: Run, clock: Clock) -> Run:
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    system.runs.advance(running, running.ended(RunState.DEAD, failed, clock.now()))
    ended = system.runs.get(running.key)
    assert ended is not None
    assert (ended.state, ended.attempt) == (RunState.DEAD, 2)
    return ended


def die_again(system: Deployment, run: Run, clock: Clock) -> Run:
    """Claim and fail *run*, which was redriven; returns it DEAD."""
    clock.advance(timedelta(seconds=1))
    return end(system, claim_again(system, run, clock), clock)


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

    def test_each_key_makes_a_job_of_its_own(self, system: Deployment) -> None:
        for key in ("a", "b", "A", "a#b", "~!x"):
            assert system.call("POST", "/v1/jobs", CRON, headers={"Idempotency-Key": key}).status

        assert len(jobs(system)) == 5

    def test_each_tenant_has_keys_of_its_own(self, system: Deployment) -> None:
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
        was_there, new = (result["job"]["createdAt"] for result in batch.document["results"])
        assert was_there == "2026-05-24T10:00:00Z", "the stored job is returned"
        assert new == "2026-05-24T10:31:00Z"

    def test_an_unreadable_body_does_not_use_up_its_key(self, system: Deployment) -> None:
        assert system.call("POST", "/v1/jobs", CRON | {"type": "X"}, headers=KEY).status == 422

        assert system.call("POST", "/v1/jobs", CRON, headers=KEY).status == 201

    @pytest.mark.parametrize("key", ["", "x" * 129, "a b", "é", "\t"])
    def test_no_key(self, system: Deployment, key: str) -> None:
        answer = system.call("POST", "/v1/jobs", CRON, headers={"Idempotency-Key": key})

        assert (answer.status, answer.fault["field"]) == (422, "Idempotency-Key")
        assert jobs(system) == []

    def test_key_stands_for_its_request_for_a_day(self, system: Deployment, clock: Clock) -> None:
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


class TestLost:
    """The first request crashed between its effect and its answer."""

    def test_job_is_found(
        self, system: Deployment, clock: Clock, lost: Callable[..., None]
    ) -> None:
        lost("POST", "/v1/jobs", CRON)
        [made] = jobs(system)
        clock.advance(timedelta(hours=3))

        again = system.call("POST", "/v1/jobs", CRON, headers=KEY)

        assert (again.status, again.document) == (201, made)
        assert len(jobs(system)) == 1
        assert len(system.due_items()) == 1

    def test_job_that_was_deleted_since_stays_deleted(
        self, system: Deployment, lost: Callable[..., None]
    ) -> None:
        lost("POST", "/v1/jobs", CRON | {"jobId": "a"})
        system.call("DELETE", "/v1/jobs/a")

        assert system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}, headers=KEY).status == 201

        assert system.call("GET", "/v1/jobs/a").document["state"] == "CANCELLED"

    def test_nothing_had_happened_yet(
        self, system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(api.services().jobs, "register", die)
            with pytest.raises(KeyboardInterrupt):
                system.call("POST", "/v1/jobs", CRON | {"schedule": "* * * * *"}, headers=KEY)
        clock.advance(timedelta(hours=3))

        again = system.call("POST", "/v1/jobs", CRON | {"schedule": "* * * * *"}, headers=KEY)

        assert again.status == 201
        assert again.document["createdAt"] == "2026-05-24T10:00:00Z"
        # The watcher still reads the bucket of the occurrence that was due meanwhile.
        [entry] = system.due_items()
        assert entry["bucket"]["S"].startswith("2026-05-24T13:00Z")

    def test_pause_and_resume(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        lost("POST", "/v1/jobs/a/pause", {"reason": "r"})

        again = system.call("POST", "/v1/jobs/a/pause", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "PAUSED")
        assert system.job("a").revision == 2

    @pytest.mark.parametrize("change", ["pause", "drain", "resume"])
    def test_change_of_a_version(
        self, system: Deployment, lost: Callable[..., None], change: str
    ) -> None:
        system.register(jobId="a")
        if change == "resume":
            system.call("POST", "/v1/jobs/a/pause")
        tag = {"If-Match": system.call("GET", "/v1/jobs/a").headers["etag"]}
        lost("POST", f"/v1/jobs/a/{change}", {}, more=tag)
        revision = system.job("a").revision

        again = system.call("POST", f"/v1/jobs/a/{change}", {}, headers=KEY | tag)
        another = system.call("POST", f"/v1/jobs/a/{change}", {}, headers=OTHER | tag)

        assert (again.status, another.status) == (200, 412)
        assert system.job("a").revision == revision

    def test_change_of_a_version_that_others_changed(
        self, system: Deployment, lost: Callable[..., None]
    ) -> None:
        system.register(jobId="a")
        tag = {"If-Match": system.call("GET", "/v1/jobs/a").headers["etag"]}
        lost("POST", "/v1/jobs/a/pause", {}, more=tag)
        system.call("POST", "/v1/jobs/a/resume")

        again = system.call("POST", "/v1/jobs/a/pause", {}, headers=KEY | tag)

        assert (again.status, system.job("a").state) == (412, JobState.ACTIVE)

    def test_skip_next(self, system: Deployment, clock: Clock, lost: Callable[..., None]) -> None:
        system.register(jobId="a", schedule="* * * * *")
        lost("POST", "/v1/jobs/a/skip-next", {})
        clock.advance(timedelta(seconds=90))

        again = system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY)

        assert again.status == 200
        assert [isoformat(at) for at in system.job("a").skips] == ["2026-05-24T10:01:00Z"]

    def test_skip_next_of_a_version(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        tag = {"If-Match": system.call("GET", "/v1/jobs/a").headers["etag"]}
        lost("POST", "/v1/jobs/a/skip-next", {}, more=tag)

        again = system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY | tag)

        assert again.status == 200

    def test_drain(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        lost("POST", "/v1/jobs/a/drain", {"reason": "r"})

        again = system.call("POST", "/v1/jobs/a/drain", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "PAUSED")
        assert system.job("a").revision == 2

    def test_backfill(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a", schedule="0 * * * *")
        body = {"from": "2020-05-01T00:00:00Z", "to": "2020-05-02T00:00:00Z"}
        lost("POST", "/v1/jobs/a/backfill", body)

        again = system.call("POST", "/v1/jobs/a/backfill", body, headers=KEY)

        assert (again.status, again.document["count"]) == (202, 24)
        assert system.job("a").revision == 2
        backfill = system.job("a").backfill
        assert backfill is not None
        assert backfill.backfill_id == again.document["backfillId"]

    def test_cancel(self, system: Deployment, clock: Clock, lost: Callable[..., None]) -> None:
        system.register(jobId="a", schedule="* * * * *")
        clock.advance(timedelta(minutes=2))
        [first] = system.call("GET", "/v1/jobs/a/upcoming", query={"count": "1"}).document["items"]
        clock.advance(parse_instant(first["at"]) - clock.now() + timedelta(seconds=1))
        path = f"/v1/executions/{first['executionId']}/cancel"
        lost("POST", path)

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "CANCELLED")
        assert system.call("POST", path, headers={"Idempotency-Key": "new"}).status == 409

    def test_redrive(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        lost("POST", path)
        once = system.call("GET", path.removesuffix("/redrive")).document

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "PENDING")
        assert again.document == once
        assert system.call("POST", path, headers={"Idempotency-Key": "new"}).status == 409

    def test_run_now(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        lost("POST", "/v1/jobs/a/run", {"reason": "r"})
        [made] = system.call("GET", "/v1/jobs/a/executions").document["items"]

        again = system.call("POST", "/v1/jobs/a/run", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["executionId"]) == (201, made["executionId"])
        assert len(system.call("GET", "/v1/jobs/a/executions").document["items"]) == 1

    def test_redriven_once_though_it_died_again(
        self, system: Deployment, clock: Clock, lost: Callable[..., None]
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        lost("POST", path)
        died = die_again(system, run, clock)

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "DEAD")
        assert system.runs.get(run.key) == died
        assert system.call("POST", path, headers={"Idempotency-Key": "new"}).status == 200

    def test_a_redrive_that_was_refused_is_done_once_it_can_be(
        self, system: Deployment, clock: Clock
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        system.call("POST", path)
        clock.advance(timedelta(seconds=1))
        running = claim_again(system, run, clock)
        clock.advance(timedelta(seconds=1))
        assert system.call("POST", path, headers=KEY).status == 409
        end(system, running, clock)

        assert system.call("POST", path, headers=KEY).document["state"] == "PENDING"

    def test_a_cancel_that_was_refused_is_refused_again(self, system: Deployment) -> None:
        system.register(jobId="a")
        path = f"/v1/executions/{dead_run(system, 'a').key.execution_id}/cancel"

        assert [system.call("POST", path, headers=KEY).status for _ in range(2)] == [409, 409]

    def test_a_redrive_that_was_refused_is_refused_again(
        self, system: Deployment, clock: Clock
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        system.call("POST", path)
        die_again(system, run, clock)
        system.call("DELETE", "/v1/jobs/a")

        assert [system.call("POST", path, headers=KEY).status for _ in range(2)] == [409, 409]

    def test_a_redrive_of_what_never_died_is_refused_again(self, system: Deployment) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a", state=RunState.SUCCEEDED)
        path = f"/v1/executions/{run.key.execution_id}/redrive"

        assert [system.call("POST", path, headers=KEY).status for _ in range(2)] == [409, 409]

    @pytest.mark.usefixtures("clock")
    def test_redrive_of_a_pool(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        lost("POST", "/v1/pools/default/redrive", {"reason": "r"})
        pending = system.runs.get(run.key)
        assert pending is not None
        assert pending.state is RunState.PENDING

        again = system.call("POST", "/v1/pools/default/redrive", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["redriven"]) == (200, [])
        assert system.runs.get(run.key) == pending

    @pytest.mark.parametrize("to", [{}, {"to": "2026-05-25T00:00:00Z"}])
    def test_redrive_of_a_pool_leaves_what_died_again(
        self,
        system: Deployment,
        clock: Clock,
        lost: Callable[..., None],
        to: dict[str, str],
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        lost("POST", "/v1/pools/default/redrive", to)
        died = die_again(system, run, clock)

        again = system.call("POST", "/v1/pools/default/redrive", to, headers=KEY)

        assert (again.status, again.document["redriven"]) == (200, [])
        assert system.runs.get(run.key) == died

    def test_a_skip_that_had_not_happened_skips_what_is_next_now(
        self, system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        system.call("POST", "/v1/jobs", CRON | {"jobId": "a"})
        system.call("POST", "/v1/jobs/a/skip-next")
        before = system.job("a").skips
        clock.advance(timedelta(hours=20))
        with monkeypatch.context() as patch:
            patch.setattr(api.services().skips, "skip_next", die)
            with pytest.raises(KeyboardInterrupt):
                system.call("POST", "/v1/jobs/a/skip-next", headers=KEY)
        clock.advance(timedelta(hours=22))

        assert system.call("POST", "/v1/jobs/a/skip-next", headers=KEY).status == 200

        assert system.job("a").skips == (*before, parse_instant("2026-05-27T03:00:00Z"))

    def test_a_skip_that_happened_when_it_came_again_skips_no_other(
        self,
        system: Deployment,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
        lost: Callable[..., None],
    ) -> None:
        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        system.register(jobId="a", schedule="* * * * *")
        with monkeypatch.context() as patch:
            patch.setattr(api.services().skips, "skip_next", die)
            with pytest.raises(KeyboardInterrupt):
                system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY)
        clock.advance(timedelta(seconds=90))
        lost("POST", "/v1/jobs/a/skip-next", {})
        skips = system.job("a").skips
        assert len(skips) == 1
        clock.advance(timedelta(seconds=90))

        assert system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY).status == 200

        assert system.job("a").skips == skips

    def test_pause_until(self, system: Deployment, clock: Clock, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        until = {"until": "2026-05-24T12:00:00Z"}
        lost("POST", "/v1/jobs/a/pause", until)
        entries = system.due_items()
        clock.advance(timedelta(minutes=5))

        again = system.call("POST", "/v1/jobs/a/pause", until, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "PAUSED")
        assert again.document["resumesAt"] == "2026-05-24T12:00:00Z"
        assert system.job("a").revision == 2
        assert system.due_items() == entries

    @pytest.mark.parametrize("overlap", [0, 3600])
    def test_rotation_of_a_key(self, system: Deployment, clock: Clock, overlap: int) -> None:
        """The key's text is shown once: a lost answer is lost, but there is only one new key."""
        old = system.call("POST", "/v1/keys", {"name": "n", "scopes": ["read"]}).document["keyId"]
        path, body = f"/v1/keys/{old}/rotate", {"overlapSec": overlap}
        first = system.call("POST", path, body, headers=KEY).document
        clock.advance(timedelta(minutes=5))

        again = system.call("POST", path, body, headers=KEY)

        assert again.status == 201
        assert again.document["new"] == {k: v for k, v in first["new"].items() if k != "key"}
        assert again.document["old"]["expiresAt"] == first["old"]["expiresAt"]
        assert len(system.call("GET", "/v1/keys").document["items"]) == 2

    def test_rotation_that_died_before_the_old_key_was_to_end(
        self, system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        old = system.call("POST", "/v1/keys", {"name": "n", "scopes": ["read"]}).document["keyId"]
        path, body = f"/v1/keys/{old}/rotate", {"overlapSec": 3600}
        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbKeyStore, "end", die)
            with pytest.raises(KeyboardInterrupt):
                system.call("POST", path, body, headers=KEY)
        clock.advance(timedelta(minutes=5))

        again = system.call("POST", path, body, headers=KEY)

        assert again.document["old"]["expiresAt"] == "2026-05-24T11:00:00Z"
        assert len(system.call("GET", "/v1/keys").document["items"]) == 2

    def test_many_jobs(self, system: Deployment, lost: Callable[..., None]) -> None:
        batch = {"jobs": [CRON, CRON | {"jobId": "a", "labels": {"l": "v"}}]}
        lost("POST", "/v1/jobs:batch", batch)
        made = jobs(system)

        again = system.call("POST", "/v1/jobs:batch", batch, headers=KEY)

        assert [each["status"] for each in again.document["results"]] == [201, 201]
        found = sorted(
            (each["job"] for each in again.document["results"]), key=lambda j: j["jobId"]
        )
        assert found == made == jobs(system)

    @pytest.mark.parametrize(
        ("act", "state"), [("pause", "PAUSED"), ("resume", "ACTIVE"), ("cancel", "CANCELLED")]
    )
    def test_what_is_done_to_many_jobs(
        self, system: Deployment, lost: Callable[..., None], act: str, state: str
    ) -> None:
        for job_id in ("a", "b"):
            system.register(jobId=job_id, labels={"l": "v"})
            if act == "resume":
                system.call("POST", f"/v1/jobs/{job_id}/pause")
        lost("POST", f"/v1/jobs:{act}", {"labels": {"l": "v"}})
        done = [system.job(job_id) for job_id in ("a", "b")]

        again = system.call("POST", f"/v1/jobs:{act}", {"labels": {"l": "v"}}, headers=KEY)

        assert (again.status, again.document["changed"]) == (200, 0)
        assert [system.job(job_id) for job_id in ("a", "b")] == done
        assert {job.state for job in done} == {state}


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
