"""Items of the table `endpoints`: its field list, and what is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from nextfire.adapters.dynamodb.fields import (
    EXECUTORS,
    INSTANT,
    INTEGER,
    MILLISECONDS,
    TEXT,
    Field,
    encoder,
    member_of,
    raw_decoder,
)
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.call_limit import NO_LIMIT, CallLimit
from nextfire.domain.endpoints import DESTINATION, Endpoint, EndpointKey, EndpointState
from nextfire.domain.errors import UndecodableError

KEPT = timedelta(days=30)
"""How long an endpoint without a pause or a limit is kept after its last change."""


def owner(pool: str, tenant: str) -> str:
    """The partition key of *tenant*'s endpoints in *pool*."""
    return f"{pool}/{tenant}"


def _expires_at(endpoint: Endpoint) -> int | None:
    if endpoint.state is EndpointState.PAUSED or endpoint.limit or endpoint.changed_at is None:
        return None
    return int((endpoint.changed_at + KEPT).timestamp())


KEY: tuple[Field[Endpoint], ...] = (
    Field(
        "owner",
        TEXT,
        EXECUTORS,
        get=lambda each: owner(each.key.pool, each.key.tenant),
        decoded=False,
    ),
    Field("destination", TEXT, EXECUTORS, get=lambda each: each.key.destination, decoded=False),
)
ENDPOINTS_TABLE: tuple[Field[Endpoint], ...] = (
    *KEY,
    Field("state", member_of(EndpointState), EXECUTORS, required=True),
    Field("failures", INTEGER, EXECUTORS, unless=0),
    Field("opened_at", INSTANT, EXECUTORS),
    Field("probe_at", MILLISECONDS, EXECUTORS),
    Field("failed_probes", INTEGER, EXECUTORS, unless=0),
    Field("not_before", MILLISECONDS, EXECUTORS),
    Field("pause_reason", TEXT),
    Field("paused_at", INSTANT),
    Field("per_minute", INTEGER, EXECUTORS, get=lambda each: each.limit.per_minute, decoded=False),
    Field("parallel", INTEGER, EXECUTORS, get=lambda each: each.limit.parallel, decoded=False),
    Field("changed_at", INSTANT, EXECUTORS, required=True),
    Field("version", INTEGER, EXECUTORS, required=True),
    Field("expires_at", INTEGER, EXECUTORS, get=_expires_at, decoded=False),
)

encode_endpoint = encoder(ENDPOINTS_TABLE)
_decode_attributes = raw_decoder(ENDPOINTS_TABLE)


def encode_key(key: EndpointKey) -> Item:
    """The key of the item of an endpoint."""
    return {"owner": {"S": owner(key.pool, key.tenant)}, "destination": {"S": key.destination}}


def decode_limit(item: Mapping[str, Any]) -> CallLimit:
    """The limit in the item of an endpoint or of its flow. Raises LookupError or ValueError."""
    if "per_minute" not in item and "parallel" not in item:
        return NO_LIMIT
    per_minute, parallel = (
        INTEGER.decode(item[name]["N"]) if name in item else None
        for name in ("per_minute", "parallel")
    )
    return CallLimit(per_minute, parallel)


def decode_endpoint(item: Mapping[str, Any]) -> Endpoint:
    """Decode *item* as an endpoint.

    Raises:
        UndecodableError: *item* is not a valid endpoint.
    """
    try:
        pool, _, tenant = item["owner"]["S"].partition("/")
        key = EndpointKey(pool, tenant, item["destination"]["S"])
        endpoint = Endpoint(key, **_decode_attributes(item), limit=decode_limit(item))
        counts = (endpoint.version - 1, endpoint.failures, endpoint.failed_probes)
        if (
            min(counts) < 0
            or not endpoint.limit.is_valid
            or not DESTINATION.fullmatch(key.destination)
        ):
            raise ValueError("not an endpoint")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UndecodableError(f"endpoint does not decode: {type(error).__name__}") from error
    return endpoint
