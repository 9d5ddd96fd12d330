"""Isolation of tenants at every route in the API's description: foreign ids have no effect.

The OpenAPI document generates the cases. A new route fails here until `WAYS` describes how to call
it, and a new kind of id until `OWNED` or `SHARED` contains it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from functions.api.access import CallerAccess
from functions.api.openapi import description
from nextfire.adapters.dynamodb import job_store, key_store, request_store, run_items
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import JobKey
from nextfire.domain.run import RunState
from tests.integration import resources
from tests.integration.conftest import REGION
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
"""A method, a path with `{jobId}` and similar placeholders, and a body."""


@dataclass(frozen=True)
class Way:
    """How to call an operation so that its owner is served.

    `body` and `query`: of the request. `before`: what the owner does first. `execution`: the
    owner's execution that it is about. `own`: a stranger who sends the owner's ids creates or lists
    things of the stranger instead of getting a 404.
    """

    body: object = None
    query: Mapping[str, str] = field(default_factory=dict)
    before: tuple[Step, ...] = ()
    execution: str = "running"
    own: bool = False


WAYS: dict[str, Way] = {
    "beginBackfill": Way({"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}),
    "cancelChain": Way({"reason": "r"}),
    "cancelExecution": Way({"reason": "r"}),
    "cancelJobs": Way({"labels": {"team": "walled"}}, own=True),
    "changeJob": Way({"name": "changed"}),
    "createJob": Way(LIVING | {"jobId": "walled-other"}, own=True),
    "createJobs": Way({"jobs": [LIVING | {"jobId": "walled-other"}, LIVING]}, own=True),
    "createKey": Way({"name": "n", "scopes": ["read"]}, own=True),
    "deleteJob": Way(),
    "drainJob": Way({"reason": "r"}),
    "getDescription": Way(own=True),
    "getChain": Way(),
    "getEndpoint": Way(own=True),
    "getExecution": Way(),
    "getHealth": Way(own=True),
    "getJob": Way(),
    "getKey": Way(),
    "getQuotas": Way(own=True),
    "getOverview": Way(own=True),
    "listAllExecutions": Way(query={"state": "DEAD"}, own=True),
    "listEndpoints": Way(own=True),
    "listExecutions": Way(),
    "listJobs": Way(query={"label": "team:walled"}, own=True),
    "listKeys": Way(own=True),
    "listScriptVersions": Way(),
    "listScripts": Way(own=True),
    "listUpcoming": Way(),
    "limitEndpoint": Way({"parallel": 1}, own=True),
    "pauseEndpoint": Way({"reason": "r"}, own=True),
    "pauseJob": Way({"reason": "r"}),
    "pauseJobs": Way({"labels": {"team": "walled"}, "reason": "r"}, own=True),
    "previewSchedule": Way({"type": "CRON", "schedule": "0 3 * * *"}, own=True),
    # Each tenant chooses the ids of its jobs.
    "putJob": Way(LIVING | {"name": "put"}, own=True),
    "readLog": Way(),
    "redriveChain": Way({"from": JOB}, execution="dead"),
    "redriveExecution": Way({"reason": "r"}, execution="dead"),
    "replayExecution": Way({"reason": "r"}, execution="called"),
    "redrivePool": Way({"limit": 10}, own=True),
    "resumeEndpoint": Way({}, own=True),
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
    "destination": "nobodys.example.com:443",
}
"""For path parameters that identify a tenant's things: a value that identifies nothing."""
SHARED = {"pool": "default"}
"""For path parameters that identify things shared by all tenants: a valid value."""

OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in description()["paths"].items()
    for method, operation in methods.items()
}


def way(name: str) -> Way:
    found = WAYS.get(name)
    assert found is not None, (
        f"{name} is a new operation: add to WAYS how its owner calls it, and whether a stranger "
        "who sends the owner's ids gets a 404 or, with own=True, the stranger's own things."
    )
    return found


