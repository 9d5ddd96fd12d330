"""A pool that is closed to other tenants, on the deployed stack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nextfire import Client, Invalid
from tests.e2e.conftest import OWNER, Stack
from tests.e2e.user import COUNTING, User, soon

YEARLY = {
    "type": "CRON",
    "schedule": "0 3 1 1 *",
    "target": {"pool": "acting", "handler": "counting"},
}


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    stack.put_script("acting", "counting", COUNTING)
    with stack.api() as http:
        yield User(stack, http, scratch)


def test_it_exists_for_its_tenant_only(stack: Stack) -> None:
    with Client(stack.info.endpoint, stack.key_of(OWNER)) as owner:
        owner.put_job("closed", YEARLY)
        owner.delete_job("closed")
    with (
        Client(stack.info.endpoint, stack.info.api_key) as other,
        pytest.raises(Invalid, match="closed to your tenant"),
    ):
        other.put_job("closed", YEARLY)


def test_the_run_of_a_job_from_before_does_not_start(user: User) -> None:
    stack = user.stack
    job = user.once(soon(3), handler="counting", pool="lambda")
    _move(stack, job["jobId"], "acting")

    [run] = user.ended(job)

    assert (run["state"], run["attempt"]) == ("DEAD", 1)
    assert "the pool 'acting' is closed to tenant" in run["reason"]
    assert user.marked() == []


def _move(stack: Stack, job_id: str, pool: str) -> None:
    """Move a job into *pool* without the API, as if the pool had been closed after that."""
    database = stack.client("dynamodb")
    where = {
        "TableName": stack.info.tables["jobs"],
        "Key": {"tenant": {"S": stack.info.account_id}, "job_id": {"S": job_id}},
    }
    definition = json.loads(database.get_item(**where)["Item"]["definition"]["S"])
    definition["target"]["pool"] = pool
    database.update_item(
        **where,
        UpdateExpression="SET #definition = :d",
        ExpressionAttributeNames={"#definition": "definition"},
        ExpressionAttributeValues={":d": {"S": json.dumps(definition)}},
    )
