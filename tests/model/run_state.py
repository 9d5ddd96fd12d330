"""The state of one run after it was first sent: its record, its messages, its workers, and the
conditions of their calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

MAX_ATTEMPTS = 2


class RecordState(Enum):
    """The state of the record."""

    ABSENT = "absent"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    CANCELLED = "CANCELLED"
    DEAD = "DEAD"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = {RecordState.SUCCEEDED, RecordState.CANCELLED, RecordState.DEAD}


class Record(NamedTuple):
    """`live`: its lease has not expired. `tries`: attempts since the last redrive."""

    state: RecordState = RecordState.ABSENT
    dispatch: int = 1
    tries: int = 0
    fence: int = 0
    live: bool = False
    cancel: bool = False
    buried: int = 0


class Doing(Enum):
    """A worker's next step."""

    RECEIVE = "receive"
    CLAIM = "claim"
    TAKE_OVER = "take over"
    BURY_LOST = "end a lost run DEAD"
    CANCEL_LOST = "end a lost run CANCELLED"
    CANCEL_WAITING = "end a waiting run CANCELLED"
    SCRIPT = "run the script"
    SUCCEED = "record SUCCEEDED"
    CANCEL = "record CANCELLED"
    DIE = "record DEAD"
    STORE_RETRY = "store the retry's entry"
    RETRY = "record PENDING"
    HAND_BACK = "hand back"
    PUBLISH = "publish the death"
    MARK = "mark it as published"
    ACKNOWLEDGE = "acknowledge"


class Worker(NamedTuple):
    """`message`: the dispatch it received; `fence`, `dispatch`, `tries`: of the record as it knows
    it; `same`: whether the record's lease is still the one it read.
    """

    doing: Doing = Doing.RECEIVE
    message: int = 0
    fence: int = 0
    dispatch: int = 0
    tries: int = 0
    same: bool = True


OF_LOST = {Doing.TAKE_OVER, Doing.BURY_LOST, Doing.CANCEL_LOST}
OUTCOMES = {Doing.SUCCEED, Doing.CANCEL, Doing.DIE, Doing.RETRY, Doing.HAND_BACK}
IDLE = Worker()


class Left(NamedTuple):
    """The number of faults and requests that can still come."""

    crashes: int
    slow: int
    lost: int
    windows: int
    hand_backs: int
    cancels: int
    redrives: int
    starts: int = 0


class State(NamedTuple):
    """`queue`: dispatch numbers in order; `holder`: the worker that has the first of them (0: it is
    visible). Sets, as bits by dispatch number: `entries` in the due table, `sent` within the
    deduplication window, `deleting` by a watcher that has sent, `published` deaths. `meant`:
    each number, with the count of redrives when it was assigned. `answered`: a cancel was answered,
    without a redrive since.
    """

    record: Record
    queue: tuple[int, ...]
    workers: tuple[Worker, ...]
    left: Left
    holder: int = 0
    entries: int = 0
    sent: int = 0b10
    deleting: int = 0
    published: int = 0
    redriven: int = 0
    meant: tuple[tuple[int, int], ...] = ((1, 0),)
    answered: bool = False


@dataclass(frozen=True)
class Protocol:
    """The order and the conditions of the calls. Each departure from the defaults breaks the
    protocol.
    """

    claims_only_what_is_free: bool = True
    records_under_its_fence: bool = True
    takes_the_lease_it_saw: bool = True
    acknowledges_last: bool = True
    entry_before_retry: bool = True
    publishes_before_mark: bool = True
    retries_no_cancelled: bool = True
    claims_no_cancelled: bool = True
    takes_over_no_cancelled: bool = True
    redrive_adds: int = 2


SOUND = Protocol()


def numbered(state: State, number: int) -> State:
    """Add a retry's or a redrive's entry to the due table."""
    meaning = (number, state.redriven)
    meant = state.meant if meaning in state.meant else tuple(sorted({*state.meant, meaning}))
    return state._replace(entries=state.entries | 1 << number, meant=meant)


def acknowledged(state: State, message: int) -> State:
    """Delete the message, whichever worker has it: a late receipt may still count."""
    if not state.queue or state.queue[0] != message:
        return state
    return state._replace(queue=state.queue[1:], holder=0)


def with_worker(state: State, w: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:w], worker, *state.workers[w + 1 :]))


def numbers(bits: int) -> Iterator[int]:
    return (number for number in range(bits.bit_length()) if bits >> number & 1)
