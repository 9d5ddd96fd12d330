"""Walls between tenants, at every route that the API describes: another tenant's ids lead nowhere.

The cases are made from the OpenAPI document. A new route fails here until `WAYS` says how to call
it, and a new kind of id until `OWNED` or `SHARED` names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from functions.api.openapi import description
from functions.api.reach import Reach
from nextfire.adapters import job_store, key_store, request_store, run_store
from nextfire.domain.ids import JobKey
from nextfire.domain.run import AttemptOutcome, Result, RunState
from tests.integration.deployment import Answer, Deployment, labelled_key, message_for

OWNER = "acme-walled"
STRANGER = "mallory"
JOB = "walled-job"
KEY = {"Idempotency-Key": "the-same-in-both"}
LIVING = {
    "type": "CRON",
    "schedule": "0 0 1 1 *",
    "target": {"handler": "walled_handler"},
    "labels": {"team": "walled"},
    "name": "walled name",
}
Step = tuple[str, str, object]
"""A method, a path with `{jobId}` and the like in it, and a body."""


@dataclass(frozen=True)
class Way:
    """How to call an operation so that its owner is served.

    `body` and `query`: of the request. `before`: what the owner does first. `execution`: which of
    the owner's executions it is about. `own`: where the stranger, who names the owner's ids, makes
    or lists things of its own instead of being answered 404.
    """

    body: object = None
    query: Mapping[str, str] = field(default_factory=dict)
    before: tuple[Step, ...] = ()
    execution: str = "running"
    own: bool = False


WAYS: dict[str, Way] = {
    "beginBackfill": Way({"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}),
    "cancelExecution": Way({"reason": "r"}),
    "cancelJobs": Way({"labels": {"team": "walled"}}, own=True),
    "changeJob": Way({"name": "changed"}),
    "createJob": Way(LIVING | {"jobId": "walled-other"}, own=True),
    "createJobs": Way({"jobs": [LIVING | {"jobId": "walled-other"}, LIVING]}, own=True),
    "createKey": Way({"name": "n", "scopes": ["read"]}, own=True),
    "deleteJob": Way(),
    "drainJob": Way({"reason": "r"}),
    "getDescription": Way(own=True),
    "getExecution": Way(),
    "getHealth": Way(own=True),
    "getJob": Way(),
    "getKey": Way(),
    "getQuotas": Way(own=True),
    "listAllExecutions": Way(query={"state": "DEAD"}, own=True),
    "listExecutions": Way(),
    "listJobs": Way(query={"label": "team:walled"}, own=True),
    "listKeys": Way(own=True),
    "listScriptVersions": Way(),
    "listScripts": Way(own=True),
    "listUpcoming": Way(),
    "pauseJob": Way({"reason": "r"}),
    "pauseJobs": Way({"labels": {"team": "walled"}, "reason": "r"}, own=True),
    "previewSchedule": Way({"type": "CRON", "schedule": "0 3 * * *"}, own=True),
    # Ids of jobs are chosen, by each tenant for itself.
    "putJob": Way(LIVING | {"name": "put"}, own=True),
    "readLog": Way(),
    "redriveExecution": Way({"reason": "r"}, execution="dead"),
    "redrivePool": Way({"limit": 10}, own=True),
    "resumeJob": Way({}, before=(("POST", "/v1/jobs/{jobId}/pause", {}),)),
    "resumeJobs": Way(
        {"labels": {"team": "walled"}}, before=(("POST", "/v1/jobs/{jobId}/pause", {}),), own=True
    ),
    "revokeKey": Way(),
    "rotateKey": Way({}),
    "runJob": Way({"reason": "r"}),
    "skipNext": Way({"reason": "r"}),
    "stopBackfill": Way(
        before=(
            (
                "POST",
                "/v1/jobs/{jobId}/backfill",
                {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"},
            ),
        )
    ),
    "undoSkipNext": Way(before=(("POST", "/v1/jobs/{jobId}/skip-next", {}),)),
    "uploadScript": Way({"handler": "walled", "size": 1, "sha256": "0" * 64}, own=True),
}

OWNED: dict[str, str] = {
    "jobId": "nobodys-job",
    "executionId": "nobodys-job.20260524T100000000Z-k3x9m2ab",
    "keyId": "00000000000000aa",
    "handler": "nobodys-script",
}
"""Of path parameters that name a tenant's things: a value that names nobody's."""
SHARED = {"pool": "default"}
"""Of path parameters that name what all tenants share: one."""

OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in description()["paths"].items()
    for method, operation in methods.items()
}


def way(name: str) -> Way:
    found = WAYS.get(name)
    assert found is not None, (
        f"{name} is a new operation: add to WAYS how its owner calls it, and whether a stranger "
        "who names the owner's ids gets 404 or (own=True) things of its own."
    )
    return found


def named_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def cursors() -> list[str]:
    """The operations that go on where a cursor says."""
    return [
        name
        for name, (_, _, operation) in OPERATIONS.items()
        if any(each["name"] == "cursor" for each in operation.get("parameters", []))
        or _body_has_a_cursor(operation)
    ]


def _body_has_a_cursor(operation: Mapping[str, Any]) -> bool:
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    model = schema.get("$ref", "").rpartition("/")[2]
    return "cursor" in description()["components"]["schemas"].get(model, {}).get("properties", {})


class Owner:
    """A tenant with one of everything that an id can name, and two of what is listed."""

    def __init__(self, system: Deployment) -> None:
        self.system = system
        for job_id in (JOB, f"{JOB}-2"):
            assert self.call("POST", "/v1/jobs", LIVING | {"jobId": job_id}).status == 201
        keys = [
            self.call("POST", "/v1/keys", {"name": "walled", "scopes": ["read"]}).document["keyId"]
            for _ in range(2)
        ]
        job = system.job(JOB, OWNER)
        first = job.next_after(job.effective_from)
        assert first is not None
        self.executions = {}
        for number, name in enumerate(("running", "dead", "dead too")):
            at = first + (1 + number) * timedelta(minutes=1)  # the next one can be skipped
            message = message_for(job, at)
            run = system.runs.claim(
                message,
                token="t",
                worker="w",
                pool="default",
                job_revision=1,
                now=at,
                lease_until=at + timedelta(minutes=1),
            ).run
            if name != "running":
                failed = Result(AttemptOutcome.FAILED, "walled output", 1)
                system.runs.advance(run, run.ended(RunState.DEAD, failed, job.created_at))
            self.executions[name] = message.key.execution_id
        system.objects.put_bucket_versioning(
            Bucket=system.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        for name in ("walled_script", "walled_script", "walled_script_2"):
            key = f"pools/default/{OWNER}/{name}.py"
            system.objects.put_object(Bucket=system.bucket, Key=key, Body=b"walled source")
        self.ids = {
            "jobId": JOB,
            "executionId": "",
            "keyId": keys[0],
            "handler": "walled_script",
        }
        self.told = {OWNER, "walled-job", "walled name", "walled output", *keys}
        """What only this tenant may read."""

    def call(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        return self.system.call(method, path, body, **{"tenant": OWNER, **more})

    def ids_for(self, name: str) -> dict[str, str]:
        return {**self.ids, "executionId": self.executions[way(name).execution]}

    def kept(self, tenant: str = OWNER) -> list[str]:
        """All that is stored of *tenant*, wherever it is stored."""
        system = self.system
        tables = (
            *(system.jobs_table, system.due_table, system.runs_table),
            *(system.keys_table, system.requests_table),
        )
        found = []
        for table in tables:
            for page in system.database.get_paginator("scan").paginate(TableName=table):
                found += [f"{table} {json.dumps(item, sort_keys=True)}" for item in page["Items"]]
        for bucket in (system.bucket, system.outputs_bucket):
            for each in system.objects.list_objects_v2(Bucket=bucket).get("Contents", []):
                found.append(f"{bucket} {each['Key']} {each['ETag']}")
        return sorted(each for each in found if tenant in each)


@pytest.fixture
def owner(system: Deployment) -> Owner:
    return Owner(system)


Call = Callable[..., Answer]


def caller(owner: Owner, name: str) -> Call:
    """What calls the operation *name* with some ids, as some tenant."""
    method, template, _ = OPERATIONS[name]
    how = way(name)

    def call(ids: Mapping[str, str], tenant: str, **more: Any) -> Answer:
        path = template
        for each in named_in(template):
            assert each in OWNED or each in SHARED, (
                f"{each} in {template} is a new kind of id: add it to OWNED with a value that "
                "names nothing (and give `Owner` one), or to SHARED if it is no tenant's."
            )
            path = path.replace(f"{{{each}}}", SHARED.get(each) or ids[each])
        query = {**how.query, **more.pop("query", {})} or None
        body = more.pop("body", how.body)
        return owner.system.call(method, path, body, query=query, tenant=tenant, **more)

    return call


def prepare(owner: Owner, name: str) -> None:
    for method, path, body in way(name).before:
        answer = owner.call(method, path.format(**owner.ids_for(name)), body)
        assert answer.status < 300, answer.document


def without(answer: Answer, ids: Mapping[str, str]) -> str:
    """What *answer* says beside the ids that were asked for."""
    text = json.dumps(answer.document)
    for name, value in sorted(ids.items(), key=lambda each: len(each[1]), reverse=True):
        text = text.replace(value, name)  # the longest first: it may hold another
    return f"{answer.status} {text}"


def check_nothing_told(owner: Owner, answer: Answer, sent: object = None) -> None:
    """*answer* holds nothing of the owner's but what the stranger *sent* itself."""
    text, known = json.dumps(answer.document), json.dumps(sent)
    told = [each for each in owner.told if each in text and each not in known]
    assert not told, f"{told} in {answer.status} {text}"


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
        # Nothing tells apart what is another's from what is nobody's.
        assert without(answer, ids) == without(call(OWNED, STRANGER), OWNED)
    else:
        assert answer.status < 300, answer.document
        check_nothing_told(owner, answer, [ids[each] for each in asked] + [way(name).body])
    assert owner.kept() == before
    # What the stranger asked for was no nonsense.
    assert call(ids, OWNER).status < 300