def named_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def cursors() -> list[str]:
    """The operations that continue from a cursor."""
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
    """A tenant with one of everything that an id can identify, and two of everything listed.

    The first one is created by calls; later ones get its tables.
    """

    _first: tuple[Callable[[], None], dict[str, Any]] | None = None

    def __init__(self, system: Deployment) -> None:
        self.system = system
        self.executions: dict[str, str] = {}
        system.objects.put_bucket_versioning(
            Bucket=system.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        for name in ("walled_script", "walled_script", "walled_script_2"):
            key = f"pools/default/{OWNER}/{name}.py"
            system.objects.put_object(Bucket=system.bucket, Key=key, Body=b"walled source")
        if Owner._first is None:
            self._create(system)
            made = copy.deepcopy({**vars(self), "system": None})
            Owner._first = resources.snapshot(REGION), made
        else:
            restore, made = Owner._first
            restore()
            vars(self).update(copy.deepcopy(made), system=system)

    def _create(self, system: Deployment) -> None:
        for job_id in (JOB, f"{JOB}-2"):
            assert self.call("POST", "/v1/jobs", LIVING | {"jobId": job_id}).status == 201
        keys = [
            self.call("POST", "/v1/keys", {"name": "walled", "scopes": ["read"]}).document["keyId"]
            for _ in range(2)
        ]
        job = system.job(JOB, OWNER)
        first = job.next_after(job.effective_from)
        assert first is not None
        for number, name in enumerate(("running", "dead", "dead too", "called")):
            at = first + (1 + number) * timedelta(minutes=1)  # so that the next one can be skipped
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
                call = json.dumps({"digest": "0" * 32}) if name == "called" else None
                failed = Result(AttemptOutcome.FAILED, "walled output", 1, call=call)
                system.runs.advance(run, run.ended(RunState.DEAD, failed, job.created_at))
            self.executions[name] = message.key.execution_id
        self.ids = {
            "jobId": JOB,
            "executionId": "",
            "keyId": keys[0],
            "handler": "walled_script",
            "destination": "walled.example.com:443",
        }
        for host in ("walled.example.com", "walled-2.example.com"):
            path = f"/v1/endpoints/default/{host}/pause"
            assert self.call("POST", path, {"reason": "walled reason"}).status == 200
        self.private = {OWNER, "walled-job", "walled name", "walled output", "walled reason", *keys}
        """Values that only this tenant may read."""

    def call(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        return self.system.call(method, path, body, **{"tenant": OWNER, **more})

    def ids_for(self, name: str) -> dict[str, str]:
        return {**self.ids, "executionId": self.executions[way(name).execution]}

    def kept(self, tenant: str = OWNER) -> list[str]:
        """Everything stored for *tenant*, in all tables and buckets."""
        system = self.system
        tables = (
            *(system.jobs_table, system.due_table, system.runs_table),
            *(system.keys_table, system.requests_table, system.endpoints_table),
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
    """Calls the operation *name* with given ids, as a given tenant."""
    method, template, _ = OPERATIONS[name]
    how = way(name)

    def call(ids: Mapping[str, str], tenant: str, **more: Any) -> Answer:
        path = template
        for each in named_in(template):
            assert each in OWNED or each in SHARED, (
                f"{each} in {template} is a new kind of id: add it to OWNED with a value that "
                "identifies nothing (and give `Owner` one), or to SHARED if all tenants share it."
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
    """The content of *answer* without the requested ids."""
    text = json.dumps(answer.document)
    for name, value in sorted(ids.items(), key=lambda each: len(each[1]), reverse=True):
        text = text.replace(value, name)  # longest first: an id may contain another
    return f"{answer.status} {text}"


def check_nothing_shown(owner: Owner, answer: Answer, sent: object = None) -> None:
    """Assert that *answer* contains nothing of the owner except what the stranger *sent*."""
    text, known = json.dumps(answer.document), json.dumps(sent)
    leaked = [each for each in owner.private if each in text and each not in known]
    assert not leaked, f"{leaked} in {answer.status} {text}"


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
