"""A tenant with one of everything that an id can identify, and how it calls each operation."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from functions.api.openapi import description
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.run import RunState
from tests.builders import claim_run
from tests.integration import moto_content, resources
from tests.integration.conftest import REGION
from tests.integration.deployment import CALLS, Answer, Deployment, message_for

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
            run = claim_run(system.runs, message, at).run
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
            path = f"/v1/endpoints/{CALLS}/{host}/pause"
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
        found = [
            f"{table} {json.dumps(item, sort_keys=True)}"
            for table in tables
            for item in moto_content.items(table)
        ]
        found += map(" ".join, moto_content.objects())
        return sorted(each for each in found if tenant in each)


Call = Callable[..., Answer]


def caller(owner: Owner, name: str) -> Call:
    """Calls the operation *name* with given ids, as a given tenant."""
    method, template, _ = OPERATIONS[name]
    how = way(name)

    def call(ids: Mapping[str, str], tenant: str, **more: Any) -> Answer:
        path = template.replace("/endpoints/{pool}", f"/endpoints/{CALLS}")
        for each in named_in(path):
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
