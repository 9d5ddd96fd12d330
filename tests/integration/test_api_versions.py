"""Concurrent changes of a job: entity tags, If-Match, and PUT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.instants import cut
from nextfire.domain.occurrences import JobState
from tests.builders import a_fire
from tests.integration.deployment import OTHER_TENANT, Answer, Deployment

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}
CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "/v1/jobs/a", CRON | {"name": "n"}),
    ("PUT", "/v1/jobs/a", CRON),
    ("PATCH", "/v1/jobs/a", {"name": "n"}),
    ("DELETE", "/v1/jobs/a", None),
    ("POST", "/v1/jobs/a/pause", None),
    ("POST", "/v1/jobs/a/resume", None),
]


@pytest.fixture
def job(system: Deployment) -> Answer:
    return system.call("POST", "/v1/jobs", CRON | {"jobId": "a"})


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/jobs/a"), ("POST", "/v1/jobs")])
def test_an_id_with_unsent_due_occurrences_is_not_free(
    system: Deployment, method: str, path: str
) -> None:
    now = cut(SystemClock().now())
    system.due.put([a_fire(system.job("a"), now)], now)
    system.call("DELETE", "/v1/jobs/a")

    answer = system.call(method, path, CRON | ({"jobId": "a"} if method == "POST" else {}))

    assert answer.status == 409
    assert "Due occurrences of" in answer.document["detail"]
    assert system.job("a").state is JobState.CANCELLED


class TestMatch:
    def test_every_answer_that_shows_one_job_bears_its_tag(
        self, system: Deployment, job: Answer
    ) -> None:
        tag = job.headers["etag"]

        assert tag == f'"{system.job("a").uid}-1"'
        assert system.call("GET", "/v1/jobs/a").headers["etag"] == tag
        tags = {tag}
        for method, path, body in CHANGES[:3] + CHANGES[4:] + CHANGES[3:4]:
            answer = system.call(method, path, body)
            tags.add(answer.headers["etag"])
            assert answer.headers["etag"] == f'"{system.job("a").version}"'
        assert len(tags) == 7, "each change has its own tag"

    @pytest.mark.parametrize(("method", "path", "body"), CHANGES)
    def test_job_that_has_changed_stays_as_it_is(
        self, system: Deployment, job: Answer, method: str, path: str, body: Any
    ) -> None:
        system.call("PATCH", "/v1/jobs/a", {"name": "theirs"})
        before = system.job("a")

        answer = system.call(method, path, body, headers={"If-Match": job.headers["etag"]})

        assert answer.status == 412
        assert before.version in answer.document["detail"]
        assert system.job("a") == before

    @pytest.mark.parametrize(("method", "path", "body"), CHANGES)
    @pytest.mark.parametrize(
        "form", ["{}", '"x-1", {}', '{},"y"', " {} ", "*", '"a,b",{}', ", {} ,,", 'W/"x", {}']
    )
    def test_job_that_is_as_expected_is_changed(
        self, system: Deployment, job: Answer, method: str, path: str, body: Any, form: str
    ) -> None:
        tag = form.format(job.headers["etag"])

        assert system.call(method, path, body, headers={"if-match": tag}).status == 200

    def test_a_weak_tag_is_rejected_with_its_reason(self, system: Deployment, job: Answer) -> None:
        weak = {"If-Match": f"W/{job.headers['etag']}"}

        for method, path, body in CHANGES:
            answer = system.call(method, path, body, headers=weak)

            assert answer.status == 412
            assert "weak" in answer.document["detail"]
        assert system.job("a").revision == job.document["revision"]

    @pytest.mark.usefixtures("job")
    @pytest.mark.parametrize(
        ("method", "path", "body", "header"),
        [
            ("POST", "/v1/jobs/a/run", None, "If-Match"),
            ("POST", "/v1/jobs:pause", {"allJobs": True}, "If-Match"),
            ("POST", "/v1/jobs", CRON, "If-None-Match"),
            ("DELETE", "/v1/jobs/a", None, "If-None-Match"),
        ],
    )
    def test_a_condition_that_is_not_checked_is_rejected(
        self, system: Deployment, method: str, path: str, body: Any, header: str
    ) -> None:
        before = system.job("a")

        answer = system.call(method, path, body, headers={header.lower(): '"x-1"'})

        assert (answer.status, answer.fault["field"]) == (422, header)
        assert system.job("a") == before
        assert not system.call("GET", "/v1/jobs/a/executions").document["items"]

    def test_a_read_ignores_conditions(self, system: Deployment, job: Answer) -> None:
        headers = {"If-None-Match": job.headers["etag"], "If-Match": '"x-1"'}

        assert system.call("GET", "/v1/jobs/a", headers=headers).status == 200

    @pytest.mark.parametrize("tag", ['W/"{}"', '"x-1"', '""', '"{}x"', '"a,b"', '"x-1", W/"{}"'])
    def test_tag_of_something_else(self, system: Deployment, job: Answer, tag: str) -> None:
        tag = tag.format(job.headers["etag"].strip('"'))

        answer = system.call("DELETE", "/v1/jobs/a", headers={"If-Match": tag})

        assert answer.status == 412

    @pytest.mark.parametrize(
        "tag", ["", "x", "x-1", '"x', '"', '"a" "b"', '"é"', ",", 'w/"a"', '*, "a"']
    )
    def test_no_tag_at_all(self, system: Deployment, job: Answer, tag: str) -> None:
        answer = system.call("DELETE", "/v1/jobs/a", headers={"If-Match": tag})

        assert (answer.status, answer.fault["field"]) == (422, "If-Match")
        assert system.job("a").revision == job.document["revision"]

    def test_tag_of_a_former_job_of_that_id(self, system: Deployment, job: Answer) -> None:
        system.call("DELETE", "/v1/jobs/a")
        system.call("POST", "/v1/jobs", CRON | {"jobId": "a"})

        headers = {"If-Match": job.headers["etag"]}

        assert system.call("PATCH", "/v1/jobs/a", {}, headers=headers).status == 412
        assert system.call("PUT", "/v1/jobs/a", CRON, headers=headers).status == 412

    def test_of_a_hundred_changes_at_a_time_one_wins(
        self, system: Deployment, job: Answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        headers = {"If-Match": job.headers["etag"]}

        answers = system.side_by_side(
            monkeypatch,
            *(
                partial(system.call, "PATCH", "/v1/jobs/a", {"name": f"n{n}"}, headers=headers)
                for n in range(100)
            ),
        )

        assert Counter(answer.status for answer in answers) == {200: 1, 412: 99}
        [winner] = [answer for answer in answers if answer.status == 200]
        assert system.shown("a") == winner.document
        assert winner.document["revision"] == 2

    def test_each_version_has_one_winner(
        self, system: Deployment, job: Answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def change(label: str) -> Answer:
            tag = system.call("GET", "/v1/jobs/a").headers["etag"]
            return system.call(
                "PATCH", "/v1/jobs/a", {"labels": {label: ""}}, headers={"If-Match": tag}
            )

        calls: list[Callable[[], Answer]] = [partial(change, f"l{n}") for n in range(30)]
        answers = system.side_by_side(monkeypatch, *calls)

        won = [answer.document for answer in answers if answer.status == 200]
        assert sorted(each["revision"] for each in won) == [*range(2, 2 + len(won))]
        assert {answer.status for answer in answers} <= {200, 412}
        assert system.job("a").revision == 1 + len(won)
        # Each winner saw the changes of the previous winner.
        assert all(len(each["labels"]) == each["revision"] - 1 for each in won)
        assert job.document["revision"] == 1


class TestPut:
    def test_new_job_of_a_chosen_id(self, system: Deployment) -> None:
        made = system.call("PUT", "/v1/jobs/a", CRON)

        assert (made.status, made.document["jobId"], made.document["revision"]) == (201, "a", 1)
        assert made.document == system.shown("a")
        assert len(system.due_items()) == 1

    def test_twice_the_same_is_once(self, system: Deployment) -> None:
        first = system.call("PUT", "/v1/jobs/a", CRON | {"payload": {"x": 1}})
        again = system.call("PUT", "/v1/jobs/a", CRON | {"payload": {"x": 1}, "jobId": "a"})

        assert (again.status, again.document) == (200, first.document)
        assert again.headers["etag"] == first.headers["etag"]
        assert len(system.due_items()) == 1

    def test_what_is_left_out_gets_its_default(self, system: Deployment) -> None:
        system.call("PUT", "/v1/jobs/a", CRON | {"name": "n", "labels": {"l": "1"}})

        replaced = system.call("PUT", "/v1/jobs/a", CRON | {"schedule": "0 4 * * *"})

        assert (replaced.status, replaced.document["revision"]) == (200, 2)
        assert "name" not in replaced.document
        assert (replaced.document["labels"], replaced.document["schedule"]) == ({}, "0 4 * * *")
        assert len(system.due_items()) == 2, "the new schedule brought its own entry"

    def test_true_and_1_are_different_payloads(self, system: Deployment) -> None:
        system.call("PUT", "/v1/jobs/a", CRON | {"payload": [1]})

        replaced = system.call("PUT", "/v1/jobs/a", CRON | {"payload": [True]})

        assert replaced.document["revision"] == 2
        assert replaced.document["payload"] == [True]

    def test_put_recreates_a_deleted_job(self, system: Deployment, job: Answer) -> None:
        system.call("DELETE", "/v1/jobs/a")

        made = system.call("PUT", "/v1/jobs/a", CRON, headers={"If-None-Match": "*"})

        assert (made.status, made.document["revision"]) == (201, 1)
        assert made.headers["etag"] != job.headers["etag"]

    def test_if_none_match_creates_only_new_jobs(self, system: Deployment, job: Answer) -> None:
        headers = {"If-None-Match": "*"}

        assert system.call("PUT", "/v1/jobs/a", CRON, headers=headers).status == 412
        assert system.call("PUT", "/v1/jobs/b", CRON, headers=headers).status == 201
        assert system.job("a").revision == job.document["revision"]

    def test_only_if_there_is_one(self, system: Deployment) -> None:
        assert system.call("PUT", "/v1/jobs/a", CRON, headers={"If-Match": '"x-1"'}).status == 412
        assert system.call("GET", "/v1/jobs/a").status == 404

    @pytest.mark.usefixtures("job")
    def test_only_if_there_is_any(self, system: Deployment) -> None:
        headers = {"If-Match": " * "}

        assert system.call("PUT", "/v1/jobs/a", CRON | {"name": "n"}, headers=headers).status == 200
        assert system.call("PUT", "/v1/jobs/b", CRON, headers=headers).status == 412
        assert system.call("GET", "/v1/jobs/b").status == 404
        system.call("DELETE", "/v1/jobs/a")
        assert system.call("PUT", "/v1/jobs/a", CRON, headers=headers).status == 412
        assert system.job("a").state is JobState.CANCELLED

    def test_other_conditions_are_refused(self, system: Deployment) -> None:
        answer = system.call("PUT", "/v1/jobs/a", CRON, headers={"If-None-Match": '"x-1"'})

        assert (answer.status, answer.fault["field"]) == (422, "If-None-Match")

    def test_the_body_names_no_other_id(self, system: Deployment) -> None:
        answer = system.call("PUT", "/v1/jobs/a", CRON | {"jobId": "b"})

        assert (answer.status, answer.fault["field"]) == (422, "jobId")
        assert system.call("GET", "/v1/jobs").document["items"] == []

    def test_paused_job_stays_paused(self, system: Deployment, job: Answer) -> None:
        assert job.status == 201
        system.call("POST", "/v1/jobs/a/pause")

        replaced = system.call("PUT", "/v1/jobs/a", CRON | {"schedule": "0 5 * * *"})

        assert (replaced.status, replaced.document["state"]) == (200, "PAUSED")

    def test_another_tenants_job_of_that_id_is_another(
        self, system: Deployment, job: Answer
    ) -> None:
        theirs = system.call("PUT", "/v1/jobs/a", CRON | {"name": "theirs"}, tenant=OTHER_TENANT)

        assert theirs.status == 201
        assert system.shown("a") == job.document

    def test_of_many_at_a_time_one_is_made(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = [
            partial(system.call, "PUT", "/v1/jobs/a", CRON, headers={"If-None-Match": "*"})
            for _ in range(10)
        ] + [partial(system.call, "PUT", "/v1/jobs/a", CRON) for _ in range(10)]

        answers = system.side_by_side(monkeypatch, *calls)

        counted = Counter(answer.status for answer in answers)
        assert counted[201] == 1
        assert counted.keys() <= {200, 201, 412}
        assert counted[412] <= 10
        assert len(system.due_items()) == 1
