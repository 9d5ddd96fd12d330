"""API keys in DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import conditional, translated
from nextfire.adapters.dynamodb.batch_reads import read_one
from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.key_items import (
    decode_api_key,
    encode_api_key,
    encode_key,
    sortable,
)
from nextfire.adapters.dynamodb.pages import answered
from nextfire.domain.instants import isoformat
from nextfire.domain.key_text import KEY_ID
from nextfire.domain.keys import ApiKey
from nextfire.domain.ports.pages import Page

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbKeyStore:
    """`KeyStore` on the table `keys`. Items are removed (TTL) some time after the key expires."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def create(self, key: ApiKey) -> bool:
        item = encode_api_key(key)
        with conditional("create key") as write:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="attribute_not_exists(key_id)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        # The SDK may have sent the request twice: then the first one succeeded.
        return write.made or write.found == item

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        item = read_one(
            self._client, self._table, encode_key(tenant, key_id), "get key", consistent=True
        )
        return None if item is None else decode_api_key(item)

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "tenant = :tenant",
            "ExpressionAttributeValues": {":tenant": {"S": tenant}},
            "ConsistentRead": True,
            "Limit": limit,
        }
        if cursor is not None:
            request["ExclusiveStartKey"] = encode_key(tenant, decode_cursor(cursor, KEY_ID))
        with translated("list keys"):
            answer = self._client.query(**request)
        return answered(answer, decode_api_key, "key_id")

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        return self._update(
            encode_key(tenant, key_id),
            "SET revoked_at = if_not_exists(revoked_at, :now)",
            "attribute_exists(key_id)",
            {":now": isoformat(now)},
        )

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        found = self._update(
            encode_key(tenant, key_id),
            "SET issued_until = if_not_exists(issued_until, expires_at), expires_at = :at",
            "attribute_exists(key_id) AND expires_at > :at",
            {":at": sortable(at)},
        )
        return found if found is not None else self.get(tenant, key_id)

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        with conditional("record use of key"):
            self._client.update_item(
                TableName=self._table,
                Key=encode_key(tenant, key_id),
                UpdateExpression="SET last_used_on = :day",
                ConditionExpression=(
                    "attribute_exists(key_id)"
                    " AND (attribute_not_exists(last_used_on) OR last_used_on < :day)"
                ),
                ExpressionAttributeValues={":day": {"S": day.isoformat()}},
            )

    def _update(
        self, key: Item, expression: str, condition: str, values: Mapping[str, object]
    ) -> ApiKey | None:
        """Update the key. Returns the new key; None if *condition* fails."""
        with conditional("change key") as write:
            answer = self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeValues=to_item(values),
                ReturnValues="ALL_NEW",
            )
        return decode_api_key(answer["Attributes"]) if write.made else None
