"""Jobs and runs that do not decode, as the API shows them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.ids import RunKey
from nextfire.domain.instants import floor_minute
from tests.integration.api_answers import CRON, assert_problem, pages
from tests.integration.deployment import TENANT, Deployment, message_for


class TestUnreadable:
    """One item that does not decode does not affect the other items."""

    def spoil(self, system: Deployment, job_id: str, attribute: str, value: Any) -> None:
        system.database.update_item(
            TableName=system.jobs_table,
            Key={"tenant": {"S": TENANT}, "job_id": {"S": job_id}},
            UpdateExpression="SET #a = :v",
            ExpressionAttributeNames={"#a": attribute},
            ExpressionAttributeValues={":v": value},
        )

    def spoil_run(self, system: Deployment, key: RunKey, attribute: str, value: Any) -> None:
        partition = f"{key.job.tenant}/{key.job.job_id}"
        system.database.update_item(
            TableName=system.runs_table,
            Key={"job": {"S": partition}, "run_id": {"S": key.run_id}},
            UpdateExpression="SET #a = :v",
            ExpressionAttributeNames={"#a": attribute},
            ExpressionAttributeValues={":v": value},
        )

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("state", {"S": "HIBERNATING"}),
            ("state", {"N": "1"}),
            ("definition", {"S": "{}"}),
            ("definition", {"S": "{"}),
            ("definition", {"NULL": True}),
            ("definition", {"M": {}}),
            ("revision", {"S": "one"}),
            ("revision", {"L": []}),
            ("effective_from", {"S": "yesterday"}),
            ("effective_from", {"N": "5"}),
            ("replaced", {"S": "[1]"}),
            ("replaced", {"S": '{"a": 1}'}),
            ("replaced", {"M": {"a": {"S": "b"}}}),
            ("counted_from", {"BOOL": True}),
            ("uid", {"NULL": True}),
            ("pause_reason", {"L": [{"S": "x"}]}),
        ],
        ids=lambda value: json.dumps(value)[:30],
    )
    def test_job_is_shown_among_the_others(
        self, system: Deployment, attribute: str, value: Any
    ) -> None:
        for job_id in "abc":
            system.register(jobId=job_id)
        self.spoil(system, "b", attribute, value)

        answer = system.call("GET", "/v1/jobs")

        assert answer.status == 200, answer.document
        first, second, third = answer.document["items"]
        assert [first["jobId"], second["jobId"], third["jobId"]] == ["a", "b", "c"]
        assert (first["state"], third["state"]) == ("ACTIVE", "ACTIVE")
        assert second.keys() == {"jobId", "state", "reason"}
        assert second["state"] == "UNREADABLE"
        assert "does not decode" in second["reason"]
        assert "\n" not in second["reason"]

    def test_it_is_paged_over(self, system: Deployment) -> None:
        for job_id in "abcde":
            system.register(jobId=job_id)
        for job_id in "abd":
            self.spoil(system, job_id, "definition", {"S": "{}"})

        found = [[job["jobId"] for job in page] for page in pages(system, "/v1/jobs", limit=2)]

        assert found == [["a", "b"], ["c", "d"], ["e"]]

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("GET", "/v1/jobs/a", None),
            ("PATCH", "/v1/jobs/a", {"name": "n"}),
            ("DELETE", "/v1/jobs/a", None),
            ("POST", "/v1/jobs", CRON | {"jobId": "a"}),
            ("POST", "/v1/jobs/a/pause", None),
            ("POST", "/v1/jobs/a/resume", None),
            ("GET", "/v1/jobs/a/upcoming", None),
            ("GET", "/v1/jobs/a/executions", None),
        ],
        ids=lambda value: value if isinstance(value, str) else None,
    )
    def test_job_by_its_id_is_a_problem_that_says_what_to_do(
        self,
        system: Deployment,
        caplog: pytest.LogCaptureFixture,
        method: str,
        path: str,
        body: object,
    ) -> None:
        system.register(jobId="a")
        self.spoil(system, "a", "definition", {"S": "{}"})
        before = system.database.scan(TableName=system.jobs_table)["Items"]

        answer = system.call(method, path, body)

        assert_problem(answer, 500)
        assert answer.document["title"] == "Stored item is unreadable"
        assert "job does not decode" in answer.document["detail"]
        assert "correct it in its table" in answer.document["detail"]
        assert system.database.scan(TableName=system.jobs_table)["Items"] == before
        [logged] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert vars(logged)["path"] == path

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("state", {"S": "HIBERNATING"}),
            ("attempts", {"S": "none"}),
            ("attempts", {"L": [{"M": {}}]}),
            ("attempts", {"L": [{"N": "1"}]}),
            ("dispatched_at", {"S": "yesterday"}),
            ("dispatched_at", {"N": "5"}),
            ("covered_to", {"S": "x"}),
            ("covered_to", {"N": "1E+30"}),
            ("covered", {"L": []}),
            ("fence", {"NULL": True}),
            ("attempt", {"M": {}}),
        ],
        ids=lambda value: json.dumps(value)[:30],
    )
    def test_execution_is_shown_among_the_others(
        self, system: Deployment, attribute: str, value: Any
    ) -> None:
        job = system.register(jobId="a")
        start = floor_minute(job.created_at)
        messages = [message_for(job, start + timedelta(minutes=n)) for n in range(3)]
        for message in messages:
            system.runs.cancel(message, reason="for the test", now=start)
        broken = messages[1].key
        self.spoil_run(system, broken, attribute, value)

        answer = system.call("GET", "/v1/jobs/a/executions")

        assert answer.status == 200, answer.document
        items = answer.document["items"]
        assert [run["executionId"] for run in items] == [
            message.key.execution_id for message in reversed(messages)
        ]
        assert [run["state"] for run in items] == ["CANCELLED", "UNREADABLE", "CANCELLED"]
        assert items[1].keys() == {"executionId", "jobId", "state", "reason"}
        alone = system.call("GET", f"/v1/executions/{broken.execution_id}")
        assert_problem(alone, 500)
        assert alone.document["title"] == "Stored item is unreadable"
