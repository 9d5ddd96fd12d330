"""The audit chain: numbered events, each with the hash of the event before it.

The hash of an event is the SHA-256 of its canonical JSON without the member `hash`, as 64
lower-case hexadecimal digits. The canonical form is that of RFC 8785 for the values in use
(strings, integers, booleans, null, lists and objects): members sorted by name, no space between
tokens, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nextfire.domain.errors import NextfireError

Event = dict[str, Any]
"""An event as it is stored: `number`, `previous`, `hash`, and what happened."""

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
    """The place of an event in the chain: its number, from 1, and its hash."""

    number: int
    hash: str


START = Link(0, NO_HASH)
"""What the first event follows."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one object, in the order of the chain. Batches are numbered from 1."""

    number: int
    events: Sequence[Event]

    @property
    def end(self) -> Link:
        """The place of the last event."""
        return Link(self.events[-1]["number"], self.events[-1]["hash"])

    @property
    def recorded_at(self) -> str:
        """When the batch was written, by its writer's clock; ISO 8601."""
        return str(self.events[-1]["recordedAt"])


@dataclass(frozen=True, slots=True)
class Verified:
    """What `verify` found intact. `first` and `last` are None if the chain is empty."""

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
    """Events of *bodies*, numbered and hashed as the next ones *after* that place."""
    events: list[Event] = []
    for body in bodies:
        event = {**body, "number": after.number + 1, "previous": after.hash}
        event["hash"] = hash_of(event)
        events.append(event)
        after = Link(event["number"], event["hash"])
    return events


def verify(batches: Iterable[Batch], *, after: Link | None = START) -> Verified:
    """Check that *batches*, oldest first, are one chain that follows *after*.

    Args:
        batches: Consecutive batches.
        after: What the first event follows; None: not known, and not checked.

    Raises:
        BrokenChainError: They are not. It names the first event that does not fit.
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
    if event.get("hash") != hash_of(event):
        raise BrokenChainError(place, "its content does not match its hash, so it was changed")
    if not isinstance(event.get("number"), int):
        raise BrokenChainError(place, "its number is not an integer")
    if after is None:
        return
    if event["number"] != after.number + 1:
        raise BrokenChainError(
            place, f"event {after.number + 1} is expected here; events are missing or out of order"
        )
    if event.get("previous") != after.hash:
        raise BrokenChainError(
            place, "it does not hold the hash of the event before it, so one of them was replaced"
        )
