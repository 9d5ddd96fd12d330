"""Changes of a job over the API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.api import services as api
from nextfire.domain.due import fire
from nextfire.domain.instants import parse_instant
from tests.integration.api_answers import CRON, assert_problem
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment, Proxy


class TestPatch:
    def test_what_is_named_changes_and_the_rest_stays(self, system: Deployment) -> None:
        created = system.call(
            "POST",
            "/v1/jobs",
            CRON
            | {
                "jobId": "a",
                "name": "n",
                "labels": {"keep": "1", "drop": "2", "change": "3"},
                "payload": {"a": {"b": 1}, "c": None},
                "retryPolicy": {"maxAttempts": 7, "backoff": "FIXED"},
            },
        ).document

        changed = system.call(
            "PATCH",
            "/v1/jobs/a",
            {
                "name": None,
                "labels": {"drop": None, "change": "4", "add": "5"},
                "retryPolicy": {"maxAttempts": 8},
                "priority": "HIGH",
            },
        ).document

        policy = {**created["retryPolicy"], "maxAttempts": 8}
        labels = {"keep": "1", "change": "4", "add": "5"}
        expected = created | {"labels": labels, "retryPolicy": policy, "priority": "HIGH"}
        expected |= {"revision": 2, "updatedAt": changed["updatedAt"]}
        del expected["name"]
        assert changed == expected
        assert system.shown("a") == changed
        assert len(system.due_items()) == 1, "the schedule did not change"

    @pytest.mark.parametrize("payload", [{"x": 1}, {"a": None}, {}, None, [1]])
    def test_payload_is_replaced_whole(self, system: Deployment, payload: object) -> None:
        system.register(jobId="a", payload={"a": 1, "b": {"c": 2}})

        changed = system.call("PATCH", "/v1/jobs/a", {"payload": payload})

        assert changed.document["payload"] == payload
        assert system.call("GET", "/v1/jobs/a").document["payload"] == payload

    def test_a_label_named_as_a_field_is_removed_by_null(self, system: Deployment) -> None:
        system.register(jobId="a", labels={"payload": "1", "env": "2", "keep": "3"})

        removed = system.call("PATCH", "/v1/jobs/a", {"labels": {"payload": None, "env": None}})

        assert removed.status == 200, removed.document
        assert removed.document["labels"] == {"keep": "3"}

    def test_each_variable_is_replaced_whole(self, system: Deployment) -> None:
        env = {"A": {"secret": "a", "key": "k"}, "B": "b", "C": "c"}
        system.register(jobId="a", target={"handler": "hello", "env": env})

        patch = {"target": {"env": {"A": {"parameter": "p"}, "B": None}}}
        changed = system.call("PATCH", "/v1/jobs/a", patch)

        assert changed.document["target"]["env"] == {"A": {"parameter": "p"}, "C": "c"}

    @pytest.mark.parametrize(
        ("stored", "patch", "delays"),
        [
            ({}, {"initialDelayMs": 7_200_000}, (7_200_000, 7_200_000)),
            ({"initialDelayMs": 7_200_000}, {"initialDelayMs": 1_000}, (1_000, 3_600_000)),
            ({"maxDelayMs": 60_000}, {"initialDelayMs": 90_000}, (90_000, 60_000)),
            ({}, {"initialDelayMs": 90_000, "maxDelayMs": 60_000}, (90_000, 60_000)),
            ({"initialDelayMs": 7_200_000}, {"backoff": "FIXED"}, (7_200_000, 7_200_000)),
        ],
    )
    def test_default_of_the_longest_delay_follows_the_first_delay(
        self,
        system: Deployment,
        stored: dict[str, int],
        patch: dict[str, Any],
        delays: tuple[int, int],
    ) -> None:
        system.register(jobId="a", retryPolicy=stored)

        changed = system.call("PATCH", "/v1/jobs/a", {"retryPolicy": patch})

        policy = changed.document["retryPolicy"]
        assert (policy["initialDelayMs"], policy["maxDelayMs"]) == delays

    def test_empty_patch_changes_nothing_but_the_revision(self, system: Deployment) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).document

        changed = system.call("PATCH", "/v1/jobs/a", {}).document

        assert changed == created | {"revision": 2, "updatedAt": changed["updatedAt"]}

    def test_fields_of_a_newer_version_survive_a_patch(self, system: Deployment) -> None:
        system.register(jobId="a", target={"handler": "hello", "env": {"A": {"secret": "a"}}})
        key = {"tenant": {"S": TENANT}, "job_id": {"S": "a"}}
        item = system.database.get_item(TableName=system.jobs_table, Key=key)["Item"]
        text = item["definition"]["S"].replace('{"secret":"a"}', '{"secret":"a","new":1}')
        text = text.replace('{"type"', '{"newer":{"b":[2]},"type"')
        new: Any = {"definition": {"S": text}, "newest": {"S": "c"}}
        system.database.put_item(TableName=system.jobs_table, Item=item | new)

        changed = system.call("PATCH", "/v1/jobs/a", {"timeoutSec": 7})

        assert changed.status == 200
        assert "newer" not in changed.document
        assert changed.document["target"]["env"] == {"A": {"secret": "a"}}
        after = system.database.get_item(TableName=system.jobs_table, Key=key)["Item"]
        stored = json.loads(after["definition"]["S"])
        assert (stored["timeoutSec"], stored["newer"]) == (7, {"b": [2]})
        assert stored["target"]["env"] == {"A": {"secret": "a", "new": 1}}
        assert after["newest"] == {"S": "c"}
        assert system.call("PATCH", "/v1/jobs/a", {"newer": {"b": []}}).status == 422

    def test_default_returns_where_a_field_is_null(self, system: Deployment) -> None:
        system.register(jobId="a", timeoutSec=7, timezone="Asia/Tokyo")

        changed = system.call("PATCH", "/v1/jobs/a", {"timeoutSec": None, "timezone": None})

        assert (changed.document["timeoutSec"], changed.document["timezone"]) == (300, "UTC")

    def test_new_schedule_brings_its_own_due_entry(self, system: Deployment) -> None:
        before = system.register(jobId="a", schedule="0 3 * * *")

        changed = system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"}).document

        after = system.job("a")
        assert after.schedule_version > before.schedule_version
        assert {item["entry"]["S"] for item in system.due_items()} == {
            fire(job.key, job.uid, job.schedule_version, at).sort_key
            for job, at in (
                (before, before.next_after(before.created_at)),
                (after, parse_instant(changed["nextFireAt"])),
            )
            if at is not None
        }

    @pytest.mark.parametrize(
        ("patch", "field"),
        [
            ({"jobId": "b"}, "jobId"),
            ({"timeout_sec": 5}, "timeout_sec"),
            ({"state": "CANCELLED"}, "state"),
            ({"type": None}, "type"),
            ({"schedule": "0 0 30 2 *"}, "schedule"),
            ({"target": {"pool": "gpu"}}, "target.pool"),
            (
                {"target": {"script": f"s3://scripts/{OTHER_TENANT}/x.py", "handler": None}},
                "target.script",
            ),
            ({"timeoutSec": 841}, "timeoutSec"),
            ({"payload": "x" * 64 * 1024}, "payload"),
        ],
        ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else value,
    )
    def test_refused_patch_leaves_the_job_as_it_was(
        self, system: Deployment, patch: dict[str, Any], field: str
    ) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).document

        assert_problem(system.call("PATCH", "/v1/jobs/a", patch), 422, field=field)

        assert system.shown("a") == created

    def test_labels_cannot_be_heaped_up(self, system: Deployment) -> None:
        system.register(jobId="a")

        answers = [
            system.call("PATCH", "/v1/jobs/a", {"labels": {f"{n}": "x" * 200_000}})
            for n in range(3)
        ]

        assert {answer.status for answer in answers} == {422}

    def test_of_two_changes_at_once_none_is_lost(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.register(jobId="a")
        proxy = Proxy(system.database)

        def overtaken(real: Any, request: dict[str, Any]) -> Any:
            del proxy.instead["put_item"]
            system.call("PATCH", "/v1/jobs/a", {"labels": {"theirs": "1"}})
            return real(**request)

        proxy.instead["put_item"] = overtaken
        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
        api.own_services.cache_clear()

        changed = system.call("PATCH", "/v1/jobs/a", {"labels": {"ours": "1"}})

        assert changed.status == 200
        assert changed.document["labels"] == {"ours": "1", "theirs": "1"}
        assert changed.document["revision"] == 3
