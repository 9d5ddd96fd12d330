"""Endpoints in DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import conditional, translated
from nextfire.adapters.dynamodb.batch_reads import read_one
from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.endpoint_items import (
    decode_endpoint,
    encode_endpoint,
    encode_key,
    owner,
)
from nextfire.adapters.dynamodb.flow_items import decode_flow, encode_flow, encode_flow_key
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.pages import answered
from nextfire.domain.call_flow import CallFlow
from nextfire.domain.endpoints import DESTINATION, Endpoint, EndpointKey
from nextfire.domain.ports.pages import Page

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbEndpointStore:
    """`EndpointStore` on the table `endpoints`, whose items expire (TTL)."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:
        name = encode_key(key)
        item = read_one(self._client, self._table, name, "get endpoint", consistent=consistent)
        return None if item is None else decode_endpoint(item)

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        return self._replace("replace endpoint", was.version, encode_endpoint(to))

    def flow(self, key: EndpointKey) -> CallFlow | None:
        item = read_one(
            self._client, self._table, encode_flow_key(key), "get flow of calls", consistent=True
        )
        return None if item is None else decode_flow(key, item)

    def replace_flow(self, was: CallFlow, to: CallFlow) -> bool:
        return self._replace("replace flow of calls", was.version, encode_flow(to))

    def _replace(self, what: str, version: int, item: Item) -> bool:
        """Store *item* if the stored one has *version*; 0: is not stored."""
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(destination)"}
        if version:
            condition = {
                "ConditionExpression": "version = :version",
                "ExpressionAttributeValues": {":version": {"N": str(version)}},
            }
        with conditional(what) as write:
            self._client.put_item(TableName=self._table, Item=item, **condition)
        return write.made

    def list(self, tenant: str, pool: str, *, cursor: str | None, limit: int) -> Page[Endpoint]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#owner = :owner",
            "ExpressionAttributeNames": {"#owner": "owner"},
            "ExpressionAttributeValues": {":owner": {"S": owner(pool, tenant)}},
            "ConsistentRead": True,
            "Limit": limit,
        }
        if cursor is not None:
            last = EndpointKey(pool, tenant, decode_cursor(cursor, DESTINATION))
            request["ExclusiveStartKey"] = encode_key(last)
        with translated("list endpoints"):
            answer = self._client.query(**request)
        return answered(answer, decode_endpoint, "destination")
