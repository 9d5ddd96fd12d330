"""The API's routes for runs after dispatch: cancel, redrive, dead runs, logs, results."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.api import services as api
from functions.api.routes import pools
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.attempt import AttemptOutcome, Result, Value
from nextfire.domain.due import DispatchEntry, StoredEntry
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import cut, floor_minute, isoformat
from nextfire.domain.job import Job
from nextfire.domain.log import LogLine, encode_line, part_name
from nextfire.domain.run import Run, RunState
from nextfire.usecases import manage_runs
from tests.crons import LONG
from tests.fakes import Clock
from tests.integration.deployment import (
    OTHER_TENANT,
    SHARDS,
    TENANT,
    Answer,
    Deployment,
    message_for,
)
from tests.integration.test_api import assert_problem, json_values

LEASE = timedelta(seconds=30)
UNKNOWN = "unknown.20260524T100000000Z-k3x9m2ab"
ROUTES = [
    ("GET", "/v1/executions/{}"),
    ("GET", "/v1/executions/{}/logs"),
    ("POST", "/v1/executions/{}/cancel"),
    ("POST", "/v1/executions/{}/redrive"),
    ("POST", "/v1/executions/{}/replay"),
]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, system: Deployment) -> Clock:  # noqa: ARG001
    """The API's clock: stopped, half a minute after the start of a minute."""
    clock = Clock(floor_minute(SystemClock().now()) + timedelta(seconds=30))
    monkeypatch.setattr(api, "clock", clock)
    api.own_services.cache_clear()
    return clock


@pytest.fixture
def job(system: Deployment, clock: Clock) -> Job:
    """A job that is due each minute, for an hour."""
    clock.advance(hours=-1)
    job = system.register(jobId="a")
    clock.advance(hours=1)
    return job


def started(system: Deployment, job: Job, at: datetime, *, pool: str = "default") -> Run:
    """The run of *job* that was scheduled for *at*, RUNNING."""
    now = at + timedelta(seconds=1)
    claim = system.runs.claim(
        message_for(job, at),
        token=isoformat(at),
        worker="w1",
        pool=pool,
        job_revision=1,
        now=now,
        lease_until=now + LEASE,
    )
    assert claim.taken
    return claim.run


def ended(
    system: Deployment,
    run: Run,
    state: RunState = RunState.DEAD,
    outcome: AttemptOutcome = AttemptOutcome.FAILED,
    **more: Any,
) -> Run:
    result = Result(outcome, "exit code 1", 1, **more)
    assert run.started_at is not None
    claim = system.runs.advance(run, run.ended(state, result, run.started_at))
    assert claim.taken
    return claim.run


def due(clock: Clock, minutes_ago: int = 0) -> datetime:
    return floor_minute(clock.now()) - timedelta(minutes=minutes_ago)


def dead(system: Deployment, job: Job, clock: Clock, minutes_ago: int, **more: Any) -> Run:
    return ended(system, started(system, job, due(clock, minutes_ago), **more))


def act(system: Deployment, run: RunKey, action: str, body: object = None, **more: Any) -> Answer:
    return system.call("POST", f"/v1/executions/{run.execution_id}/{action}", body, **more)


