"""The API's routes for the logs and results of runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nextfire.domain.attempt import Value
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import cut, isoformat
from nextfire.domain.job import Job
from nextfire.domain.log import LogLine, encode_line, part_name
from nextfire.domain.run import RunState
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.api_runs import due, ended, get, started
from tests.integration.deployment import Deployment


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
        key = job.run_key(due(clock))

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
