"""Which attributes executors may write by the policy of their pool. Evaluated here because the
local stack's IAM knows neither the attributes of a DynamoDB write nor its leading keys.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.domain.attempt import AttemptOutcome, Result, Value
from nextfire.domain.endpoints import Endpoint, EndpointKey, EndpointState
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import LEASE, NOON, a_job, a_message, a_retry, claim_run, run_key
from tests.fakes import InlineExecutor
from tests.infra.conftest import Template
from tests.infra.policies import Context, Policies, of_request
from tests.infra.pool_access.conftest import POOLS, ROLES, arn

PARTITION = {"jobs": "tenant", "due": "bucket", "runs": "job"}
OPERATIONS = {"update_item": "dynamodb:UpdateItem", "put_item": "dynamodb:PutItem"}


class RecordedError(Exception):
    """Ends a call of an adapter at its first request."""


class Recorder:
    """Imitates DynamoDB and records the writes of the first request. `writes`: the operation and
    the request.
    """

    def __init__(self) -> None:
        self.writes: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Callable[..., None]:
        def call(**request: Any) -> None:
            if operation == "transact_write_items":
                for each in request["TransactItems"]:
                    [(kind, write)] = each.items()
                    self.writes.append((f"{kind.lower()}_item", write))
            else:
                self.writes.append((operation, request))
            raise RecordedError

        return call


RUN = replace(
    Run(run_key(), RunState.RUNNING, fence=1, claim_token="t", worker="w", lease_until=NOON),
    attempt=1,
    started_at=NOON,
)
TAKEN = RUN.taken_over(dispatch=1, token="t2", worker="b", now=NOON, lease_until=NOON, pool="p")
FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1, "out", "err", log_parts=1)
DONE = replace(
    FAILED, outcome=AttemptOutcome.SUCCEEDED, value=Value(9000, file="result/000001.json")
)
ASKED = Run(
    run_key(),
    RunState.PENDING,
    trigger=Trigger.MANUAL,
    request="r",
    payload="1",
    request_reason="x",
)
SKIPPED = Run.skipped(run_key(), "misfire", NOON, pool="default", dispatched_at=NOON)
RANGE = Run.skipped(run_key(), "misfire", NOON, covered_to=NOON, covered=3)
LATER = NOON + timedelta(minutes=1)


def claim(runs: DynamoDbRunStore) -> object:
    return claim_run(runs, a_message(), NOON, lease_until=NOON, pool="p")


def end(state: RunState, result: Result = FAILED) -> Callable[[DynamoDbRunStore], object]:
    return lambda runs: runs.advance(TAKEN, TAKEN.ended(state, result, NOON), lapsed=True)


RUN_WRITES: Mapping[str, Callable[[DynamoDbRunStore], object]] = {
    "claim": claim,
    "take over": lambda runs: runs.advance(RUN, TAKEN, lapsed=True),
    "succeed": end(RunState.SUCCEEDED, DONE),
    "die": end(RunState.DEAD),
    "end cancelled": end(RunState.CANCELLED),
    "retry": lambda runs: runs.advance(TAKEN, TAKEN.retrying(FAILED, NOON, not_before=LATER)),
    "hand back": lambda runs: runs.advance(TAKEN, TAKEN.handed_back(FAILED, NOON)),
    "cancel": lambda runs: runs.cancel(a_message(), reason="deleted", now=NOON),
    "skip": lambda runs: runs.skip(SKIPPED),
    "skip a range": lambda runs: runs.skip(RANGE),
    "pass over": lambda runs: runs.skip(
        ASKED.passed_over("overlap", NOON, pool="p", dispatched_at=NOON)
    ),
    "extend": lambda runs: runs.extend(TAKEN, lease_until=NOON + LEASE),
    "save": lambda runs: runs.save(TAKEN, Value(2, text="{}")),
    "save a large one": lambda runs: runs.save(TAKEN, Value(9000, file="checkpoint/1.json")),
    "mark as published": lambda runs: runs.mark_death_published(
        replace(TAKEN, state=RunState.DEAD)
    ),
}


def recorded(table: str, call: Callable[[Any], object]) -> list[tuple[str, Context]]:
    """The writes of *call* on the store of *table*: action and condition keys of each."""
    recorder: Any = Recorder()
    stores = {
        "jobs": DynamoDbJobStore(recorder, table="jobs"),
        "runs": DynamoDbRunStore(recorder, table="runs"),
        "due": DynamoDbDueStore(recorder, table="due", shards=4, executor=InlineExecutor()),
    }
    with pytest.raises(RecordedError):
        call(stores[table])
    assert {write["TableName"] for _, write in recorder.writes} == {table}
    return [
        (OPERATIONS[operation], of_request(write, PARTITION[table]))
        for operation, write in recorder.writes
    ]


def writes() -> Iterator[Any]:
    for name, write in RUN_WRITES.items():
        yield pytest.param("runs", write, id=name)
    for counted in (True, False):
        job = replace(a_job(), counted=counted)
        name = f"complete{' a counted job' * counted}"
        yield pytest.param("jobs", lambda jobs, job=job: jobs.complete(job, NOON), id=name)
    plain = a_retry(run_key(), NOON)
    full = replace(plain, rank=0, held=True, exclusive=True, trigger=Trigger.MANUAL)
    for name, entry in (("due", plain), ("due, all attributes", full)):
        yield pytest.param("due", lambda due, entry=entry: due.put([entry], NOON), id=name)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("table", "call"), [*writes()])
def test_what_executors_write_is_allowed(
    pools: Template, pool: str, table: str, call: Callable[[Any], object]
) -> None:
    policies = Policies(pools, ROLES[pool])

    for action, context in recorded(table, call):
        resource = arn(pools, f"{table.capitalize()}Table")
        assert policies.allow(action, resource, context), (action, context)


JOB = ["tenant", "job_id"]
ENTRY = ["bucket", "entry", "kind", "tenant", "job_id", "uid"]
MINUTE = "2026-05-24T12:00Z#003"
ENDPOINT = ["owner", "destination", "state", "changed_at", "version"]


@pytest.mark.parametrize(
    ("action", "table", "key", "attributes", "more"),
    [
        *(
            ("UpdateItem", "jobs", "acme", [*JOB, name], {})
            for name in ("definition", "payload", "replaced", "effective_from", "backfill", "skips")
        ),
        ("UpdateItem", "jobs", "acme", [*JOB, "state"], {"dynamodb:ReturnValues": "ALL_OLD"}),
        ("PutItem", "jobs", "acme", JOB, {}),
        ("DeleteItem", "jobs", "acme", JOB, {}),
        ("PutItem", "due", MINUTE, [*ENTRY, "version"], {}),
        ("PutItem", "due", MINUTE, [*ENTRY, "request"], {}),
        ("PutItem", "due", "quarantine", ENTRY, {}),
        ("UpdateItem", "due", MINUTE, ENTRY, {}),
        ("DeleteItem", "due", MINUTE, ENTRY, {}),
        ("GetItem", "due", MINUTE, ENTRY, {}),
        *(
            (action, "runs", "acme/report", ["job", "run_id", name], {})
            for action in ("PutItem", "UpdateItem")
            for name in ("payload", "trigger", "request", "request_reason")
        ),
        *(
            (action, "runs", "acme/report", ["job", "run_id", name], {})
            for action in ("PutItem", "UpdateItem")
            for name in ("attempt_base", "restarted", "fence_base")
        ),
        ("PutItem", "runs", "acme/report", ["job", "run_id", "state", "dispatch"], {}),
        ("DeleteItem", "runs", "acme/report", ["job", "run_id"], {}),
        ("PutItem", "endpoints", "other/acme", ENDPOINT, {}),
        ("PutItem", "endpoints", "{pool}-2/acme", ENDPOINT, {}),
        ("PutItem", "endpoints", "{pool}/acme", [*ENDPOINT, "pause_reason"], {}),
        ("PutItem", "endpoints", "{pool}/acme", [*ENDPOINT, "paused_at"], {}),
        ("UpdateItem", "endpoints", "{pool}/acme", ENDPOINT, {}),
        ("DeleteItem", "endpoints", "{pool}/acme", ENDPOINT, {}),
        ("Query", "endpoints", "{pool}/acme", ENDPOINT, {}),
        ("GetItem", "endpoints", "other/acme", ENDPOINT, {}),
        ("GetItem", "keys", "acme", ["tenant", "key_id"], {}),
        ("GetItem", "control", "audit", ["id"], {}),
        ("GetItem", "requests", "r", ["request"], {}),
    ],
)
@pytest.mark.parametrize("pool", POOLS)
def test_no_other_write_is(
    pools: Template,
    pool: str,
    action: str,
    table: str,
    key: str,
    attributes: list[str],
    more: Mapping[str, str],
) -> None:
    leading = [key.format(pool=pool)]
    keys: Context = {"dynamodb:Attributes": attributes, "dynamodb:LeadingKeys": leading, **more}
    resource = arn(pools, f"{table.capitalize()}Table")

    assert not Policies(pools, ROLES[pool]).allow(f"dynamodb:{action}", resource, keys)


ENDPOINT_STATES = {
    "a failure": lambda key: Endpoint(key, failures=1, changed_at=NOON, version=1),
    "all attributes": lambda key: Endpoint(
        key, EndpointState.OPEN, 5, NOON, NOON, 3, NOON, changed_at=NOON, version=9
    ),
}


@pytest.mark.parametrize("state", ENDPOINT_STATES)
@pytest.mark.parametrize("template", ["pools", "wide"])
@pytest.mark.parametrize("pool", POOLS)
def test_executors_read_and_write_the_endpoints_of_their_pool(
    request: pytest.FixtureRequest, template: str, pool: str, state: str
) -> None:
    found: Template = request.getfixturevalue(template)
    policies, resource = Policies(found, ROLES[pool]), arn(found, "EndpointsTable")

    def allowed(of: str) -> set[bool]:
        key = EndpointKey(of, "acme", "api.example.com:443")
        to = ENDPOINT_STATES[state](key)
        recorder: Any = Recorder()
        store = DynamoDbEndpointStore(recorder, table="endpoints")
        for was in (Endpoint(key), replace(to, version=8)):
            with pytest.raises(RecordedError):
                store.replace(was, to)
        read: Context = {"dynamodb:LeadingKeys": [f"{of}/acme"]}
        return {
            policies.allow("dynamodb:GetItem", resource, read),
            *(
                policies.allow(OPERATIONS[operation], resource, of_request(write, "owner"))
                for operation, write in recorder.writes
            ),
        }

    [other] = {*POOLS} - {pool}
    assert allowed(pool) == {True}
    assert allowed(other) == {False}
    assert allowed(f"{pool}2") == {False}
