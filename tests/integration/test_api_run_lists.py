"""The API's lists of runs: of all jobs, and of dead runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import manage_runs
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.api_runs import act, dead, due, ended, get, started
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment


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
