"""Isolation of tenants at every route in the API's description: foreign ids have no effect.

The OpenAPI document generates the cases. A new route fails here until `WAYS` describes how to call
it, and a new kind of id until `OWNED` or `SHARED` contains it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from functions.api.access import CallerAccess
from nextfire.adapters.dynamodb import job_store, key_store, request_store, run_items
from nextfire.domain.ids import JobKey
from tests.integration.deployment import Answer, Deployment, labelled_key
from tests.integration.isolation import (
    JOB,
    KEY,
    LIVING,
    OPERATIONS,
    OWNED,
    OWNER,
    STRANGER,
    WAYS,
    Owner,
    _body_has_a_cursor,
    caller,
    check_nothing_shown,
    cursors,
    named_in,
    prepare,
    way,
    without,
)


@pytest.fixture
def owner(system: Deployment) -> Owner:
    return Owner(system)


@pytest.mark.parametrize("name", OPERATIONS)
def test_ids_of_another_tenant_lead_nowhere(owner: Owner, name: str) -> None:
    call, ids = caller(owner, name), owner.ids_for(name)
    asked = [each for each in named_in(OPERATIONS[name][1]) if each in OWNED]
    prepare(owner, name)
    before = owner.kept()

    answer = call(ids, STRANGER)

    assert owner.kept() == before
    if asked and not way(name).own:
        assert answer.status == 404, answer.document
        # The answer is the same for another tenant's ids and for unknown ids.
        assert without(answer, ids) == without(call(OWNED, STRANGER), OWNED)
    else:
        assert answer.status < 300, answer.document
        check_nothing_shown(owner, answer, [ids[each] for each in asked] + [way(name).body])
    assert owner.kept() == before
    # The stranger's request was valid.
    assert call(ids, OWNER).status < 300


BY_NO_LABEL = {
    "getOverview",
    *("listScripts", "listScriptVersions", "uploadScript"),
    *("listEndpoints", "getEndpoint", "pauseEndpoint", "resumeEndpoint"),
    "limitEndpoint",
}
"""Things that belong to no job; keys restricted by labels have no access to them."""
CREATES = {"createJob", "putJob"}
KEYS_OF_ALL = {"getKey", "revokeKey", "rotateKey"}
"""Operations on the owner's keys, which are unrestricted; restricted keys have no access."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_key_restricted_to_other_labels_reaches_nothing(owner: Owner, name: str) -> None:
    call, ids = caller(owner, name), owner.ids_for(name)
    asked = [each for each in named_in(OPERATIONS[name][1]) if each in OWNED]
    owner.private -= {OWNER}
    prepare(owner, name)
    before = owner.kept()
    other: dict[str, Any] = {"authorizer": labelled_key(OWNER, {"team": "other"})}

    answer = call(ids, OWNER, **other)

    assert {*before} <= {*owner.kept()}, "an object of another team was changed"
    if name in BY_NO_LABEL or name in CREATES:
        assert answer.status == 403, answer.document
        assert "restricted to jobs" in answer.document["detail"]
    elif asked and not way(name).own:
        assert answer.status == 404, answer.document
        assert without(answer, ids) == without(call(OWNED, OWNER, **other), OWNED)
    else:
        assert answer.status < 300, answer.document
        assert [r["status"] for r in answer.document.get("results", [])] in ([], [403, 403])
        assert answer.document.get("matched", 0) == 0
        check_nothing_shown(owner, answer, [ids[each] for each in asked] + [way(name).body])
    assert {*before} <= {*owner.kept()}
    # A key of the job's own team is served; the request was valid.
    own_team = {"authorizer": labelled_key(OWNER, {"team": "walled"})}
    served = call(ids, OWNER, **own_team)
    if name in BY_NO_LABEL | KEYS_OF_ALL:
        assert served.status == (403 if name in BY_NO_LABEL else 404)
        served = call(ids, OWNER)
    assert served.status < 300, served.document


def test_a_run_of_a_former_job_is_not_reached_by_the_labels_of_its_successor(owner: Owner) -> None:
    other: dict[str, Any] = {"authorizer": labelled_key(OWNER, {"team": "other"})}
    assert owner.call("DELETE", f"/v1/jobs/{JOB}").status == 200
    taken = owner.system.call(
        "PUT", f"/v1/jobs/{JOB}", LIVING | {"labels": {"team": "other"}}, tenant=OWNER, **other
    )
    assert taken.status == 409, "the key would take over the id and its history"

    successor = LIVING | {"labels": {"team": "other"}}
    created = owner.call("PUT", f"/v1/jobs/{JOB}", successor)
    if created.status == 409:  # an occurrence of the deleted job is not sent yet
        owner.system.forget_due(owner.system.job(JOB, OWNER).updated_at)
        created = owner.call("PUT", f"/v1/jobs/{JOB}", successor)
    assert created.status == 201, created.document
    for path in (f"/v1/jobs/{JOB}/executions", "/v1/executions"):
        assert owner.system.call("GET", path, tenant=OWNER, **other).document["items"] == []
    path = f"/v1/jobs/{JOB}/executions"
    assert len(owner.call("GET", path).document["items"]) == len(owner.executions)
    for execution in owner.executions.values():
        path = f"/v1/executions/{execution}"
        assert owner.system.call("GET", path, tenant=OWNER, **other).status == 404
        assert owner.system.call("GET", f"{path}/logs", tenant=OWNER, **other).status == 404


