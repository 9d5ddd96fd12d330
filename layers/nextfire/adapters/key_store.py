"""API keys in DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws_errors import error_code, refused, translated
from nextfire.adapters.items import Item, from_item, to_item
from nextfire.adapters.job_store import decode_cursor, encode_cursor
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.instants import cut, isoformat, parse_instant
from nextfire.domain.key_text import KEY_ID
from nextfire.domain.keys import KEPT, ApiKey, Scope
from nextfire.domain.ports import Page, Unreadable
from nextfire.domain.restriction import UNRESTRICTED, Restriction, restriction

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_REFUSED = "ConditionalCheckFailedException"
_DIGEST_LENGTH = 64


class DynamoDbKeyStore:
    """`KeyStore` on the table `keys`. Items are removed (TTL) some time after the key expires."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def create(self, key: ApiKey) -> bool:
        item = _encode(key)
        try:
            with translated("create key"):
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(key_id)",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except refused() as error:
            if error_code(error) != _REFUSED:
                raise
            # The SDK may have sent the request twice: then the first one succeeded.
            return bool(error.response.get("Item") == item)
        return True

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        with translated("get key"):
            answer = self._client.get_item(
                TableName=self._table, Key=_key(tenant, key_id), ConsistentRead=True
            )
        return _decode(answer["Item"]) if "Item" in answer else None

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "tenant = :tenant",
            "ExpressionAttributeValues": {":tenant": {"S": tenant}},
            "ConsistentRead": True,
            "Limit": limit,
        }
        if cursor is not None:
            request["ExclusiveStartKey"] = _key(tenant, decode_cursor(cursor, KEY_ID))
        with translated("list keys"):
            answer = self._client.query(**request)
        keys, unreadable = [], []
        for item in answer["Items"]:
            try:
                keys.append(_decode(item))
            except UndecodableError as error:
                unreadable.append(Unreadable(item["key_id"]["S"], str(error)))
        last = answer.get("LastEvaluatedKey")
        return Page(keys, encode_cursor(last["key_id"]["S"]) if last else None, unreadable)

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        return self._update(
            _key(tenant, key_id),
            "SET revoked_at = if_not_exists(revoked_at, :now)",
            "attribute_exists(key_id)",
            {":now": isoformat(now)},
        )

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        # Instants in this fixed format sort chronologically as texts.
        found = self._update(
            _key(tenant, key_id),
            "SET issued_until = if_not_exists(issued_until, expires_at), expires_at = :at",
            "attribute_exists(key_id) AND expires_at > :at",
            {":at": _sortable(at)},
        )
        return found if found is not None else self.get(tenant, key_id)

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        try:
            with translated("record use of key"):
                self._client.update_item(
                    TableName=self._table,
                    Key=_key(tenant, key_id),
                    UpdateExpression="SET last_used_on = :day",
                    ConditionExpression=(
                        "attribute_exists(key_id)"
                        " AND (attribute_not_exists(last_used_on) OR last_used_on < :day)"
                    ),
                    ExpressionAttributeValues={":day": {"S": day.isoformat()}},
                )
        except refused() as error:
            if error_code(error) != _REFUSED:
                raise

    def _update(
        self, key: Item, expression: str, condition: str, values: Mapping[str, object]
    ) -> ApiKey | None:
        """Update the key. Returns the new key; None if *condition* fails."""
        try:
            with translated("change key"):
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=key,
                    UpdateExpression=expression,
                    ConditionExpression=condition,
                    ExpressionAttributeValues=to_item(values),
                    ReturnValues="ALL_NEW",
                )
        except refused() as error:
            if error_code(error) != _REFUSED:
                raise
            return None
        return _decode(answer["Attributes"])


def _key(tenant: str, key_id: str) -> Item:
    return {"tenant": {"S": tenant}, "key_id": {"S": key_id}}


def _sortable(at: datetime) -> str:
    return cut(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encode(key: ApiKey) -> Item:
    scopes = [scope.value for scope in Scope if scope in key.scopes]
    return to_item(
        {
            "tenant": key.tenant,
            "key_id": key.key_id,
            "name": key.name,
            "hash": key.digest,
            # Older versions, which do not know restrictions, see a restricted key without scopes.
            "scopes": [] if key.restriction else scopes,
            "restricted": _encode_restriction(key.restriction, scopes) if key.restriction else None,
            "created_at": isoformat(key.created_at),
            "expires_at": _sortable(key.expires_at),
            "revoked_at": key.revoked_at and isoformat(key.revoked_at),
            "last_used_on": key.last_used_on and key.last_used_on.isoformat(),
            "issued_until": key.issued_until and _sortable(key.issued_until),
            "forget_at": int((key.expires_at + KEPT).timestamp()),
        }
    )


def _decode(item: Mapping[str, Any]) -> ApiKey:
    """Decode *item* as a key.

    Raises:
        UndecodableError: *item* is not a valid key, so it grants no access.
    """
    try:
        values = from_item(item)
        digest, revoked_at = values["hash"], values.get("revoked_at")
        issued_until = values.get("issued_until")
        if len(digest) != _DIGEST_LENGTH or not digest.isascii():
            raise ValueError("not a hash")
        restricted = values.get("restricted")
        scopes = values["scopes"] if restricted is None else restricted["scopes"]
        return ApiKey(
            tenant=str(values["tenant"]),
            key_id=str(values["key_id"]),
            name=str(values["name"]),
            digest=digest,
            scopes=frozenset(map(Scope, scopes)),
            restriction=UNRESTRICTED if restricted is None else _decode_restriction(restricted),
            created_at=parse_instant(values["created_at"]),
            expires_at=parse_instant(values["expires_at"]),
            revoked_at=None if revoked_at is None else parse_instant(revoked_at),
            last_used_on=_day(values.get("last_used_on")),
            issued_until=None if issued_until is None else parse_instant(issued_until),
        )
    except (
        *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
        InvalidInputError,
    ) as error:
        raise UndecodableError(f"key does not decode: {type(error).__name__}") from error


def _encode_restriction(restriction: Restriction, scopes: Sequence[str]) -> Mapping[str, object]:
    return {
        "scopes": list(scopes),
        "cidrs": list(restriction.cidrs),
        "labels": dict(restriction.labels),
    }


def _decode_restriction(stored: Mapping[str, Any]) -> Restriction:
    """Decode a restriction. Unknown content makes the key invalid, never unrestricted."""
    if stored.keys() != {"scopes", "cidrs", "labels"} or not stored["scopes"]:
        raise ValueError("not a restriction")
    found = restriction(stored["cidrs"], stored["labels"])
    if not found:
        raise ValueError("an empty restriction")
    return found


def _day(text: str | None) -> date | None:
    """Decode a day; None if invalid. It does not affect access, and the next use replaces it."""
    try:
        return None if text is None else date.fromisoformat(text)
    except (TypeError, ValueError):
        return None
