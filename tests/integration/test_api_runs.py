"""The API's routes that change runs: cancel and redrive, alone and of a pool."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from functions.api.routes import pools
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.due import DispatchEntry, StoredEntry
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import manage_runs
from tests.builders import claim_run
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.api_runs import act, dead, due, ended, get, started
from tests.integration.deployment import CALLS, SHARDS, Deployment, message_for


class TestCancel:
    def test_running_execution_is_asked_to_end(self, system: Deployment, job: Job) -> None:
        run = started(system, job, job.created_at)

        answer = act(system, run.key, "cancel", {"reason": "wrong input"})

        assert answer.status == 202
        assert answer.document["state"] == "RUNNING"
        assert answer.document["cancelRequested"] is True
        assert answer.document["cancelReason"] == "wrong input"
        assert get(system, run.key) == answer.document
        again = act(system, run.key, "cancel", {"reason": "another"})
        assert (again.status, again.document) == (202, answer.document)

    def test_execution_that_waits_for_a_retry_is_cancelled_at_once(
        self, system: Deployment, job: Job
    ) -> None:
        run = started(system, job, job.created_at)
        result = Result(AttemptOutcome.FAILED, "exit code 1", 1)
        waits = run.retrying(result, job.created_at, not_before=job.created_at)
        assert system.runs.advance(run, waits).taken

        answer = act(system, run.key, "cancel")

        assert (answer.status, answer.document["state"]) == (200, "CANCELLED")
        assert answer.document["reason"] == "cancelled on request"
        assert "retryAt" not in answer.document
        assert_problem(act(system, run.key, "cancel"), 409)

    def test_occurrence_without_a_record_is_cancelled_and_never_starts(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        system.upload("print('hi')")
        message = message_for(job, due(clock))
        assert get(system, message.key)["state"] == "PENDING"

        answer = act(system, message.key, "cancel", {"reason": "not today"})

        assert (answer.status, answer.document["state"]) == (200, "CANCELLED")
        assert (answer.document["reason"], answer.document["attempts"]) == ("not today", [])
        assert get(system, message.key) == answer.document
        claim = claim_run(system.runs, message, clock.now())
        assert not claim.taken

    @pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED])
    def test_what_has_ended_is_refused_by_its_state(
        self, system: Deployment, job: Job, state: RunState
    ) -> None:
        run = ended(system, started(system, job, job.created_at), state)

        answer = act(system, run.key, "cancel")

        assert_problem(answer, 409)
        assert f"is {state}" in answer.document["detail"]

    def test_what_a_range_record_covers_is_refused(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        key = job.run_key(due(clock, 5))
        system.runs.skip(Run.skipped(key, "late", clock.now(), covered_to=due(clock, 2), covered=4))

        answer = act(system, job.run_key(due(clock, 3)), "cancel")

        assert_problem(answer, 409)
        assert "is SKIPPED" in answer.document["detail"]

    def test_what_is_not_due_yet_cannot_be_cancelled(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        key = job.run_key(due(clock, -5))

        answer = act(system, key, "cancel")

        assert_problem(answer, 404)
        assert "It is due at" in answer.document["detail"]
        assert system.runs.get(key) is None

    def test_no_record_is_made_without_an_occurrence(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        key = job.run_key(due(clock) + timedelta(seconds=7))

        assert_problem(act(system, key, "cancel"), 404)
        assert system.runs.get(key) is None

    @pytest.mark.parametrize("reason", ["", " ", "a\nb", "x" * 257, 5, ["x"]])
    @pytest.mark.parametrize("action", ["cancel", "redrive"])
    def test_bad_reasons(self, system: Deployment, job: Job, reason: object, action: str) -> None:
        run = started(system, job, job.created_at)

        assert_problem(act(system, run.key, action, {"reason": reason}), 422, field="reason")
        assert not system.run(message_for(job, job.created_at)).cancel_requested


class TestRedrive:
    def test_dead_execution_is_tried_again(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = dead(system, job, clock, 5)

        answer = act(system, run.key, "redrive", {"reason": "the disk is repaired"})

        assert (answer.status, answer.document["state"]) == (200, "PENDING")
        assert answer.document["reason"] == "the disk is repaired"
        assert answer.document["attemptsBeforeRedrive"] == 1
        assert "finishedAt" not in answer.document
        assert get(system, run.key) == answer.document
        [entry] = [
            stored.entry
            for shard in range(SHARDS)
            for stored in system.due.read(due(clock), shard, before=None, consistent=True)
            if isinstance(stored, StoredEntry) and isinstance(stored.entry, DispatchEntry)
        ]
        assert (entry.run_id, entry.dispatch, entry.pool) == (
            run.key.run_id,
            answer.document["dispatch"],
            "default",
        )
        assert entry.at == clock.now()

    def test_redriving_twice_starts_it_once(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = dead(system, job, clock, 5)
        first = act(system, run.key, "redrive")

        again = act(system, run.key, "redrive")

        assert_problem(again, 409)
        assert "is PENDING" in again.document["detail"]
        assert get(system, run.key) == first.document

    def test_execution_that_waits_for_a_retry_starts_now(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = started(system, job, due(clock, 5))
        failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
        retry_at = clock.now() + timedelta(hours=1)
        system.runs.advance(run, run.retrying(failed, clock.now(), not_before=retry_at))

        answer = act(system, run.key, "redrive", {"reason": "the disk is repaired"})

        assert (answer.status, answer.document["state"]) == (200, "PENDING")
        assert answer.document["reason"] == "the disk is repaired"
        assert answer.document["retryAt"] == isoformat(clock.now())
        assert "attemptsBeforeRedrive" not in answer.document
        assert get(system, run.key) == answer.document
        assert_problem(act(system, run.key, "redrive"), 409)

    def test_only_the_dead_are_redriven(self, system: Deployment, job: Job, clock: Clock) -> None:
        run = started(system, job, due(clock, 5))
        waiting = job.run_key(due(clock))

        for key, state in ((run.key, "RUNNING"), (waiting, "PENDING")):
            answer = act(system, key, "redrive")
            assert_problem(answer, 409)
            assert f"is {state}" in answer.document["detail"]
        ended(system, run, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED)
        assert "is SUCCEEDED" in act(system, run.key, "redrive").document["detail"]

    def test_of_a_deleted_job_nothing_is_redriven(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = dead(system, job, clock, 5)
        assert system.call("DELETE", "/v1/jobs/a").status == 200

        gone = act(system, run.key, "redrive")
        assert_problem(gone, 409)
        assert "job was deleted" in gone.document["detail"]
        system.forget_due(clock.now())  # until then the id cannot be reused
        system.register(jobId="a")
        assert_problem(act(system, run.key, "redrive"), 409)
        assert get(system, run.key)["state"] == "DEAD"

    def test_a_completed_one_off_is_redriven(self, system: Deployment, clock: Clock) -> None:
        at = clock.now() + timedelta(minutes=1)
        job = system.register(jobId="once", type="ONCE", schedule=isoformat(at))
        clock.advance(minutes=5)
        run = ended(system, started(system, job, at))
        assert system.jobs.complete(job, clock.now())

        assert act(system, run.key, "redrive").document["state"] == "PENDING"

    def test_pool_that_is_gone(
        self, system: Deployment, job: Job, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = dead(system, job, clock, 5)
        pool = {"queueUrl": system.queue_url, "maxTimeout": "PT1M"}
        system.configure(monkeypatch, pools=json.dumps({"other": pool}))

        answer = act(system, run.key, "redrive")

        assert_problem(answer, 409)
        assert "Available: other." in answer.document["detail"]


class TestRedrivePool:
    def redrive(self, system: Deployment, body: object = None, pool: str = "default") -> Any:
        answer = system.call("POST", f"/v1/pools/{pool}/redrive", body)
        assert answer.status == 200, answer.document
        return answer.document

    def test_redrive_is_repeated_until_no_dead_run_is_left(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        runs = [dead(system, job, clock, minutes) for minutes in range(5, 10)]
        elsewhere = dead(system, job, clock, 20, pool="batch")

        first = self.redrive(system, {"limit": 2})
        second = self.redrive(system, {"limit": 2, "cursor": first["cursor"]})
        third = self.redrive(system, {"limit": 2})

        ids = [run.key.execution_id for run in runs]
        assert (first["redriven"], first["more"]) == (ids[:2], True)
        assert (second["redriven"], second["more"]) == (ids[2:4], True)
        assert (third["redriven"], third["skipped"]) == (ids[4:], [])
        assert self.redrive(system) == {"redriven": [], "skipped": [], "more": False}
        assert {get(system, run.key)["state"] for run in runs} == {"PENDING"}
        assert {get(system, run.key)["dispatch"] for run in runs} == {10_001}
        assert get(system, elsewhere.key)["state"] == "DEAD"

    def test_runs_that_cannot_be_redriven_are_reported_and_do_not_block_others(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        clock.advance(hours=-1)
        doomed = system.register(jobId="b")
        clock.advance(hours=1)
        lost = dead(system, doomed, clock, 5)
        run = dead(system, job, clock, 10)
        system.call("DELETE", "/v1/jobs/b")

        done = self.redrive(system)

        assert done["redriven"] == [run.key.execution_id]
        assert done["skipped"] == [
            {"executionId": lost.key.execution_id, "reason": "Its job was deleted."}
        ]

    def test_span(self, system: Deployment, job: Job, clock: Clock) -> None:
        runs = [dead(system, job, clock, minutes) for minutes in (5, 6, 7)]
        at = isoformat(due(clock, 6) + timedelta(seconds=1))

        assert self.redrive(system, {"from": at, "to": at})["redriven"] == [
            runs[1].key.execution_id
        ]
        clock.advance(days=1)
        assert self.redrive(system)["redriven"] == []

    def test_time_is_up(
        self, system: Deployment, job: Job, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manage_runs, "TOGETHER", 2)
        monkeypatch.setattr(pools, "WORKS_FOR", timedelta())
        for minutes in range(5, 10):
            dead(system, job, clock, minutes)

        done = self.redrive(system, {"limit": 100})

        assert (len(done["redriven"]), done["more"]) == (2, True)

    def test_unknown_pool(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/pools/gpu/redrive")

        assert_problem(answer, 404)
        assert f"Available: default, {CALLS}." in answer.document["detail"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"limit": 0}, "limit"),
            ({"limit": 101}, "limit"),
            ({"limit": "5"}, "limit"),
            ({"limit": True}, "limit"),
            ({"limit": 10**40}, "limit"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": 5}, "cursor"),
            ({"cursor": "x" * 2000}, "cursor"),
            ({"from": "x"}, "from"),
            ({"from": 5}, "from"),
            ({"to": "2030-13-01"}, "to"),
            ({"from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"}, "from"),
            ({"from_": "2030-01-02T00:00:00Z"}, "from_"),
            ({"reason": "a\tb"}, "reason"),
            ({"pool": "default"}, "pool"),
        ],
    )
    def test_refusals(self, system: Deployment, body: object, field: str) -> None:
        answer = system.call("POST", "/v1/pools/default/redrive", body)

        assert_problem(answer, 422, field=field)
