"""Clients of DynamoDB and SQS with the methods of boto3's clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from nextfire.adapters.aws.lean.json_client import JsonClient

SQS_HEADERS = {"x-amzn-query-mode": "true"}
"""Headers of each request to SQS: asks for the error codes of its former protocol, as boto3 does.
"""


class LeanClient:
    """Calls the operation ``GetItem`` for the method `get_item`, and so on.

    Requests and responses are those of boto3's client. Exception: values of type B are returned in
    base64. Requests to SQS go to the regional endpoint and contain the queue's URL, as with boto3.
    """

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        operation = method.title().replace("_", "")

        def call(**request: Any) -> dict[str, Any]:
            if operation == "TransactWriteItems":
                # One token for all attempts: DynamoDB commits the transaction only once.
                request = {"ClientRequestToken": str(uuid.uuid4())} | request
            return self._client.call(operation, request)

        return call
