"""SQS client with the methods of boto3's client that the adapters call.

As with botocore, requests go to the regional endpoint, and contain the queue's URL.
"""

from __future__ import annotations

from typing import Any

from nextfire.adapters.aws.lean.json_client import JsonClient

HEADERS = {"x-amzn-query-mode": "true"}
"""Headers of each request: asks for the error codes of SQS's former protocol, as boto3 does."""


class LeanSqs:
    """Requests and responses are those of boto3's client."""

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    def change_message_visibility(self, **request: Any) -> dict[str, Any]:
        return self._client.call("ChangeMessageVisibility", request)

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        return self._client.call("ChangeMessageVisibilityBatch", request)

    def delete_message_batch(self, **request: Any) -> dict[str, Any]:
        return self._client.call("DeleteMessageBatch", request)

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        return self._client.call("GetQueueAttributes", request)

    def receive_message(self, **request: Any) -> dict[str, Any]:
        return self._client.call("ReceiveMessage", request)

    def send_message(self, **request: Any) -> dict[str, Any]:
        return self._client.call("SendMessage", request)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        return self._client.call("SendMessageBatch", request)
