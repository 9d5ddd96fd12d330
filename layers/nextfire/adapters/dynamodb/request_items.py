"""Items of the table `requests`: its field list, and what is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nextfire.adapters.dynamodb.fields import (
    FLAG,
    INSTANT,
    INTEGER,
    STAMP,
    TEXT,
    Field,
    encoder,
    raw_decoder,
)
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ports.requests import REQUESTS_KEPT, KeptRequest


def seconds(instant: datetime) -> int:
    return int(instant.timestamp())


KEY: Field[Any] = Field("request", TEXT)
REQUEST: tuple[Field[KeptRequest], ...] = (
    Field("fingerprint", TEXT, required=True),
    Field("at", INSTANT, required=True),
    Field("answer", TEXT),
    Field("refused", FLAG, unless=False, decoded=False),
    Field(
        "expires_at",
        INTEGER,
        get=lambda request: seconds(request.at + REQUESTS_KEPT),
        decoded=False,
    ),
)
SPENT: Field[Any] = Field("spent", INTEGER)
"""State of a token bucket: the instant at which it is full, in epoch microseconds."""
REQUESTS_TABLE: tuple[Field[Any], ...] = (KEY, *REQUEST, SPENT, STAMP)

encode_request = encoder(REQUEST)
_decode_attributes = raw_decoder(REQUEST)


def encode_key(text: str) -> Item:
    return {KEY.name: TEXT.attribute(text)}


def decode_request(item: Mapping[str, Any]) -> KeptRequest:
    """Decode *item* as a request.

    Raises:
        UndecodableError: *item* is not a request.
    """
    try:
        fields = {"answer": None} | _decode_attributes(item)
        return KeptRequest(**fields, refused="refused" in item)
    except (LookupError, TypeError, ValueError) as error:
        raise UndecodableError(f"request does not decode: {type(error).__name__}") from error
