"""The state of the tick's model: entries, messages, records, watchers and executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NO_RECORD = -2
RAN = -1
"""Records: none, a run's record, or (0 and more) a range record up to that occurrence."""


class Doing(Enum):
    """A watcher's next step. Between any two steps it may die or be overtaken."""

    READ = "read"
    SEND = "send"
    LOOK = "read the records"
    COVER = "cover"
    STORE = "store the successor"
    DELETE = "delete the entry"


class Watcher(NamedTuple):
    """`entry`: the entry in hand; `last`: the last occurrence to cover; `next`: the successor. If
    it `sends`, it sends the occurrence before `next`, with the row from `entry` up to that.
    """

    doing: Doing = Doing.READ
    entry: int = 0
    last: int = 0
    next: int = 0
    sends: bool = False


class Handling(Enum):
    """An executor's next step with a message. Between any two steps it may die."""

    LOOK_ROW = "find the next part of its row"
    RECORD_ROW = "record its row"
    LOOK_OWN = "check for a record that covers its run"
    CLAIM = "claim its run"
    ACKNOWLEDGE = "acknowledge"


class MessageInHand(NamedTuple):
    """A message that an executor handles. `first`: the first occurrence of its row, its own number
    if it has none. `at`, `last`: the next part of the row.
    """

    first: int
    at: int
    doing: Handling
    last: int = 0


class State(NamedTuple):
    """Sets of occurrences are bits. `due`: occurrences with an entry in the table; `seen`: those
    sent within the deduplication window; `queued`: the messages of each occurrence, by the first
    occurrence of their rows; `hands`: the message of each that an executor handles; `late`:
    occurrences below this number are missed. `accepted`, `stored`, `delivered`: history, for the
    properties and for what executors know. The row of a message counts as accepted only if the
    queue did not drop the message.
    """

    due: int
    queued: tuple[tuple[int, ...], ...]
    hands: tuple[MessageInHand | None, ...]
    records: tuple[int, ...]
    watchers: tuple[Watcher, ...]
    crashes: int
    lost: int
    windows: int
    outages: int
    seen: int = 0
    late: int = 0
    accepted: int = 0
    stored: int = 1
    delivered: int = 0


@dataclass(frozen=True)
class Protocol:
    """The order and the conditions of a tick, and of an executor's steps. Each departure from the
    defaults breaks the protocol or is listed as not needed.
    """

    successor_before_delete: bool = True
    accepted_before_delete: bool = True
    accepted_before_successor: bool = True
    covers_only_without_record: bool = True
    looks_for_ranges: bool = True
    covers_where_two_are_left: bool = True
    row_before_claim: bool = True
    row_only_without_record: bool = True
    row_by_every_delivery: bool = True


SOUND = Protocol()


def with_watcher(state: State, w: int, watcher: Watcher) -> State:
    return state._replace(watchers=(*state.watchers[:w], watcher, *state.watchers[w + 1 :]))


def numbers(bits: int) -> Iterator[int]:
    return (number for number in range(bits.bit_length()) if bits >> number & 1)


def sent(state: State, number: int, first: int) -> State:
    """Send a message of *number* with the row from *first*. It is dropped if a message of that
    number was seen, whichever row that has; then no message has this row.
    """
    bit = 1 << number
    accepted = state.accepted | bit
    queued = state.queued
    if not state.seen & bit:
        messages = tuple(sorted((*queued[number], first)))
        queued = (*queued[:number], messages, *queued[number + 1 :])
        accepted |= sum(1 << missed for missed in range(first, number))
    return state._replace(queued=queued, seen=state.seen | bit, accepted=accepted)


def handed(state: State, number: int, hand: MessageInHand | None) -> State:
    return state._replace(hands=(*state.hands[:number], hand, *state.hands[number + 1 :]))


def acknowledged(state: State, number: int, hand: MessageInHand) -> State:
    messages = [*state.queued[number]]
    messages.remove(hand.first)
    queued = (*state.queued[:number], tuple(messages), *state.queued[number + 1 :])
    return handed(state._replace(queued=queued), number, None)


def covering(state: State) -> bool:
    """Whether a process has read the records and not yet written its range."""
    return any(watcher.doing is Doing.COVER for watcher in state.watchers) or any(
        hand is not None and hand.doing is Handling.RECORD_ROW for hand in state.hands
    )


def claiming(state: State) -> bool:
    return any(hand is not None and hand.doing is Handling.CLAIM for hand in state.hands)


def uncovered(state: State, first: int, last: int) -> tuple[int, int | None]:
    """As in `cover_missed`: *last*, or the occurrence before the next record; and, if a record
    already covers *first*, the end of that record.
    """
    between = [k for k in range(first, last + 1) if state.records[k] != NO_RECORD]
    if between and between[0] > first:
        last = between[0] - 1
    before = [k for k in range(first + 1) if state.records[k] != NO_RECORD]
    until = max(before[-1], state.records[before[-1]]) if before else NO_RECORD
    return last, until if until >= first else None


def recorded(state: State, number: int, record: int) -> State:
    return state._replace(records=(*state.records[:number], record, *state.records[number + 1 :]))


def records_of(state: State, number: int) -> int:
    """Number of records that cover the occurrence."""
    own = state.records[number] != NO_RECORD
    return own + sum(record >= number for record in state.records[:number])


def is_covered(state: State, number: int) -> bool:
    """Whether the newest earlier record covers it, as in `decide_covered`."""
    before = [record for record in state.records[:number] if record != NO_RECORD]
    return bool(before) and before[-1] >= number
