"""The API's routes for requests in addition to a job's schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from functions.api.routes import jobs
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.due import DispatchEntry, StoredEntry
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey, parse_execution_id
from nextfire.domain.instants import cut, floor_minute, isoformat
from nextfire.domain.run import RunState, Trigger
from tests.integration.api_answers import assert_problem
from tests.integration.deployment import OTHER_TENANT, SHARDS, TENANT, Answer, Deployment


def ask(system: Deployment, job_id: str, what: str, body: Any = None, **more: Any) -> Answer:
    return system.call("POST", f"/v1/jobs/{quote(job_id)}/{what}", body, **more)


class TestRunNow:
    def test_execution_is_stored_with_its_due_entry(self, system: Deployment) -> None:
        job = system.register(jobId="a", payload={"a": 1})

        answer = ask(system, "a", "run", {"payload": {"b": [1, None]}, "reason": "it was wrong"})

        assert answer.status == 201
        document = answer.document
        assert document["state"] == "PENDING"
        assert document["trigger"] == "MANUAL"
        assert document["payload"] == {"b": [1, None]}
        assert document["requestReason"] == document["reason"] == "it was wrong"
        key = parse_execution_id(TENANT, document["executionId"])
        run = system.runs.get(key)
        assert run is not None
        assert (run.state, run.trigger, key.uid) == (RunState.PENDING, Trigger.MANUAL, job.uid)
        minute = floor_minute(key.scheduled_at)
        found = system.due.read(minute, key.job.shard(SHARDS), before=None, consistent=True)
        entries = [each.entry for each in found if isinstance(each, StoredEntry)]
        assert [e.run_id for e in entries if isinstance(e, DispatchEntry)] == [key.run_id]

    def test_body_is_optional_and_payload_the_job_s(self, system: Deployment) -> None:
        system.register(jobId="a")
        answer = ask(system, "a", "run")
        assert answer.status == 201
        assert "payload" not in answer.document
        assert "requestReason" not in answer.document

    def test_payload_may_be_null(self, system: Deployment) -> None:
        system.register(jobId="a")
        answer = ask(system, "a", "run", {"payload": None})
        assert answer.document["payload"] is None
        assert "payload" in answer.document

    def test_each_request_makes_its_own(self, system: Deployment) -> None:
        system.register(jobId="a")
        ids = {ask(system, "a", "run").document["executionId"] for _ in range(3)}
        assert len(ids) == 3
        listed = system.call("GET", "/v1/jobs/a/executions").document["items"]
        assert {each["executionId"] for each in listed} == ids

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"payload": "x" * 70_000}, "payload"),
            ({"reason": ""}, "reason"),
            ({"payloads": 1}, "payloads"),
        ],
    )
    def test_what_is_wrong_is_named(self, system: Deployment, body: Any, field: str) -> None:
        system.register(jobId="a")
        answer = ask(system, "a", "run", body)
        assert_problem(answer, 422)
        assert answer.document["errors"][0]["field"] == field
        assert system.call("GET", "/v1/jobs/a/executions").document["items"] == []

    def test_paused_job_runs_and_cancelled_one_does_not(self, system: Deployment) -> None:
        system.register(jobId="a")
        ask(system, "a", "pause")
        assert ask(system, "a", "run").status == 201
        system.call("DELETE", "/v1/jobs/a")
        assert_problem(ask(system, "a", "run"), 409)

    def test_no_one_runs_another_s_job(self, system: Deployment) -> None:
        system.register(jobId="a")
        assert_problem(ask(system, "a", "run", tenant=OTHER_TENANT), 404)
        assert_problem(ask(system, "unknown", "run"), 404)
        assert not [*system.runs.between(JobKey(TENANT, "a"), "0", "9")]


def upcoming(system: Deployment) -> Any:
    return system.call("GET", "/v1/jobs/a/upcoming", query={"count": "2"}).document["items"]


class TestSkipNext:
    def test_next_occurrence_is_skipped_and_shown_so(self, system: Deployment) -> None:
        system.register(jobId="a", schedule="0 * * * *")
        first, second = system.call("GET", "/v1/jobs/a/upcoming", query={"count": "2"}).document[
            "items"
        ]

        answer = ask(system, "a", "skip-next", {"reason": "the ledger is closed"})

        assert answer.status == 200
        assert answer.document["skips"] == [first["at"]]
        assert answer.document["nextFireAt"] == second["at"]
        assert answer.headers["etag"].endswith('-2"')
        assert [item.get("skipped") for item in upcoming(system)] == [True, None]
        run = system.call("GET", f"/v1/executions/{first['executionId']}").document
        assert (run["state"], run["reason"]) == ("SKIPPED", "the ledger is closed")
        assert run["requestReason"] == "the ledger is closed"

    def test_undone_it_runs(self, system: Deployment) -> None:
        system.register(jobId="a", schedule="59 23 31 12 *")
        before = system.call("GET", "/v1/jobs/a").document
        ask(system, "a", "skip-next")

        answer = system.call("DELETE", "/v1/jobs/a/skip-next")

        assert answer.status == 200
        assert answer.document["nextFireAt"] == before["nextFireAt"]
        assert "skips" not in answer.document
        assert_problem(system.call("DELETE", "/v1/jobs/a/skip-next"), 404)

    def test_it_is_shown_while_the_schedule_has_the_occurrence(self, system: Deployment) -> None:
        system.register(jobId="a", schedule="59 23 31 12 *")
        ask(system, "a", "skip-next")

        answer = system.call("PATCH", "/v1/jobs/a", {"schedule": "30 22 31 12 *"})
        assert "skips" not in answer.document

        back = system.call("PATCH", "/v1/jobs/a", {"schedule": "59 23 31 12 *"})
        assert len(back.document["skips"]) == 1
        assert "skips" not in system.call("DELETE", "/v1/jobs/a").document

    def test_skip_without_next_occurrence_or_with_stale_etag_is_rejected(
        self, system: Deployment
    ) -> None:
        system.register(jobId="a", type="MANUAL", schedule=None)
        assert_problem(ask(system, "a", "skip-next"), 409)
        system.register(jobId="b")
        old = {"If-Match": '"k3x9m2abk3x9m2ab-1"'}
        assert_problem(ask(system, "b", "skip-next", headers=old), 412)
        assert_problem(system.call("DELETE", "/v1/jobs/b/skip-next", headers=old), 412)

    def test_no_one_skips_another_s(self, system: Deployment) -> None:
        system.register(jobId="a")
        assert_problem(ask(system, "a", "skip-next", tenant=OTHER_TENANT), 404)
        assert_problem(system.call("DELETE", "/v1/jobs/a/skip-next", tenant=OTHER_TENANT), 404)
        assert_problem(ask(system, "unknown", "skip-next"), 404)


class TestPauseUntil:
    def test_pause_says_when_it_ends(self, system: Deployment) -> None:
        system.register(jobId="a")
        answer = ask(system, "a", "pause", {"until": "2126-05-24T12:00:00Z"})
        assert_problem(answer, 422)
        assert answer.document["errors"][0]["field"] == "until"
        end = isoformat(cut(SystemClock().now() + timedelta(hours=1)))

        answer = ask(system, "a", "pause", {"until": end})

        assert (answer.status, answer.document["resumesAt"]) == (200, end)
        assert "resumesAt" not in ask(system, "a", "resume").document

    @pytest.mark.parametrize("until", ["tomorrow", "2020-01-01T00:00:00Z", ""])
    def test_an_instant_that_has_passed_or_is_none_is_refused(
        self, system: Deployment, until: str
    ) -> None:
        system.register(jobId="a")
        answer = ask(system, "a", "pause", {"until": until})
        assert_problem(answer, 422)
        assert answer.document["errors"][0]["field"] == "until"
        assert system.call("GET", "/v1/jobs/a").document["state"] == "ACTIVE"


class TestDrain:
    def test_job_is_draining_until_what_was_under_way_has_ended(self, system: Deployment) -> None:
        job = system.register(jobId="a", schedule="59 23 31 12 *")
        key = parse_execution_id(TENANT, ask(system, "a", "run").document["executionId"])

        answer = ask(system, "a", "drain", {"reason": "the database moves"})

        assert answer.status == 200
        document = answer.document
        assert (document["state"], document["draining"]) == ("PAUSED", True)
        assert document["drainAskedAt"] == document["pausedAt"] == document["updatedAt"]
        assert document["pauseReason"] == "the database moves"
        assert "nextFireAt" not in document
        assert answer.headers["etag"] == f'"{job.uid}-2"'
        assert system.call("GET", "/v1/jobs/a").document["draining"]
        listed = system.call("GET", "/v1/jobs", query={"state": "PAUSED"}).document["items"]
        assert [(each["jobId"], each["state"]) for each in listed] == [("a", "PAUSED")]
        assert "draining" not in listed[0]
        assert listed[0]["drainAskedAt"] == document["drainAskedAt"]
        system.call("POST", f"/v1/executions/{key.execution_id}/cancel")
        assert "draining" not in system.call("GET", "/v1/jobs/a").document
        changed = system.call("PATCH", "/v1/jobs/a", {"name": "n"}).document
        assert (changed["state"], changed["drainAskedAt"]) == ("PAUSED", document["drainAskedAt"])
        resumed = ask(system, "a", "resume").document
        assert (resumed["state"], "drainAskedAt" in resumed) == ("ACTIVE", False)

    def test_body_is_optional_and_an_idle_job_is_paused_at_once(self, system: Deployment) -> None:
        system.register(jobId="a", schedule="59 23 31 12 *")
        answer = ask(system, "a", "drain")
        assert (answer.status, answer.document["state"]) == (200, "PAUSED")
        assert ask(system, "a", "drain").document == answer.document

    def test_who_cannot_be_drained_says_so(self, system: Deployment) -> None:
        system.register(jobId="a")
        assert_problem(ask(system, "a", "drain", {"reason": ""}), 422)
        old = {"If-Match": '"k3x9m2abk3x9m2ab-1"'}
        assert_problem(ask(system, "a", "drain", headers=old), 412)
        assert_problem(ask(system, "a", "drain", tenant=OTHER_TENANT), 404)
        assert_problem(ask(system, "unknown", "drain"), 404)
        assert system.call("GET", "/v1/jobs/a").document["state"] == "ACTIVE"
        system.call("DELETE", "/v1/jobs/a")
        assert_problem(ask(system, "a", "drain"), 404)

    def test_drain_with_an_unknown_time_zone_is_rejected(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.register(jobId="a", schedule="59 23 31 12 *", timezone="Europe/Berlin")
        ask(system, "a", "drain")

        def gone(*_: object) -> bool:
            raise InvalidInputError("timezone", "Europe/Berlin", "not known", "Choose another.")

        monkeypatch.setattr(jobs, "has_outstanding", gone)
        assert "draining" not in system.call("GET", "/v1/jobs/a").document


PAST = {"from": "2020-05-01T00:00:00Z", "to": "2020-05-01T12:00:00Z"}


class TestBackfill:
    def test_occurrences_of_the_past_are_accepted_and_shown(self, system: Deployment) -> None:
        job = system.register(jobId="a", schedule="0 * * * *")

        answer = ask(system, "a", "backfill", PAST | {"reason": "it is new"})

        assert answer.status == 202
        document = answer.document
        shown = {name: document[name] for name in ("jobId", "first", "last", "count", "order")}
        assert shown == {
            "jobId": "a",
            "first": "2020-05-01T00:00:00Z",
            "last": "2020-05-01T11:00:00Z",
            "count": 12,
            "order": "OLDEST_FIRST",
        }
        assert document["reason"] == "it is new"
        assert system.call("GET", "/v1/jobs/a").document["backfill"] == document
        stored = system.job("a")
        assert stored.backfilling is not None
        entry = stored.backfill_entry(1)
        assert entry is not None
        assert (entry.request, entry.uid) == (document["backfillId"], job.uid)
        assert entry.sort_key in {item["entry"]["S"] for item in system.due_items()}

    def test_only_one_continues_until_it_is_stopped(self, system: Deployment) -> None:
        job = system.register(jobId="a", schedule="0 * * * *")
        ask(system, "a", "backfill", PAST)
        again = ask(system, "a", "backfill", PAST)
        assert_problem(again, 409)
        assert "DELETE /v1/jobs/{jobId}/backfill" in again.document["detail"]

        stopped = system.call("DELETE", "/v1/jobs/a/backfill")

        assert stopped.status == 200
        assert "backfill" not in stopped.document
        assert stopped.headers["etag"] == f'"{job.uid}-3"'
        assert_problem(system.call("DELETE", "/v1/jobs/a/backfill"), 404)
        assert ask(system, "a", "backfill", PAST | {"order": "NEWEST_FIRST"}).status == 202
        assert "backfill" not in ask(system, "a", "pause").document
        assert_problem(ask(system, "a", "backfill", PAST), 409)

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (PAST | {"max": 11}, "max"),
            (PAST | {"max": 0}, "max"),
            (PAST | {"max": 1_001}, "max"),
            (PAST | {"to": "2020-09-01T00:00:00Z"}, "from"),
            ({"from": PAST["to"], "to": PAST["from"]}, "from"),
            ({"from": "2126-05-01T00:00:00Z", "to": "2126-06-01T00:00:00Z"}, "from"),
            (PAST | {"from": "yesterday"}, "from"),
            (PAST | {"from": "0001-01-01T00:00:00Z"}, "from"),
            (PAST | {"to": "today"}, "to"),
            ({"from": PAST["from"]}, "to"),
            (PAST | {"order": "RANDOM"}, "order"),
            (PAST | {"reason": ""}, "reason"),
            (PAST | {"until": "x"}, "until"),
        ],
    )
    def test_what_is_wrong_is_named(self, system: Deployment, body: Any, field: str) -> None:
        system.register(jobId="a", schedule="0 * * * *")
        answer = ask(system, "a", "backfill", body)
        assert_problem(answer, 422)
        assert answer.document["errors"][0]["field"] == field
        assert system.job("a").revision == 1

    def test_a_backfill_above_the_limit_reports_its_size(self, system: Deployment) -> None:
        system.register(jobId="a", schedule="0 * * * *")
        answer = ask(system, "a", "backfill", PAST | {"to": "2021-05-01T00:00:00Z"})
        assert "there are 8760 occurrences" in answer.document["errors"][0]["problem"]

    def test_backfill_without_past_or_with_stale_etag_is_rejected(self, system: Deployment) -> None:
        system.register(jobId="a", type="MANUAL", schedule=None)
        assert_problem(ask(system, "a", "backfill", PAST), 409)
        assert_problem(ask(system, "unknown", "backfill", PAST), 404)
        system.register(jobId="b", schedule="0 * * * *")
        old = {"If-Match": '"k3x9m2abk3x9m2ab-1"'}
        assert_problem(ask(system, "b", "backfill", PAST, headers=old), 412)
        assert_problem(ask(system, "b", "backfill", PAST, tenant=OTHER_TENANT), 404)
        ask(system, "b", "backfill", PAST)
        assert_problem(system.call("DELETE", "/v1/jobs/b/backfill", headers=old), 412)
        assert_problem(system.call("DELETE", "/v1/jobs/b/backfill", tenant=OTHER_TENANT), 404)
