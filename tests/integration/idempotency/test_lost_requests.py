"""A request whose answer was lost is repeated, and has one effect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from functions.api import services as api
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.instants import parse_instant
from nextfire.domain.occurrences import JobState
from tests.fakes import Clock
from tests.integration.deployment import Deployment
from tests.integration.idempotency.conftest import CRON, KEY, OTHER, jobs

NOW = parse_instant("2026-05-24T10:00:00Z")


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

    def test_drain(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        lost("POST", "/v1/jobs/a/drain", {"reason": "r"})

        again = system.call("POST", "/v1/jobs/a/drain", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "PAUSED")
        assert system.job("a").revision == 2

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
