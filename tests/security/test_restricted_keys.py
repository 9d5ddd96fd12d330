"""Attacks with keys that are restricted to jobs with some labels."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from functions.api import access
from nextfire.adapters.dynamodb.items import from_item
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.restriction import Restriction
from nextfire.domain.run import Run, RunState
from nextfire.usecases import job_edges
from tests.builders import NOON, a_job, a_message, job_key, run_key
from tests.fakes import MemoryRunStore
from tests.integration.deployment import Deployment
from tests.security.callers import ELSEWHERE, JOB, Caller, admin, key_of

pytestmark = pytest.mark.usefixtures("clock")

ETL = {"team": "etl"}


class TestRestrictedKeys:
    """Keys created by a restricted key, and versions that do not know restrictions."""

    def test_a_restricted_admin_key_makes_no_freer_one(self, system: Deployment) -> None:
        limits = {"cidrs": ["203.0.113.0/24"], "labels": ETL}
        by = Caller(system, key_of(admin(system), "admin", **limits)["key"])

        inherited = key_of(by, "admin")
        assert (inherited["cidrs"], inherited["labels"]) == (["203.0.113.0/24"], ETL)
        narrower = key_of(by, "run", cidrs=["203.0.113.8/29"], labels={"env": "test"})
        assert narrower["cidrs"] == ["203.0.113.8/29"]
        assert narrower["labels"] == {"env": "test", "team": "etl"}
        for wider in (
            {"cidrs": ["0.0.0.0/0"]}, {"cidrs": ["203.0.113.0/24", "::/0"]},
            {"cidrs": ["203.0.112.0/23"]}, {"labels": {"team": "ops"}},
        ):  # fmt: skip
            answer = by.call("POST", "/v1/keys", {"name": "n", "scopes": ["read"], **wider})
            assert (answer.status, answer.document.get("key")) == (403, None)
            restricted = "calls from 203.0.113.0/24 and jobs labelled team=etl"
            assert f"Your key is restricted to {restricted}, and" in answer.document["detail"]

    def test_a_restricted_admin_key_takes_over_no_freer_one(self, system: Deployment) -> None:
        first = admin(system)
        free = key_of(first, "admin")["keyId"]
        by = Caller(system, key_of(first, "admin", labels=ETL)["key"])

        assert by.call("POST", f"/v1/keys/{free}/rotate", {}).status == 404
        assert by.call("GET", f"/v1/keys/{free}").status == 404
        assert by.call("DELETE", f"/v1/keys/{free}").status == 404
        assert first.call("GET", f"/v1/keys/{free}").document["state"] == "ACTIVE"
        shown = by.call("GET", "/v1/keys").document["items"]
        assert [key["labels"] for key in shown] == [ETL]

    def test_a_repeated_request_of_a_freer_key_shows_nothing_of_its_key(
        self, system: Deployment
    ) -> None:
        first, once = admin(system), {"Idempotency-Key": "the-same"}
        by = Caller(system, key_of(first, "admin", cidrs=["203.0.113.0/24"])["key"])
        asked = {"name": "n", "scopes": ["admin"]}
        made = first.call("POST", "/v1/keys", asked, headers=once).document

        answer = by.call("POST", "/v1/keys", asked, headers=once)

        assert answer.status == 409
        assert made["keyId"] not in answer.document["detail"]

    def test_rotation_keeps_the_restriction(self, system: Deployment) -> None:
        by = admin(system)
        made = key_of(by, "run", cidrs=["203.0.113.0/24"], labels=ETL)

        new = by.call("POST", f"/v1/keys/{made['keyId']}/rotate", {}).document["new"]

        assert (new["cidrs"], new["labels"]) == (["203.0.113.0/24"], ETL)
        assert Caller(system, new["key"]).call("GET", "/v1/jobs", source=ELSEWHERE).status == 403

    def test_a_version_without_restrictions_refuses_a_restricted_key(
        self, system: Deployment
    ) -> None:
        made = key_of(admin(system), "admin", labels=ETL)
        item = system.database.get_item(
            TableName=system.keys_table,
            Key={"tenant": {"S": "acme"}, "key_id": {"S": made["keyId"]}},
        )["Item"]

        # Such an authorizer reads `scopes`, and such an API reads `scopes` of the context.
        assert from_item(item)["scopes"] == []
        assert Caller(system, made["key"]).context["scopes"] == ""  # type: ignore[index]

    @pytest.mark.parametrize(
        "damage",
        [
            {"cidrs": {"L": []}, "labels": {"M": {}}, "scopes": {"L": [{"S": "admin"}]}},
            {"cidrs": {"L": [{"S": "nonsense"}]}, "labels": {"M": {}}, "scopes": {"L": []}},
            {"labels": {"M": {"team": {"S": "etl"}}}, "scopes": {"L": [{"S": "admin"}]}},
            {
                "cidrs": {"L": []}, "labels": {"M": {"team": {"S": "etl"}}},
                "scopes": {"L": [{"S": "admin"}]}, "countries": {"L": []},
            },
        ],
    )  # fmt: skip
    def test_a_restriction_that_cannot_be_read_opens_nothing(
        self, system: Deployment, damage: dict[str, Any]
    ) -> None:
        made = key_of(admin(system), "admin", labels=ETL)
        system.database.update_item(
            TableName=system.keys_table,
            Key={"tenant": {"S": "acme"}, "key_id": {"S": made["keyId"]}},
            UpdateExpression="SET restricted = :r",
            ExpressionAttributeValues={":r": {"M": damage}},
        )

        assert not Caller(system, made["key"]).let_in


class TestLabels:
    """In addition to the check of all routes in tests/integration/test_api_isolation.py."""

    def test_the_label_cannot_be_changed_away_or_left_out(self, system: Deployment) -> None:
        by = Caller(system, key_of(admin(system), "run", labels=ETL)["key"])
        assert by.call("POST", "/v1/jobs", JOB).status == 403
        made = by.call("POST", "/v1/jobs", JOB | {"labels": ETL}).document["jobId"]

        for labels in (None, {"team": "ops"}, {"team": None}):
            assert by.call("PATCH", f"/v1/jobs/{made}", {"labels": labels}).status == 403
        assert by.call("PUT", f"/v1/jobs/{made}", JOB).status == 403
        assert by.call("GET", f"/v1/jobs/{made}").document["labels"] == ETL

    def test_all_jobs_are_those_that_the_key_reaches(self, system: Deployment) -> None:
        first = admin(system)
        by = Caller(system, key_of(first, "run", labels=ETL)["key"])
        assert by.call("POST", "/v1/jobs", JOB | {"jobId": "own", "labels": ETL}).status == 201
        assert first.call("POST", "/v1/jobs", JOB | {"jobId": "theirs"}).status == 201

        done = by.call("POST", "/v1/jobs:pause", {"allJobs": True}).document

        assert (done["matched"], done["changed"]) == (1, 1)
        assert first.call("GET", "/v1/jobs/theirs").document["state"] == "ACTIVE"

    def test_the_answer_to_another_key_is_not_replayed(self, system: Deployment) -> None:
        first = admin(system)
        by = Caller(system, key_of(first, "run", labels=ETL)["key"])
        once = {"Idempotency-Key": "the-same"}
        made = first.call("POST", "/v1/jobs", JOB | {"jobId": "theirs"}, headers=once)
        assert made.status == 201
        theirs = first.call("POST", "/v1/jobs/theirs/run", {}, headers={"Idempotency-Key": "r"})
        assert theirs.status == 201

        answer = by.call("POST", "/v1/jobs", JOB | {"jobId": "theirs"}, headers=once)
        assert answer.status == 403
        answer = by.call("POST", "/v1/jobs/theirs/run", {}, headers={"Idempotency-Key": "r"})
        assert answer.status == 404

    def test_the_tree_has_only_runs_of_reached_jobs(self, system: Deployment) -> None:
        first = admin(system)
        by = Caller(system, key_of(first, "run", labels=ETL)["key"])
        first.call("POST", "/v1/jobs", JOB | {"jobId": "ours", "labels": ETL})
        for name, labels in (("our-child", ETL), ("their-child", {})):
            child = {"target": JOB["target"], "type": "AFTER", "after": [{"job": "ours"}]}
            answer = first.call("POST", "/v1/jobs", child | {"jobId": name, "labels": labels})
            assert answer.status == 201, answer
        run = first.call("POST", "/v1/jobs/ours/run", {}).document["executionId"]

        def shown(caller: Caller) -> dict[str, str]:
            items = caller.call("GET", f"/v1/executions/{run}/chain").document["items"]
            return {item["jobId"]: item["state"] for item in items}

        theirs = {"their-child": "WAITING"}
        assert shown(by) == {"ours": "PENDING", "our-child": "WAITING"}
        assert shown(first) == shown(by) | theirs


class TestGraph:
    """What a key does to a sequence that has jobs that it does not reach."""

    @pytest.fixture
    def by(self, system: Deployment) -> Caller:
        """A key for jobs with the label. `ours` has it; its child, of others, has not."""
        first = admin(system)
        for name, labels, after in (("ours", ETL, None), ("theirs", {}, "ours")):
            assert create(first, name, labels, after).status == 201
        return Caller(system, key_of(first, "run", labels=ETL)["key"])

    def test_it_drops_no_child_from_a_parent_that_has_the_maximum(
        self, system: Deployment, by: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The child would never run again."""
        monkeypatch.setattr(job_edges, "MAX_CHILDREN", 3)
        monkeypatch.setattr(job_edges, "_RECENT", 1)
        for name in ("theirs-2", "theirs-3"):
            assert create(admin(system), name, {}, "ours").status == 201

        refused = create(by, "our-child", ETL, "ours")

        assert refused.status == 422, refused
        assert "already has 3 children" in refused.document["detail"]
        children = system.jobs.get(JobKey("acme", "ours")).children  # type: ignore[union-attr]
        assert children == ("theirs", "theirs-2", "theirs-3")

    def test_it_does_not_delete_the_parent_of_a_job_of_others(self, by: Caller) -> None:
        refused = by.call("DELETE", "/v1/jobs/ours")

        assert refused.status == 409
        assert "a job that you may not access" in refused.document["detail"]
        assert "theirs" not in refused.document["detail"]

    def test_it_closes_no_cycle_through_a_job_of_others(
        self, system: Deployment, by: Caller
    ) -> None:
        assert create(admin(system), "last", ETL, "theirs").status == 201

        refused = by.call("PATCH", "/v1/jobs/ours", {"type": "AFTER", "after": [{"job": "last"}]})

        assert refused.status == 422, refused
        assert "jobs that you may not access" in refused.document["detail"]
        assert "theirs" not in refused.document["detail"]


