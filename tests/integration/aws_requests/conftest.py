"""Stores over clients of AWS that record, reject, or process a part of a request."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError  # noqa: TID251 — to reject like AWS

from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.domain.due import Slot
from tests.fakes import InlineExecutor
from tests.integration.tables import Tables


class Adapters:
    """The stores, over one client."""

    def __init__(self, client: Any, tables: Tables) -> None:
        self.jobs = DynamoDbJobStore(client, table=tables.jobs, due_table=tables.due)
        self.due = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
        self.runs = DynamoDbRunStore(client, table=tables.runs)
        self.joins = DynamoDbJoinStore(client, table=tables.runs)
        self.keys = DynamoDbKeyStore(client, table=tables.keys)
        self.control = DynamoDbControlStore(client, table=tables.control)


class FirstOnly:
    """A DynamoDB client that processes only the first item of each batch."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def batch_get_item(self, RequestItems: dict[str, Any]) -> Any:  # noqa: N803 — as AWS has it
        [(table, request)] = RequestItems.items()
        first, *rest = request["Keys"]
        answer = self._client.batch_get_item(RequestItems={table: request | {"Keys": [first]}})
        left = {table: request | {"Keys": rest}} if rest else {}
        return answer | {"UnprocessedKeys": left}

    def batch_write_item(self, RequestItems: dict[str, Any]) -> Any:  # noqa: N803 — as AWS has it
        [(table, (first, *rest))] = RequestItems.items()
        self._client.batch_write_item(RequestItems={table: [first]})
        return {"UnprocessedItems": {table: rest} if rest else {}}


def slot(n: int) -> Slot:
    return Slot("2026-05-24T12:00Z#000", f"000000000000{n}#x")


class Refusing:
    """A client that records requests and rejects them."""

    def __init__(self, code: str) -> None:
        self.asked: list[str] = []
        self._error = ClientError({"Error": {"Code": code, "Message": ""}}, "Operation")

    def __getattr__(self, name: str) -> Any:
        def refuse(**_: object) -> None:
            self.asked.append(name)
            raise self._error

        return refuse