def get(system: Deployment, run: RunKey) -> dict[str, Any]:
    return system.call("GET", f"/v1/executions/{run.execution_id}").document


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
        claim = system.runs.claim(
            message, token="t", worker="w", pool="default", job_revision=1,
            now=clock.now(), lease_until=clock.now() + LEASE,
        )  # fmt: skip
        assert not claim.taken

    @pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED])
    def test_what_has_ended_is_refused_by_its_state(
        self, system: Deployment, job: Job, state: RunState
    ) -> None:
        run = ended(system, started(system, job, job.created_at), state)

        answer = act(system, run.key, "cancel")

        assert_problem(answer, 409)
        assert f"is {state}" in answer.document["detail"]

    def test_what_a_range_record_stands_for_is_refused(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        key = RunKey(job.key, run_id(job.uid, due(clock, 5)))
        system.runs.skip(Run.skipped(key, "late", clock.now(), covered_to=due(clock, 2), covered=4))

        answer = act(system, RunKey(job.key, run_id(job.uid, due(clock, 3))), "cancel")

        assert_problem(answer, 409)
        assert "is SKIPPED" in answer.document["detail"]

    def test_what_is_not_due_yet_cannot_be_cancelled(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        key = RunKey(job.key, run_id(job.uid, due(clock, -5)))

        answer = act(system, key, "cancel")

        assert_problem(answer, 404)
        assert "It is due at" in answer.document["detail"]
        assert system.runs.get(key) is None

    def test_no_record_is_made_of_what_is_no_occurrence(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        key = RunKey(job.key, run_id(job.uid, due(clock) + timedelta(seconds=7)))

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

    def test_only_the_dead_are_redriven(self, system: Deployment, job: Job, clock: Clock) -> None:
        run = started(system, job, due(clock, 5))
        waiting = RunKey(job.key, run_id(job.uid, due(clock)))

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


class TestListAll:
    def listed(self, system: Deployment, **query: str) -> list[dict[str, Any]]:
        """The runs of all pages; checks that no page exceeds the limit."""
        seen: list[dict[str, Any]] = []
        while True:
            answer = system.call("GET", "/v1/executions", query=query)
            assert answer.status == 200, answer.document
            assert len(answer.document["items"]) <= int(query.get("limit", "50"))
            seen += answer.document["items"]
            if "cursor" not in answer.document:
                return seen
            query["cursor"] = answer.document["cursor"]

    @pytest.fixture
    def runs(self, system: Deployment, job: Job, clock: Clock) -> dict[str, Run]:
        """Runs of the jobs `a` and `b`, named by state and minutes since they were due."""
        clock.advance(hours=-1)
        other = system.register(jobId="b")
        system.register(jobId="c")
        clock.advance(hours=1)
        return {
            "a dead 30": dead(system, job, clock, 30),
            "a done 20": ended(system, started(system, job, due(clock, 20)), RunState.SUCCEEDED),
            "b dead 25": dead(system, other, clock, 25, pool="batch"),
            "b runs 10": started(system, other, due(clock, 10)),
        }

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({}, "a done 20, a dead 30, b runs 10, b dead 25"),
            ({"state": "SUCCEEDED"}, "a done 20"),
            ({"state": "RUNNING"}, "b runs 10"),
            ({"state": "CANCELLED"}, ""),
            ({"state": "UNREADABLE"}, ""),
            ({"jobId": "b"}, "b runs 10, b dead 25"),
            ({"jobId": "a", "state": "DEAD"}, "a dead 30"),
            ({"jobId": "nothing"}, ""),
            ({"pool": "batch"}, "b dead 25"),
            ({"from": "-25", "to": "-10"}, "a done 20, b dead 25"),
            ({"from": "-20"}, "a done 20, b runs 10"),
        ],
    )
    def test_job_by_job_the_newest_first(
        self,
        system: Deployment,
        runs: dict[str, Run],
        clock: Clock,
        query: dict[str, str],
        found: str,
    ) -> None:
        for name in {"from", "to"} & query.keys():
            query = query | {name: isoformat(due(clock, -int(query[name])))}

        wanted = [runs[name].key for name in filter(None, found.split(", "))]
        documents = [get(system, key) for key in wanted]
        for limit in ("1", "2", "100"):
            assert self.listed(system, **query, limit=limit) == documents

    def test_by_default_of_the_last_day(
        self, system: Deployment, runs: dict[str, Run], clock: Clock
    ) -> None:
        assert len(self.listed(system)) == len(runs)
        clock.advance(days=1)

        assert self.listed(system) == []
        from_ = {"from": isoformat(clock.now() - timedelta(days=2))}
        assert len(self.listed(system, **from_)) == len(runs)

    def test_a_span_that_moves_on_between_pages(
        self, system: Deployment, runs: dict[str, Run], clock: Clock
    ) -> None:
        first = system.call("GET", "/v1/executions", query={"limit": "1"}).document
        clock.advance(days=1)

        assert [each["executionId"] for each in first["items"]] == [
            runs["a done 20"].key.execution_id
        ]
        assert self.listed(system, cursor=first["cursor"]) == []

    def test_unreadable_record(self, system: Deployment, runs: dict[str, Run]) -> None:
        broken = runs["a dead 30"].key
        system.database.update_item(
            TableName=system.runs_table,
            Key={"job": {"S": f"{TENANT}/a"}, "run_id": {"S": broken.run_id}},
            UpdateExpression="SET dispatch = :bad",
            ExpressionAttributeValues={":bad": {"S": "x"}},
        )

        [item] = self.listed(system, state="UNREADABLE")
        assert (item["executionId"], item["state"]) == (broken.execution_id, "UNREADABLE")
        assert [each["executionId"] for each in self.listed(system, limit="1")] == [
            run.key.execution_id
            for run in (runs[name] for name in ("a done 20", "a dead 30", "b runs 10", "b dead 25"))
        ]
        assert len(self.listed(system, state="RUNNING")) == 1

    @pytest.mark.usefixtures("runs")
    def test_others_see_nothing_of_it(self, system: Deployment) -> None:
        cursor = system.call("GET", "/v1/executions", query={"limit": "1"}).document["cursor"]

        for query in ({}, {"cursor": cursor}, {"jobId": "a"}, {"jobId": "a", "cursor": cursor}):
            answer = system.call("GET", "/v1/executions", query=query, tenant=OTHER_TENANT)
            assert answer.document == {"items": []}


class TestListDead:
    def test_latest_death_first_across_jobs(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        clock.advance(hours=-1)
        other = system.register(jobId="b")
        clock.advance(hours=1)
        runs = [
            dead(system, each, clock, minutes)
            for each, minutes in ((job, 30), (other, 20), (job, 10))
        ]
        ended(system, started(system, job, due(clock, 5)), RunState.SUCCEEDED)

        items = system.call("GET", "/v1/executions", query={"state": "DEAD"}).document["items"]

        assert [item["executionId"] for item in items] == [
            run.key.execution_id for run in reversed(runs)
        ]
        assert items == [get(system, run.key) for run in reversed(runs)]

    def test_span_pool_and_pages(
        self, system: Deployment, job: Job, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manage_runs, "PAGES_AT_MOST", 2)
        for minutes in (9, 8, 7, 6):
            dead(system, job, clock, minutes, pool="batch" if minutes == 6 else "default")

        def listed(**query: str) -> list[str]:
            seen: list[str] = []
            asked = {"state": "DEAD", **query}
            while True:
                answer = system.call("GET", "/v1/executions", query=asked)
                assert answer.status == 200, answer.document
                seen += [item["scheduledAt"] for item in answer.document["items"]]
                if "cursor" not in answer.document:
                    return seen
                asked["cursor"] = answer.document["cursor"]

        def ago(*minutes: int) -> list[str]:
            return [isoformat(due(clock, each)) for each in minutes]

        assert listed(limit="1") == ago(6, 7, 8, 9)
        assert listed(limit="1", pool="default") == ago(7, 8, 9)
        assert listed(limit="3", pool="batch") == ago(6)
        assert listed(pool="nowhere") == []
        second = timedelta(seconds=1)  # it died a second after it was due
        span = {
            "from": isoformat(due(clock, 8) + second),
            "to": isoformat(due(clock, 7) + second),
        }
        assert listed(**span) == ago(7, 8)
        clock.advance(days=1)
        assert listed() == []
        assert listed(**{"from": isoformat(clock.now() - timedelta(days=2))}) == [
            isoformat(due(clock, 1440 + each)) for each in (6, 7, 8, 9)
        ]

    def test_redriven_run_is_no_longer_listed_as_dead(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        act(system, dead(system, job, clock, 5).key, "redrive")

        assert system.call("GET", "/v1/executions", query={"state": "DEAD"}).document == {
            "items": []
        }

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"state": "dead"}, "state"),
            ({"state": ""}, "state"),
            ({"jobId": "a.b"}, "jobId"),
            ({"jobId": ""}, "jobId"),
            ({"jobid": "a"}, "jobid"),
            ({"from": "yesterday"}, "from"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": "."}, "cursor"),
            ({"cursor": "a.x"}, "cursor"),
            ({"jobId": "b", "cursor": "a."}, "cursor"),
            ({"pool": ""}, "pool"),
            ({"state": "DEAD", "from": "yesterday"}, "from"),
            ({"state": "DEAD", "to": ""}, "to"),
            ({"state": "DEAD", "to": "9999-12-31T00:00:00Z"}, "to"),
            (
                {"state": "DEAD", "from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"},
                "from",
            ),
            ({"state": "DEAD", "limit": "0"}, "limit"),
            ({"state": "DEAD", "limit": "101"}, "limit"),
            ({"state": "DEAD", "limit": "9" * 5000}, "limit"),
            ({"state": "DEAD", "cursor": "x"}, "cursor"),
            ({"state": "DEAD", "cursor": "\u0000"}, "cursor"),
            ({"state": "DEAD", "pool": ""}, "pool"),
        ],
    )
    def test_refusals(self, system: Deployment, query: dict[str, str], field: str) -> None:
        assert_problem(system.call("GET", "/v1/executions", query=query), 422, field=field)

    def test_unreadable_record_is_shown_among_them(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = dead(system, job, clock, 5)
        system.database.update_item(
            TableName=system.runs_table,
            Key={"job": {"S": f"{TENANT}/a"}, "run_id": {"S": run.key.run_id}},
            UpdateExpression="SET dispatch = :bad",
            ExpressionAttributeValues={":bad": {"S": "x"}},
        )

        [item] = system.call("GET", "/v1/executions", query={"state": "DEAD"}).document["items"]

        assert (item["executionId"], item["jobId"]) == (run.key.execution_id, "a")
        assert item["state"] == "UNREADABLE"
        done = system.call("POST", "/v1/pools/default/redrive").document
        assert (done["redriven"], done["more"]) == ([], False)
        assert [each["executionId"] for each in done["skipped"]] == [run.key.execution_id]


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
        assert {get(system, run.key)["dispatch"] for run in runs} == {3}
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
        monkeypatch.setattr(pools, "_REDRIVE_FOR", timedelta())
        for minutes in range(5, 10):
            dead(system, job, clock, minutes)

        done = self.redrive(system, {"limit": 100})

        assert (len(done["redriven"]), done["more"]) == (2, True)

    def test_unknown_pool(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/pools/gpu/redrive")

        assert_problem(answer, 404)
        assert "Available: default." in answer.document["detail"]

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


class TestLogs:
    def logs(self, system: Deployment, run: RunKey, **query: str) -> dict[str, Any]:
        answer = system.call("GET", f"/v1/executions/{run.execution_id}/logs", query=query)
        assert answer.status == 200, answer.document
        return answer.document

    def test_from_parts(self, system: Deployment, job: Job) -> None:
        run = started(system, job, job.created_at)
        at = cut(job.created_at)
        parts = [[LogLine(at, "stdout", "one"), LogLine(at, "stderr", "zwei\u0007é")]]
        parts += [[LogLine(None, "stdout", "three")]]
        for number, lines in enumerate(parts):
            data = b"".join(map(encode_line, lines))
            system.files.put(run.result_folder, part_name(1, number), data)

        document = self.logs(system, run.key)

        assert document["items"] == [
            {"attempt": 1, "at": isoformat(at), "stream": "stdout", "text": "one"},
            {"attempt": 1, "at": isoformat(at), "stream": "stderr", "text": "zwei\u0007é"},
            {"attempt": 1, "stream": "stdout", "text": "three"},
        ]
        assert document["ended"] is False
        cursor = document["cursor"]
        assert self.logs(system, run.key, cursor=cursor)["items"] == []
        done = ended(system, run, log_parts=2)
        last = self.logs(system, run.key, cursor=cursor)
        assert last == {"items": [], "ended": True}
        [attempt] = get(system, done.key)["attempts"]
        assert attempt["logs"] == f"/v1/executions/{run.key.execution_id}/logs?attempt=1"

    def test_from_the_record(self, system: Deployment, job: Job) -> None:
        run = ended(system, started(system, job, job.created_at), stdout="a\nb\n", stderr="c")

        first = self.logs(system, run.key, limit="2")
        second = self.logs(system, run.key, limit="2", cursor=first["cursor"])

        assert [item["text"] for item in first["items"]] == ["a", "b"]
        assert [(item["stream"], item["text"]) for item in second["items"]] == [("stderr", "c")]
        assert (first["ended"], second["ended"]) == (True, True)
        assert "cursor" not in second
        assert "logs" not in get(system, run.key)["attempts"][0]

    def test_before_it_has_a_record(self, system: Deployment, job: Job, clock: Clock) -> None:
        key = RunKey(job.key, run_id(job.uid, due(clock)))

        document = self.logs(system, key)

        assert (document["items"], document["ended"]) == ([], False)
        assert document["cursor"]

    def test_attempt_that_there_is_not(self, system: Deployment, job: Job) -> None:
        run = ended(system, started(system, job, job.created_at))
        path = f"/v1/executions/{run.key.execution_id}/logs"

        answer = system.call("GET", path, query={"attempt": "2"})

        assert_problem(answer, 404)
        assert "Its latest is 1." in answer.document["detail"]

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"limit": "0"}, "limit"),
            ({"limit": "1001"}, "limit"),
            ({"limit": "-1"}, "limit"),
            ({"attempt": "0"}, "attempt"),
            ({"attempt": "x"}, "attempt"),
            ({"attempt": "9" * 30}, "attempt"),
            ({"cursor": ""}, "cursor"),
            ({"cursor": "1-2"}, "cursor"),
            ({"cursor": "-1-2-3"}, "cursor"),
            ({"cursor": "1-2-" + "9" * 4400}, "cursor"),
            ({"cursor": "MTIzNDU2"}, "cursor"),
            ({"cursor": "1-2-3\n"}, "cursor"),
        ],
    )
    def test_refusals(
        self, system: Deployment, job: Job, query: dict[str, str], field: str
    ) -> None:
        run = started(system, job, job.created_at)
        path = f"/v1/executions/{run.key.execution_id}/logs"

        assert_problem(system.call("GET", path, query=query), 422, field=field)

    def test_cursor_far_beyond_is_the_end(self, system: Deployment, job: Job) -> None:
        run = ended(system, started(system, job, job.created_at), stdout="a")

        document = self.logs(system, run.key, cursor="999999999-999999999-999999999")

        assert document == {"items": [], "ended": True}