def create(by: Caller, name: str, labels: dict[str, str], after: str | None) -> Any:
    timing = {"type": "AFTER", "after": [{"job": after}]} if after else {}
    return by.call("POST", "/v1/jobs", JOB | {"jobId": name, "labels": labels} | timing)


class PartlyReadable:
    """A store of jobs: one with the label, one without, one that is broken, one throttled."""

    def get_many(self, _: Collection[JobKey], **__: object) -> dict[JobKey, Job | Exception]:
        return {
            job_key("ours"): a_job("ours", labels=ETL),
            job_key("theirs"): a_job("theirs"),
            job_key("broken"): UndecodableError("job", "no"),
            job_key("throttled"): UnavailableError("throttled"),
        }


def test_the_stores_admit_nobody_where_no_caller_is_known() -> None:
    """For example in a thread that was started without the context of its request."""
    jobs = access.AccessibleJobs(cast("Any", PartlyReadable()))
    runs = access.AccessibleRuns(MemoryRunStore(), cast("Any", jobs))

    for read in (
        lambda: jobs.get_many([]),
        lambda: runs.get(run_key()),
        lambda: runs.between(job_key("ours"), "0", "1"),
        lambda: list(access.AccessiblePools({"default": 1}, {})),
    ):
        with pytest.raises(PermissionError, match="before it was known who calls"):
            read()


