"""Items of the table `keys`: its field list, and what is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from nextfire.adapters.dynamodb.fields import (
    INSTANT,
    INTEGER,
    STAMP,
    TEXT,
    Codec,
    Field,
    decoder,
    encoder,
    nullable,
)
from nextfire.adapters.dynamodb.items import Item, from_item, to_item
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.instants import cut, parse_instant
from nextfire.domain.keys import KEPT, ApiKey, Scope
from nextfire.domain.restriction import UNRESTRICTED, Restriction, restriction

_DIGEST_LENGTH = 64


def _digest(content: Any) -> Any:
    if len(content) != _DIGEST_LENGTH or not content.isascii():
        raise ValueError("not a hash")
    return content


def sortable(at: datetime) -> str:
    """*at* in a fixed format, whose texts sort chronologically."""
    return cut(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _day(text: Any) -> date | None:
    """Decode a day; None if invalid. It does not affect access, and the next use replaces it."""
    try:
        return None if text is None else date.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _scopes(key: ApiKey) -> list[str]:
    return [scope.value for scope in Scope if scope in key.scopes]


def _encode_restriction(key: ApiKey) -> Mapping[str, object] | None:
    if not key.restriction:
        return None
    return {
        "scopes": _scopes(key),
        "cidrs": list(key.restriction.cidrs),
        "labels": dict(key.restriction.labels),
    }


def _decode_restriction(stored: Mapping[str, Any]) -> Restriction:
    """Decode a restriction. Unknown content makes the key invalid, never unrestricted."""
    if stored.keys() != {"scopes", "cidrs", "labels"} or not stored["scopes"]:
        raise ValueError("not a restriction")
    found = restriction(stored["cidrs"], stored["labels"])
    if not found:
        raise ValueError("an empty restriction")
    return found


_NAME = Codec("S", str, str)
_SORTABLE = Codec("S", sortable, parse_instant)
_TEXTS = Codec("L", lambda texts: [{"S": text} for text in texts], list)

KEY: tuple[Field[ApiKey], ...] = (
    Field("tenant", _NAME, required=True),
    Field("key_id", _NAME, required=True),
)
KEY_FIELDS: tuple[Field[ApiKey], ...] = (
    *KEY,
    Field("name", _NAME, required=True),
    Field("hash", Codec("S", str, _digest), part="digest", required=True),
    # Older versions, which do not know restrictions, see a restricted key without scopes.
    Field("scopes", _TEXTS, get=lambda key: [] if key.restriction else _scopes(key), decoded=False),
    Field("restricted", Codec("M", to_item, dict), get=_encode_restriction, decoded=False),
    Field("created_at", INSTANT, required=True),
    Field("expires_at", _SORTABLE, required=True),
    Field("revoked_at", nullable(INSTANT)),
    Field("last_used_on", Codec("S", date.isoformat, _day)),
    Field("issued_until", nullable(_SORTABLE)),
    Field(
        "forget_at",
        INTEGER,
        get=lambda key: int((key.expires_at + KEPT).timestamp()),
        decoded=False,
    ),
)
KEYS_TABLE: tuple[Field[Any], ...] = (*KEY_FIELDS, STAMP)

encode_api_key = encoder(KEY_FIELDS)
_decode_attributes = decoder(KEY_FIELDS)


def encode_key(tenant: str, key_id: str) -> Item:
    """The key of the item of an API key."""
    return {"tenant": TEXT.attribute(tenant), "key_id": TEXT.attribute(key_id)}


def decode_api_key(item: Mapping[str, Any]) -> ApiKey:
    """Decode *item* as a key.

    Raises:
        UndecodableError: *item* is not a valid key, so it grants no access.
    """
    try:
        values = from_item(item)
        restricted = values.get("restricted")
        scopes = values["scopes"] if restricted is None else restricted["scopes"]
        return ApiKey(
            scopes=frozenset(map(Scope, scopes)),
            restriction=UNRESTRICTED if restricted is None else _decode_restriction(restricted),
            **_decode_attributes(values),
        )
    except (
        *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
        InvalidInputError,
    ) as error:
        raise UndecodableError(f"key does not decode: {type(error).__name__}") from error
