"""Pause and resume over the API."""

from __future__ import annotations

import json
from threading import current_thread
from typing import Any

import pytest

from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import parse_instant
from nextfire.domain.job import MAX_REPLACED
from tests.fakes import Clock
from tests.integration.api_answers import CRON, assert_problem
from tests.integration.deployment import SHARDS, TENANT, Deployment, labelled_key

PRINCIPAL = f"arn:aws:iam::{TENANT}:user/u"
NOW = parse_instant("2026-05-24T10:00:00Z")


class TestPause:
    def test_paused_job_says_so_and_since_when(self, system: Deployment, clock: Clock) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).document
        clock.advance(minutes=5)

        paused = system.call("POST", "/v1/jobs/a/pause", {"reason": "the ledger is closed"})

        assert paused.status == 200
        expected = created | {
            "state": "PAUSED",
            "pauseReason": "the ledger is closed",
            "pausedBy": PRINCIPAL,
            "pausedAt": "2026-05-24T10:05:00Z",
            "updatedAt": "2026-05-24T10:05:00Z",
            "revision": 2,
        }
        del expected["nextFireAt"]
        assert paused.document == expected
        assert system.shown("a") == expected
        assert system.call("GET", "/v1/jobs").document["items"] == [expected]
        assert system.call("GET", "/v1/jobs/a/upcoming").document == {"items": []}

    def test_resumed_job_continues_with_what_was_due_meanwhile(
        self, system: Deployment, clock: Clock
    ) -> None:
        created = system.register(jobId="a", type="INTERVAL", schedule="PT10M")
        clock.advance(minutes=15)
        system.call("POST", "/v1/jobs/a/pause", {"reason": "r"})
        clock.advance(minutes=10)

        resumed = system.call("POST", "/v1/jobs/a/resume")

        assert (resumed.status, resumed.document["state"]) == (200, "ACTIVE")
        assert {"pauseReason", "pausedAt", "pausedBy"}.isdisjoint(resumed.document)
        # The phase is kept: 10:10 was before the pause, 10:20 during it, 10:30 is next.
        assert resumed.document["nextFireAt"] == "2026-05-24T10:30:00Z"
        job = system.job("a")
        first = job.first()
        assert first is not None
        assert first.occurs_at == parse_instant("2026-05-24T10:20:00Z")
        assert first.version > created.schedule_version
        assert first.sort_key in {item["entry"]["S"] for item in system.due_items()}

    @pytest.mark.parametrize("body", [None, {}, {"reason": None}])
    def test_a_reason_is_not_required(
        self, system: Deployment, body: dict[str, None] | None
    ) -> None:
        system.register(jobId="a")

        paused = system.call("POST", "/v1/jobs/a/pause", body)

        assert (paused.status, paused.document["state"]) == (200, "PAUSED")
        assert "pauseReason" not in paused.document

    def test_done_twice_it_is_done_once(self, system: Deployment, clock: Clock) -> None:
        system.register(jobId="a")

        paused = system.call("POST", "/v1/jobs/a/pause", {"reason": "first"}).document
        clock.advance(minutes=1)
        again = system.call("POST", "/v1/jobs/a/pause", {"reason": "second"}).document
        resumed = system.call("POST", "/v1/jobs/a/resume").document
        clock.advance(minutes=1)
        once_more = system.call("POST", "/v1/jobs/a/resume").document

        assert again == paused
        assert paused["revision"] == 2
        assert {name: once_more[name] for name in ("state", "revision", "updatedAt")} == {
            name: resumed[name] for name in ("state", "revision", "updatedAt")
        }
        assert resumed["revision"] == 3

    @pytest.mark.parametrize("what", ["pause", "resume"])
    def test_job_that_is_over_is_neither_paused_nor_resumed(
        self, system: Deployment, clock: Clock, what: str
    ) -> None:
        completed = system.register(jobId="completed")
        assert system.jobs.complete(completed, clock.now())
        system.register(jobId="cancelled")
        system.call("DELETE", "/v1/jobs/cancelled")

        refused = system.call("POST", f"/v1/jobs/completed/{what}")

        assert_problem(refused, 409)
        assert "COMPLETED" in refused.document["detail"]
        assert_problem(system.call("POST", f"/v1/jobs/cancelled/{what}"), 404)
        assert_problem(system.call("POST", f"/v1/jobs/unknown/{what}"), 404)
        assert_problem(system.call("POST", f"/v1/jobs/a.b/{what}"), 422, field="jobId")

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"reason": ""}, "reason"),
            ({"reason": " \u00a0 "}, "reason"),
            ({"reason": "x" * 257}, "reason"),
            ({"reason": "two\nlines"}, "reason"),
            ({"reason": "\u0000"}, "reason"),
            ({"reason": "\u001b[31mred"}, "reason"),
            ({"reason": "x\u0085"}, "reason"),
            ({"reason": 7}, "reason"),
            ({"reason": "r", "until": "soon"}, "until"),
            ({"reason": "r", "til": "2030-01-01T00:00:00Z"}, "til"),
        ],
        ids=lambda value: json.dumps(value)[:40],
    )
    def test_bad_reason(self, system: Deployment, body: dict[str, Any], field: str) -> None:
        before = system.register(jobId="a")

        assert_problem(system.call("POST", "/v1/jobs/a/pause", body), 422, field=field)

        assert system.job("a") == before

    @pytest.mark.parametrize(
        ("reason", "problem", "remedy"),
        [
            ("x" * 257, "longer than 256 characters", "Shorten it to 256 characters."),
            (
                "a\tb",
                "holds control characters",
                "Write it on one line, without tabs and line breaks.",
            ),
            ("  ", "blank", "Say why, or leave it out."),
        ],
        ids=["long", "tab", "blank"],
    )
    def test_bad_reason_is_reported_with_an_example(
        self, system: Deployment, reason: str, problem: str, remedy: str
    ) -> None:
        system.register(jobId="a")

        fault = system.call("POST", "/v1/jobs/a/pause", {"reason": reason}).fault

        assert fault["problem"] == problem
        assert fault["remedy"] == f"{remedy} For example `the ledger is closed`."

    @pytest.mark.parametrize("action", ["pause", "drain"])
    def test_it_is_known_who_paused_it_first(self, system: Deployment, action: str) -> None:
        system.register(jobId="a", labels={"team": "etl"})
        key = labelled_key(TENANT, {"team": "etl"})

        first = system.call("POST", f"/v1/jobs/a/{action}", authorizer=key)
        again = system.call("POST", f"/v1/jobs/a/{action}")

        assert first.document["pausedBy"] == again.document["pausedBy"] == "00000000000000fe"

    @pytest.mark.parametrize("value", [{"L": [{"S": "x"}]}, {"NULL": True}])
    def test_a_job_can_be_read_whatever_that_is(self, system: Deployment, value: Any) -> None:
        system.register(jobId="a")
        system.call("POST", "/v1/jobs/a/pause")
        system.database.update_item(
            TableName=system.jobs_table,
            Key={"tenant": {"S": TENANT}, "job_id": {"S": "a"}},
            UpdateExpression="SET paused_by = :value",
            ExpressionAttributeValues={":value": value},
        )

        shown = system.call("GET", "/v1/jobs/a").document

        assert (shown["state"], shown.get("pausedBy")) == ("PAUSED", None)

    @pytest.mark.parametrize("reason", ["x" * 256, "Größe 🕑", " r "])
    def test_reason_is_kept_as_it_is(self, system: Deployment, reason: str) -> None:
        system.register(jobId="a")

        paused = system.call("POST", "/v1/jobs/a/pause", {"reason": reason})

        assert paused.document["pauseReason"] == reason

    @pytest.mark.parametrize("text", ["ledger", "[]", "{", " "])
    def test_malformed_body_is_reported_as_optional(self, system: Deployment, text: str) -> None:
        system.register(jobId="a")

        pause = system.call("POST", "/v1/jobs/a/pause", text=text)
        resume = system.call("POST", "/v1/jobs/a/resume", text=text)

        assert_problem(pause, 400)
        assert_problem(resume, 400)
        assert pause.document["detail"].endswith(
            'A body is optional; for example `{"reason": "the ledger is closed"}`.'
        )
        assert resume.document["detail"].endswith(
            "A body is optional and has no fields; leave it out."
        )

    def test_resume_takes_no_fields(self, system: Deployment) -> None:
        system.register(jobId="a")
        system.call("POST", "/v1/jobs/a/pause", {"reason": "x" * 256})

        assert_problem(
            system.call("POST", "/v1/jobs/a/resume", {"reason": "r"}), 422, field="reason"
        )
        assert_problem(system.call("POST", "/v1/jobs/a/resume", text="[]"), 400)

        assert system.call("GET", "/v1/jobs/a").document["state"] == "PAUSED"

    def test_paused_job_can_be_changed_and_stays_paused(
        self, system: Deployment, clock: Clock
    ) -> None:
        system.register(jobId="a")
        system.call("POST", "/v1/jobs/a/pause", {"reason": "r"})
        clock.advance(minutes=3)

        named = system.call("PATCH", "/v1/jobs/a", {"name": "n"}).document
        moved = system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"}).document

        assert (named["state"], named["pausedAt"]) == ("PAUSED", "2026-05-24T10:00:00Z")
        assert (moved["state"], moved["pauseReason"]) == ("PAUSED", "r")
        assert system.call("DELETE", "/v1/jobs/a").document["state"] == "CANCELLED"

    def test_last_occurrence_in_the_past_completes_the_job(
        self, system: Deployment, clock: Clock
    ) -> None:
        at = "2026-05-24T10:10:00Z"
        system.register(jobId="a", type="ONCE", schedule=at)
        system.call("POST", "/v1/jobs/a/pause")
        system.register(jobId="b", type="ONCE", schedule=at)
        clock.advance(minutes=20)

        # `a` was due during the pause, so the misfire policy decides. `b` was due before it.
        assert system.call("POST", "/v1/jobs/a/resume").document["state"] == "ACTIVE"
        system.call("POST", "/v1/jobs/b/pause")
        assert system.call("POST", "/v1/jobs/b/resume").document["state"] == "COMPLETED"

    def test_the_ninth_pause_reads_the_shards_concurrently(
        self, system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From then on the job forgets former versions, after a look at an hour of due entries."""
        read, names = DynamoDbDueStore.read, set[str]()

        def noting(*given: Any, **named: Any) -> Any:
            names.add(current_thread().name)
            return read(*given, **named)

        monkeypatch.setattr(DynamoDbDueStore, "read", noting)
        job_id = next(name for name in "abcdef" if JobKey(TENANT, name).shard(SHARDS))
        system.register(jobId=job_id)
        for _ in range(MAX_REPLACED + 1):
            clock.advance(seconds=1)
            assert system.call("POST", f"/v1/jobs/{job_id}/pause").status == 200
            assert system.call("POST", f"/v1/jobs/{job_id}/resume").status == 200

        assert names
        assert current_thread().name not in names
