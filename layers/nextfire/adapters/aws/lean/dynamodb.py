"""DynamoDB client with the methods of boto3's client that the adapters call."""

from __future__ import annotations

import uuid
from typing import Any

from nextfire.adapters.aws.lean.json_client import JsonClient


class LeanDynamoDb:
    """Requests and responses are those of boto3's client. Exception: values of type B, which
    nextfire does not store, are returned in base64.
    """

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        return self._call("BatchGetItem", request)

    def batch_write_item(self, **request: Any) -> dict[str, Any]:
        return self._call("BatchWriteItem", request)

    def delete_item(self, **request: Any) -> dict[str, Any]:
        return self._call("DeleteItem", request)

    def get_item(self, **request: Any) -> dict[str, Any]:
        return self._call("GetItem", request)

    def put_item(self, **request: Any) -> dict[str, Any]:
        return self._call("PutItem", request)

    def query(self, **request: Any) -> dict[str, Any]:
        return self._call("Query", request)

    def scan(self, **request: Any) -> dict[str, Any]:
        return self._call("Scan", request)

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        # One token for all attempts: DynamoDB commits the transaction only once.
        token = {"ClientRequestToken": str(uuid.uuid4())}
        return self._call("TransactWriteItems", token | request)

    def update_item(self, **request: Any) -> dict[str, Any]:
        return self._call("UpdateItem", request)

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        return self._client.call(operation, request)