POSTS = [name for name, (method, _, _) in OPERATIONS.items() if method == "POST"]


@pytest.mark.parametrize("name", POSTS)
def test_a_key_of_another_tenant_finds_no_answer(owner: Owner, name: str) -> None:
    call, ids = caller(owner, name), owner.ids_for(name)
    prepare(owner, name)
    theirs = call(ids, OWNER, headers=KEY)
    assert theirs.status < 300, theirs.document
    before = owner.kept()

    answer = call(ids, STRANGER, headers=KEY)

    assert owner.kept(STRANGER), "the stranger's key was treated as the owner's"
    assert owner.kept() == before
    if way(name).own:
        assert answer.status == theirs.status
        check_nothing_shown(owner, answer, way(name).body)
    else:
        assert answer.status == 404, answer.document
    assert owner.kept() == before


@pytest.mark.parametrize("name", cursors())
def test_a_cursor_of_another_tenant_leads_to_nothing_of_its(owner: Owner, name: str) -> None:
    call, ids = caller(owner, name), owner.ids_for(name)
    in_body = _body_has_a_cursor(OPERATIONS[name][2])

    def page(tenant: str, cursor: str | None) -> Answer:
        on = {} if cursor is None else {"cursor": cursor}
        if in_body:
            return call(ids, tenant, body={**dict(way(name).body or {}), "limit": 1, **on})  # type: ignore[call-overload]
        return call(ids, tenant, query={"limit": "1", **on})

    cursor = page(OWNER, None).document.get("cursor")
    before = owner.kept()

    answer = page(STRANGER, cursor or "bGl2aW5n")

    assert answer.status in {200, 404, 422}, answer.document
    check_nothing_shown(owner, answer, [*ids.values(), cursor])
    assert owner.kept() == before
    if name != "readLog":  # the cursor of a log is a position in that log
        assert cursor is not None, f"{name}: the owner needs two of what this lists"
        assert page(OWNER, cursor).status == 200


def test_every_way_belongs_to_an_operation() -> None:
    assert WAYS.keys() <= OPERATIONS.keys(), "an operation was removed: remove it from WAYS"


def test_two_tenants_have_each_a_job_of_the_same_id(owner: Owner) -> None:
    system = owner.system
    before = owner.kept()

    assert system.call("PUT", f"/v1/jobs/{JOB}", LIVING, tenant=STRANGER).status == 201
    assert system.call("DELETE", f"/v1/jobs/{JOB}", tenant=STRANGER).status == 200

    assert owner.kept() == before
    assert system.jobs.get(JobKey(STRANGER, JOB)) != system.jobs.get(JobKey(OWNER, JOB))


@pytest.mark.parametrize(
    "name", ["getJob", "listExecutions", "cancelJobs", "createJob", "redrivePool"]
)
def test_an_unchecked_label_fails_the_isolation_test(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(CallerAccess, "limited", False)
    monkeypatch.setattr(CallerAccess, "has", lambda *_: True)
    monkeypatch.setattr(CallerAccess, "check_labels", lambda *_: None)

    with pytest.raises(AssertionError):
        test_a_key_restricted_to_other_labels_reaches_nothing(owner, name)


def _of_the_owner(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda key, *more: real(
        JobKey(OWNER, key.job_id) if isinstance(key, JobKey) else OWNER, *more
    )


@pytest.mark.parametrize(
    ("where", "check", "operation"),
    [
        (job_store, test_ids_of_another_tenant_lead_nowhere, "getJob"),
        (key_store, test_ids_of_another_tenant_lead_nowhere, "revokeKey"),
        (run_items, test_ids_of_another_tenant_lead_nowhere, "getExecution"),
        (request_store, test_a_key_of_another_tenant_finds_no_answer, "createJob"),
    ],
)
def test_a_store_without_isolation_fails_the_isolation_test(
    owner: Owner,
    monkeypatch: pytest.MonkeyPatch,
    where: ModuleType,
    check: Callable[[Owner, str], None],
    operation: str,
) -> None:
    name = {run_items: "partition", request_store: "_id"}.get(where, "encode_key")
    monkeypatch.setattr(where, name, _of_the_owner(getattr(where, name)))

    with pytest.raises(AssertionError):
        check(owner, operation)