def test_a_restricted_key_learns_that_a_job_could_not_be_read_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing job would be taken for one that is not there."""
    reach = access.CallerAccess("acme", Restriction(labels=ETL))
    monkeypatch.setattr(access, "_now", lambda: reach)
    jobs = access.AccessibleJobs(cast("Any", PartlyReadable()))

    assert {key.job_id for key in jobs.get_many([])} == {"ours", "throttled"}

    found = MemoryRunStore()
    for name in ("ours", "theirs", "broken"):
        found.cancel(a_message(run_key(job_id=name)), reason="enough", now=NOON)
    former = run_key(job_id="ours", uid="earlier00")
    found.cancel(a_message(former), reason="enough", now=NOON)
    runs = access.AccessibleRuns(found, cast("Any", jobs))
    asked = [*found.items, run_key(job_id="missing")]
    assert [run.key for run in runs.find(asked).items] == [run_key(job_id="ours")]
    with pytest.raises(UnavailableError, match="throttled"):
        runs.find([run_key(job_id="throttled")])


def test_a_restricted_key_lists_the_dead_runs_of_its_jobs_by_one_read_of_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reach = access.CallerAccess("acme", Restriction(labels=ETL))
    monkeypatch.setattr(access, "_now", lambda: reach)
    # It has no `get`: the jobs are read together.
    jobs = access.AccessibleJobs(cast("Any", PartlyReadable()))
    found = MemoryRunStore()
    ours, former = run_key(job_id="ours"), run_key(job_id="ours", uid="earlier00")
    others = [run_key(job_id=name) for name in ("theirs", "broken", "missing")]
    for key in (ours, former, *others):
        found.items[key] = Run(key, RunState.DEAD, finished_at=NOON)
    runs = access.AccessibleRuns(found, cast("Any", jobs))

    def dead() -> list[RunKey]:
        page = runs.list_dead("acme", first=NOON, last=NOON, cursor=None, limit=100)
        return [run.key for run in page.items]

    assert dead() == [ours]
    throttled = run_key(job_id="throttled")
    found.items[throttled] = Run(throttled, RunState.DEAD, finished_at=NOON)
    with pytest.raises(UnavailableError, match="throttled"):
        dead()
