"""Requests with an idempotency key, in DynamoDB."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import conditional, translated
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.request_items import (
    decode_request,
    encode_key,
    encode_request,
    seconds,
)
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import isoformat
from nextfire.domain.ports.requests import KeptRequest

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NOTE = "#note#"
"""Prefix of the id of a note. Tenant names are never empty, so request ids cannot have it."""
_NOTE_RETENTION = timedelta(days=1)
"""As long as the table's stream keeps the write."""


class DynamoDbRequestStore:
    """`RequestStore` on the table `requests`, whose items expire (TTL)."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        with conditional("begin request") as write:
            self._client.put_item(
                TableName=self._table,
                Item=_id(tenant, key) | encode_request(KeptRequest(fingerprint, now, None)),
                # Expired items may remain for some days.
                ConditionExpression="attribute_not_exists(#request) OR expires_at <= :now",
                ExpressionAttributeNames={"#request": "request"},
                ExpressionAttributeValues=to_item({":now": seconds(now)}),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        return None if write.made else decode_request(write.found)

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        return self._set("finish request", _id(tenant, key), began_at, "answer", answer) or answer

    def refuse(self, tenant: str, key: str, began_at: datetime) -> str | None:
        return self._set("refuse request", _id(tenant, key), began_at, "refused", True)

    def note(self, request_id: str, changed_by: str, now: datetime) -> None:
        """Send *changed_by* to the audit chain, for a request that writes no other item."""
        item = {
            "request": f"{_NOTE}{request_id}#{secrets.token_hex(4)}",
            CHANGED_BY: changed_by,
            "expires_at": seconds(now + _NOTE_RETENTION),
        }
        with translated("note request"):
            self._client.put_item(TableName=self._table, Item=to_item(item))

    def _set(
        self, what: str, key: Item, began_at: datetime, name: str, value: object
    ) -> str | None:
        """Set the attribute *name* of the request that began at *began_at*, unless it has an
        answer: then returns that. None also if the stored item does not decode.
        """
        with conditional(what) as write:
            self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression=f"SET {name} = :value",
                ConditionExpression="#at = :at AND attribute_not_exists(answer)",
                ExpressionAttributeNames={"#at": "at"},
                ExpressionAttributeValues=to_item({":value": value, ":at": isoformat(began_at)}),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        try:
            kept = decode_request(write.found)
        except UndecodableError:  # or not found
            return None
        return kept.answer if kept.at == began_at else None


def _id(tenant: str, key: str) -> Item:
    # Tenant names do not contain the separator.
    return encode_key(f"{tenant}#{key}")