class TestResults:
    def test_small_result_stands_in_listings_too(self, system: Deployment, job: Job) -> None:
        run = started(system, job, job.created_at)
        text = '{"rows": 7, "none": null}'
        ended(system, run, RunState.SUCCEEDED, value=Value(len(text), text))

        document = get(system, run.key)

        assert document["result"] == {"rows": 7, "none": None}
        assert document["resultBytes"] == len(text)
        [listed] = system.call("GET", "/v1/jobs/a/executions").document["items"]
        assert listed == document

    def test_large_result_is_loaded_for_one_execution(self, system: Deployment, job: Job) -> None:
        run = started(system, job, job.created_at)
        text = json.dumps(["é" * 1000] * 30)
        name = "result/000001.json"
        system.files.put(run.result_folder, name, text.encode())
        ended(system, run, RunState.SUCCEEDED, value=Value(len(text), file=name))

        document = get(system, run.key)
        [listed] = system.call("GET", "/v1/jobs/a/executions").document["items"]

        assert document["result"] == json.loads(text)
        assert "result" not in listed
        assert listed["resultBytes"] == document["resultBytes"] == len(text)

    @pytest.mark.parametrize(
        "data", [None, b"", b"{", b"NaN", b"1e999", b"\xff", b"[" * 100_000, b"9" * 5000]
    )
    def test_result_that_cannot_be_read(
        self, system: Deployment, job: Job, data: bytes | None
    ) -> None:
        run = started(system, job, job.created_at)
        if data is not None:
            system.files.put(run.result_folder, "result/000001.json", data)
        ended(system, run, RunState.SUCCEEDED, value=Value(9, file="result/000001.json"))

        document = get(system, run.key)

        assert "result" not in document
        assert document["resultBytes"] == 9

    def test_null_is_a_result(self, system: Deployment, job: Job) -> None:
        run = started(system, job, job.created_at)
        ended(system, run, RunState.SUCCEEDED, value=Value(4, "null"))

        assert get(system, run.key)["result"] is None

    def test_checkpoint_is_shown_by_its_size(self, system: Deployment, job: Job) -> None:
        run = started(system, job, job.created_at)
        system.runs.save(run, Value(6, '{"a":1}'))

        assert get(system, run.key)["checkpointBytes"] == 6


