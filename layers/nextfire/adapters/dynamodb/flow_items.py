"""Items of flows of calls, in the table `endpoints`: the field list, and what is made from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from nextfire.adapters.dynamodb.endpoint_items import decode_limit, owner
from nextfire.adapters.dynamodb.fields import (
    EXECUTORS,
    INTEGER,
    TEXT,
    Codec,
    Field,
    encoder,
    raw_decoder,
)
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.call_flow import CallFlow
from nextfire.domain.call_limit import MAX_PARALLEL
from nextfire.domain.endpoints import EndpointKey
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import EPOCH, from_ms, to_ms

KEPT = timedelta(days=1)
"""How long a flow is kept after the last call that it counted."""
_MICROSECOND = timedelta(microseconds=1)
_PLACE = re.compile(r"([0-9a-f]{1,16}) ([0-9]{1,15})")


def _encode_places(places: Mapping[str, datetime]) -> str:
    return ",".join(f"{name} {to_ms(until)}" for name, until in sorted(places.items()))


def _decode_places(text: str) -> dict[str, datetime]:
    found = [_PLACE.fullmatch(each) for each in text.split(",")]
    if len(found) > MAX_PARALLEL or None in found:
        raise ValueError("not a list of places")
    return {match[1]: from_ms(int(match[2])) for match in found if match}


_MICROSECONDS = Codec(
    "N",
    lambda at: str((at - EPOCH) // _MICROSECOND),
    lambda number: EPOCH + int(number) * _MICROSECOND,
)
"""An instant: of 5,999 calls in a minute, each takes 10.0017 ms."""
_DURATION = Codec(
    "N",
    lambda duration: str(duration // _MICROSECOND),
    lambda number: int(number) * _MICROSECOND,
)
_PLACES = Codec("S", _encode_places, _decode_places)


def _owner(key: EndpointKey) -> str:
    # Not in the partition of the endpoints, so that they are listed without their flows.
    return f"{owner(key.pool, key.tenant)}/flow"


def _expires_at(flow: CallFlow) -> int | None:
    latest = [at for at in (flow.free_at, flow.line_at, *flow.places.values()) if at is not None]
    return int((max(latest) + KEPT).timestamp()) if latest else None


FLOWS: tuple[Field[CallFlow], ...] = (
    Field("owner", TEXT, EXECUTORS, get=lambda flow: _owner(flow.key), decoded=False),
    Field("destination", TEXT, EXECUTORS, get=lambda flow: flow.key.destination, decoded=False),
    Field("free_at", _MICROSECONDS, EXECUTORS),
    Field("line_at", _MICROSECONDS, EXECUTORS),
    Field("places", _PLACES, EXECUTORS, unless={}),
    Field("usual", _DURATION, EXECUTORS, required=True),
    Field("per_minute", INTEGER, EXECUTORS, get=lambda flow: flow.limit.per_minute, decoded=False),
    Field("parallel", INTEGER, EXECUTORS, get=lambda flow: flow.limit.parallel, decoded=False),
    Field("version", INTEGER, EXECUTORS, required=True),
    Field("expires_at", INTEGER, EXECUTORS, get=_expires_at, decoded=False),
)

encode_flow = encoder(FLOWS)
_decode_attributes = raw_decoder(FLOWS)


def encode_flow_key(key: EndpointKey) -> Item:
    """The key of the item of a flow."""
    return {"owner": {"S": _owner(key)}, "destination": {"S": key.destination}}


def decode_flow(key: EndpointKey, item: Mapping[str, Any]) -> CallFlow:
    """Decode *item* as the flow of *key*.

    Raises:
        UndecodableError: *item* is not a valid flow.
    """
    try:
        flow = CallFlow(key, **_decode_attributes(item), limit=decode_limit(item))
        if flow.version < 1 or flow.usual < timedelta():
            raise ValueError("not a flow")
    except (LookupError, OverflowError, TypeError, ValueError) as error:
        raise UndecodableError(f"flow of calls does not decode: {type(error).__name__}") from error
    return flow
