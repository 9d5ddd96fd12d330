"""The audit chain: numbered events, each with the hash of the previous event.

The hash of an event is the SHA-256 of its canonical JSON without the member `hash`, as 64
lower-case hexadecimal digits. The canonical form follows RFC 8785 for the supported values
(strings, integers, booleans, null, lists and objects): members sorted by name, no whitespace
between tokens, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nextfire.dataclass import dataclass
from nextfire.domain.errors import NextfireError

Event = dict[str, Any]
"""A stored event: `number`, `previous`, `hash` and the members that describe the change."""

NO_HASH = "0" * 64
"""`previous` of the first event."""


class BrokenChainError(NextfireError):
    """The audit chain is broken: an event was changed, removed or inserted after it was written."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"The audit chain is broken at {place}: {problem}.")


@dataclass(frozen=True, slots=True)
class Link:
    """The position of an event in the chain: its number, from 1, and its hash."""

    number: int
    hash: str


START = Link(0, NO_HASH)
"""The position before the first event."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one stored object, in chain order. Batches are numbered from 1."""

    number: int
    events: Sequence[Event]

    @property
    def end(self) -> Link:
        """The position of the last event."""
        return Link(self.events[-1]["number"], self.events[-1]["hash"])

    @property
    def recorded_at(self) -> str:
        """When the batch was written, according to the clock of the writer; ISO 8601."""
        return str(self.events[-1]["recordedAt"])


@dataclass(frozen=True, slots=True)
class Verified:
    """The verified part of the chain. In an empty chain, `first` and `last` have the value None."""

    count: int
    first: Event | None
    last: Event | None


def canonical(event: Mapping[str, Any]) -> bytes:
    """*event* without its hash, in canonical form."""
    hashed = {name: value for name, value in event.items() if name != "hash"}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def hash_of(event: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(event)).hexdigest()


def chain(bodies: Iterable[Mapping[str, Any]], after: Link) -> list[Event]:
    """Turn *bodies* into events that continue the chain at *after*, numbered and hashed."""
    events: list[Event] = []
    for body in bodies:
        event = {**body, "number": after.number + 1, "previous": after.hash}
        event["hash"] = hash_of(event)
        events.append(event)
        after = Link(event["number"], event["hash"])
    return events


def verify(batches: Iterable[Batch], *, after: Link | None = START) -> Verified:
    """Check that *batches*, oldest first, form one chain that continues at *after*.

    Args:
        batches: Consecutive batches.
        after: Position before the first event; None: unknown and not checked.

    Raises:
        BrokenChainError: The chain is broken. The error names the first event that does not match.
    """
    count, first, last = 0, None, None
    for batch in batches:
        for event in batch.events:
            place = f"event {event.get('number')!r} of batch {batch.number}"
            _check(event, after, place)
            after = Link(event["number"], event["hash"])
            first, last, count = first or event, event, count + 1
    return Verified(count, first, last)


def _check(event: Event, after: Link | None, place: str) -> None:
    try:
        hashed = hash_of(event)
    except (ValueError, RecursionError):  # such as a surrogate, which UTF-8 does not have
        raise BrokenChainError(place, "it has no canonical form: it was changed") from None
    if event.get("hash") != hashed:
        raise BrokenChainError(place, "its content does not match its hash: it was changed")
    if not isinstance(event.get("number"), int):
        raise BrokenChainError(place, "its number is not an integer")
    if after is None:
        return
    if event["number"] != after.number + 1:
        raise BrokenChainError(
            place, f"expected event {after.number + 1}: events are missing or out of order"
        )
    if event.get("previous") != after.hash:
        raise BrokenChainError(
            place, "it does not contain the hash of the previous event: one of them was replaced"
        )
