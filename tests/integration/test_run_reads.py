"""Reads of many run records: how many requests they take."""

from __future__ import annotations

import json

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.dynamodb.run_items import encode_key, encode_run
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, job_key
from tests.integration.faulty_server import Answer, FaultyServer, Request, answer

JOB = job_key()
UID = "uid00001"


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize(
    ("page", "limits"), [(1, [1, 2, 4, 8, 16, 32, 64, 64]), (5, [5, 10, 20, 40, 64, 64])]
)
def test_pages_grow_while_more_is_read(server: FaultyServer, page: int, limits: list[int]) -> None:
    """For example over the runs on request before a run: a request each would take minutes."""
    key = RunKey(JOB, run_id(UID, NOON))
    item = encode_run(Run(key, RunState.PENDING))

    def reply(request: Request) -> Answer:
        asked = json.loads(request.body)["Limit"]
        return answer({"Items": [item] * asked, "LastEvaluatedKey": encode_key(key)})

    server.script = [reply]
    records = DynamoDbRunStore(clients.dynamodb(), table="runs").between(JOB, "0", "9", page=page)

    for _ in range(sum(limits)):
        assert next(records).key == key
    assert [json.loads(request.body)["Limit"] for request in server.requests] == limits