class TestHostileInput:
    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize(
        "execution_id", ["x", "a.b", "..", "a.20260524T100000000Z-K3X9M2AB", "é", "a" * 3000, "%00"]
    )
    def test_bad_ids(self, system: Deployment, method: str, path: str, execution_id: str) -> None:
        answer = system.call(method, path.format(execution_id))

        assert answer.status in {404, 422}, answer.document

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize("execution_id", [UNKNOWN, "a.20261399T100000000Z-k3x9m2ab"])
    def test_unknown_ids(
        self, system: Deployment, method: str, path: str, execution_id: str
    ) -> None:
        assert_problem(system.call(method, path.format(execution_id)), 404)

    @pytest.mark.parametrize("text", ["[]", "7", '"x"', "null", "{", '{"reason": NaN}', "[[[["])
    @pytest.mark.parametrize(
        "path",
        [*(path.format(UNKNOWN) for method, path in ROUTES if method == "POST"),
         "/v1/pools/default/redrive"],
    )  # fmt: skip
    def test_bad_bodies(self, system: Deployment, text: str, path: str) -> None:
        answer = system.call("POST", path, text=text)

        assert_problem(answer, 400)
        assert (
            "For example" in answer.document["detail"] or "for example" in answer.document["detail"]
        )

    @pytest.mark.parametrize(
        "path",
        [*(path.format(UNKNOWN) for method, path in ROUTES if method == "POST"),
         "/v1/pools/default/redrive"],
    )  # fmt: skip
    def test_unknown_fields(self, system: Deployment, path: str) -> None:
        assert_problem(system.call("POST", path, {"force": True}), 422, field="force")

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [*((method, path, 404) for method, path in ROUTES)],
    )
    def test_walls_between_tenants(
        self, system: Deployment, job: Job, method: str, path: str, status: int
    ) -> None:
        run = ended(system, started(system, job, job.created_at), stdout="secret")

        answer = system.call(method, path.format(run.key.execution_id), tenant=OTHER_TENANT)

        assert_problem(answer, status)
        assert system.run(message_for(job, job.created_at)) == run

    def test_the_dead_of_others_are_not_listed_nor_redriven(
        self, system: Deployment, job: Job, clock: Clock
    ) -> None:
        run = dead(system, job, clock, 5)
        other = dead(system, job, clock, 6)
        query = {"state": "DEAD", "limit": "1"}
        cursor = system.call("GET", "/v1/executions", query=query).document["cursor"]

        for more in ({}, {"cursor": cursor}):
            listed = system.call("GET", "/v1/executions", query=query | more, tenant=OTHER_TENANT)
            assert listed.document == {"items": []}
            done = system.call("POST", "/v1/pools/default/redrive", more, tenant=OTHER_TENANT)
            assert done.document == {"redriven": [], "skipped": [], "more": False}
        assert {get(system, each.key)["state"] for each in (run, other)} == {"DEAD"}


CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


texts = st.text(max_size=30) | st.from_regex(r"-?[0-9]{1,40}(-[0-9]{1,9}){0,2}", fullmatch=True)
queries = st.dictionaries(
    st.sampled_from(["state", "from", "to", "pool", "cursor", "limit", "attempt"]), texts
)
bodies = (
    st.dictionaries(
        st.sampled_from(["reason", "from", "to", "limit", "cursor"]), texts | json_values
    )
    | json_values
)


@settings(
    max_examples=100 if LONG else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(query=queries, body=bodies, execution_id=texts)
def test_no_request_causes_a_server_error(
    system: Deployment, job: Job, query: dict[str, str], body: object, execution_id: str
) -> None:
    known = run_id(job.uid, job.created_at)
    for each in (f"a.{known}", quote(execution_id) or "x"):
        for method, path in ROUTES:
            answer = system.call(method, path.format(each), body, query=query)
            assert answer.status < 500, (method, path, answer.document)
    for query_ in (query, query | {"state": "DEAD"}):
        assert system.call("GET", "/v1/executions", query=query_).status in {200, 422}
    assert system.call("POST", "/v1/pools/default/redrive", body).status in {200, 400, 422}


class TestPolicies:
    @pytest.mark.parametrize(
        ("policy", "field", "value"),
        [
            ({"maxAttempts": 0}, "retryPolicy.maxAttempts", "0"),
            ({"maxAttempts": -1}, "retryPolicy.maxAttempts", "-1"),
            ({"maxAttempts": 101}, "retryPolicy.maxAttempts", "101"),
            ({"maxAttempts": None}, "retryPolicy.maxAttempts", "null"),
            ({"maxAttempts": "unlimited"}, "retryPolicy.maxAttempts", "'unlimited'"),
            ({"initialDelayMs": 10**12}, "retryPolicy.initialDelayMs", "1000000000000"),
            ({"maxDelayMs": -1}, "retryPolicy.maxDelayMs", "-1"),
            ({"jitter": "HALF"}, "retryPolicy.jitter", "'HALF'"),
            ({"retryOn": {"states": ["SUCCEEDED"]}}, "retryPolicy.retryOn.states.0", "'SUCCEEDED'"),
            ({"retryOn": {"exitCodes": []}}, "retryPolicy.retryOn.exitCodes", "[]"),
            ({"retryOn": {"exitCodes": [256]}}, "retryPolicy.retryOn.exitCodes.0", "256"),
        ],
    )
    def test_policy_that_never_ends_or_says_nothing(
        self, system: Deployment, policy: dict[str, Any], field: str, value: str
    ) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"retryPolicy": policy})

        assert_problem(answer, 422, field=field)
        assert answer.fault["value"] == value
        assert "For example" in answer.fault["remedy"]

    def test_delays_that_add_up_to_years(self, system: Deployment) -> None:
        policy = {"maxAttempts": 100, "initialDelayMs": 5_000_000_000, "backoff": "FIXED"}

        answer = system.call("POST", "/v1/jobs", CRON | {"retryPolicy": policy})

        assert_problem(answer, 422, field="retryPolicy")
        assert answer.fault["problem"] == "the delays add up to 5729 days, more than 1830"
        assert answer.fault["remedy"] == "Lower maxAttempts, initialDelayMs or maxDelayMs."

    def test_whole_policy_comes_back(self, system: Deployment) -> None:
        policy = {
            "maxAttempts": 100,
            "backoff": "LINEAR",
            "initialDelayMs": 86_400_000,
            "maxDelayMs": 86_400_000,
            "jitter": "FULL",
            "retryOn": {"states": ["FAILED", "WORKER_LOST"], "exitCodes": [75, -9]},
        }

        answer = system.call("POST", "/v1/jobs", CRON | {"retryPolicy": policy})

        assert answer.status == 201, answer.document
        assert answer.document["retryPolicy"] == policy

    @pytest.mark.parametrize(
        ("env", "field", "problem"),
        [
            ({"HOME": "/"}, "target.env", "HOME is set by the executor"),
            ({"NEXTFIRE_X": "/"}, "target.env", "NEXTFIRE_X is set by the executor"),
            ({"1 a": "x"}, "target.env.1 a.[key]", "not the name of a variable"),
            ({"A": 7}, "target.env.A", "neither a string nor a reference"),
            ({"A": None}, "target.env.A", "neither a string nor a reference"),
            ({"A": {"secret": "../x"}}, "target.env.A.secret", "not a reference"),
            ({"A": {"parameter": "/x"}}, "target.env.A.parameter", "not a reference"),
            ({"A": {"secret": "x", "more": 1}}, "target.env.A.more", "unknown field"),
            ({"A": "x" * 4097}, "target.env.A", "at most 4096"),
            ({f"A{n}": "x" * 4096 for n in range(5)}, "target.env", "more than 16384"),
            ({f"A{n}": "x" for n in range(65)}, "target.env", "more than 64"),
            ([], "target.env", "should be an object"),
        ],
    )
    def test_environment(self, system: Deployment, env: object, field: str, problem: str) -> None:
        target = {"handler": "hello", "env": env}

        answer = system.call("POST", "/v1/jobs", CRON | {"target": target})

        assert_problem(answer, 422, field=field)
        assert problem in answer.fault["problem"]

    def test_references_come_back_as_they_are(self, system: Deployment) -> None:
        env = {
            "LEVEL": "debug",
            "KEY": {"secret": "billing/key", "key": "api"},
            "URL": {"parameter": "billing/url"},
        }
        target = {"pool": "default", "handler": "app.zip", "env": env}

        answer = system.call("POST", "/v1/jobs", CRON | {"target": target})

        assert answer.status == 201, answer.document
        assert answer.document["target"] == target

    def test_a_variable_is_patched_whole(self, system: Deployment) -> None:
        env = {"KEY": {"secret": "a", "key": "b"}, "OLD": "x", "KEPT": "y"}
        job = system.register(target={"handler": "hello", "env": env})
        change = {"KEY": {"parameter": "p"}, "OLD": None, "NEW": "z"}

        answer = system.call("PATCH", f"/v1/jobs/{job.key.job_id}", {"target": {"env": change}})

        assert answer.document["target"]["env"] == {
            "KEY": {"parameter": "p"},
            "KEPT": "y",
            "NEW": "z",
        }

    @pytest.mark.parametrize(
        ("target", "field"),
        [
            *(({"handler": name}, "target.handler")
              for name in ("../x", "a/b", "..", ".", "s3://b/x", "", "a" * 129, "a\n")),
            *(({"script": url}, "target.script")
              for url in ("s3://scripts/other/x.py", "s3://theirs/x.py", "/etc/passwd",
                          f"s3://scripts/{TENANT}/../{OTHER_TENANT}/x.py",
                          f"s3://scripts/{TENANT}/")),
            ({}, "target"),
            ({"handler": "a", "script": "s3://scripts/x"}, "target"),
        ],
    )  # fmt: skip
    def test_script_outside_the_tenants_prefix(
        self, system: Deployment, target: dict[str, str], field: str
    ) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"target": target})

        assert_problem(answer, 422, field=field)
        assert "Value error" not in answer.document["detail"]

    def test_timeout_above_the_pools(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"timeoutSec": 841})

        assert_problem(answer, 422, field="timeoutSec")
        assert answer.fault["problem"] == "longer than pool 'default' allows"
        assert "Use at most 840" in answer.fault["remedy"]