BY_NO_LABEL = {"listScripts", "listScriptVersions", "uploadScript"}
"""What belongs to no job, and is refused to keys that are restricted by labels."""
CREATES = {"createJob", "putJob"}
KEYS_OF_ALL = {"getKey", "revokeKey", "rotateKey"}
"""What the owner's keys, which are not restricted, do not let restricted ones do with them."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_key_restricted_to_other_labels_reaches_nothing(owner: Owner, name: str) -> None:
    call, ids = caller(owner, name), owner.ids_for(name)
    asked = [each for each in named_in(OPERATIONS[name][1]) if each in OWNED]
    owner.told -= {OWNER}
    prepare(owner, name)
    before = owner.kept()
    other: dict[str, Any] = {"authorizer": labelled_key(OWNER, {"team": "other"})}

    answer = call(ids, OWNER, **other)

    assert {*before} <= {*owner.kept()}, "something of another team was changed"
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
        check_nothing_told(owner, answer, [ids[each] for each in asked] + [way(name).body])
    assert {*before} <= {*owner.kept()}
    # A key of the jobs' own team is served; what it asked for made sense.
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
    assert taken.status == 409, "it took over the id, and would have had the history"

    successor = LIVING | {"labels": {"team": "other"}}
    created = owner.call("PUT", f"/v1/jobs/{JOB}", successor)
    if created.status == 409:  # what the former owes is not sent yet
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

    assert owner.kept(STRANGER), "the key was taken for the owner's"
    assert owner.kept() == before
    if way(name).own:
        assert answer.status == theirs.status
        check_nothing_told(owner, answer, way(name).body)
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
    check_nothing_told(owner, answer, [*ids.values(), cursor])
    assert owner.kept() == before
    if name != "readLog":  # a log ends where it ends: its cursor is a place in that log
        assert cursor is not None, f"{name}: the owner needs two of what this lists"
        assert page(OWNER, cursor).status == 200


def test_every_way_is_a_way_of_something() -> None:
    assert WAYS.keys() <= OPERATIONS.keys(), "an operation is gone: take it out of WAYS"


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
def test_a_label_that_is_not_looked_at_is_found(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Reach, "limited", False)
    monkeypatch.setattr(Reach, "has", lambda *_: True)
    monkeypatch.setattr(Reach, "check_labels", lambda *_: None)

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
        (run_store, test_ids_of_another_tenant_lead_nowhere, "getExecution"),
        (request_store, test_a_key_of_another_tenant_finds_no_answer, "createJob"),
    ],
)
def test_a_store_without_its_wall_is_found(
    owner: Owner,
    monkeypatch: pytest.MonkeyPatch,
    where: ModuleType,
    check: Callable[[Owner, str], None],
    operation: str,
) -> None:
    name = {run_store: "_partition", request_store: "_id"}.get(where, "_key")
    monkeypatch.setattr(where, name, _of_the_owner(getattr(where, name)))

    with pytest.raises(AssertionError):
        check(owner, operation)
