"""What happens to a run from outside: expiries, watchers, and requests."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explore import Step
from tests.model.run_state import (
    IDLE,
    OUTCOMES,
    Doing,
    Protocol,
    RecordState,
    State,
    numbered,
    numbers,
)


def time_steps(state: State) -> Iterator[Step[State]]:
    """Expiries: free if no worker holds the lease or message, otherwise counted as slowness."""
    record, left = state.record, state.left
    slower = left._replace(slow=left.slow - 1)
    if record.state is RecordState.RUNNING and record.live:
        lapsed = state._replace(record=record._replace(live=False))
        held = any(w.fence == record.fence and w.doing in _WORKING for w in state.workers)
        if not held:
            yield Step("the lease expires", lapsed)
        elif left.slow:
            yield Step("the lease expires: its worker is slow", lapsed._replace(left=slower), True)
    if state.holder:
        visible = state._replace(holder=0)
        if state.workers[state.holder - 1] == IDLE:
            yield Step("the message is visible again", visible)
        elif left.slow:
            late = visible._replace(left=slower)
            yield Step("the message is visible again: its worker is slow", late, fault=True)
    if left.windows and state.sent:
        forgotten = state._replace(sent=0, left=left._replace(windows=left.windows - 1))
        yield Step("the deduplication window passes", forgotten, fault=True)


_WORKING = {Doing.SCRIPT, Doing.STORE_RETRY, *OUTCOMES}


def watcher_steps(state: State) -> Iterator[Step[State]]:
    """Entries are sent before they are deleted; a second watcher may repeat either."""
    for number in numbers(state.entries):
        bit = 1 << number
        fresh = not state.sent & bit
        sent = state._replace(
            queue=(*state.queue, number) if fresh else state.queue,
            sent=state.sent | bit,
            deleting=state.deleting | bit,
        )
        yield Step(f"a watcher sends {number}{'' if fresh else ', a repetition'}", sent)
    for number in numbers(state.deleting):
        bit = 1 << number
        deleted = state._replace(entries=state.entries & ~bit)
        done = deleted._replace(deleting=state.deleting & ~bit)
        yield Step(f"the watcher deletes entry {number}", done)
        if state.entries & bit and state.left.crashes:
            left = state.left._replace(crashes=state.left.crashes - 1)
            name = f"a watcher deletes entry {number}, another is about to"
            yield Step(name, deleted._replace(left=left), fault=True)


def requests(protocol: Protocol, state: State) -> Iterator[Step[State]]:
    record, left = state.record, state.left
    if left.cancels and not record.state.ended:
        if record.state is RecordState.RUNNING:
            cancelled = record._replace(cancel=True)
        else:
            cancelled = record._replace(state=RecordState.CANCELLED)
        less = left._replace(cancels=left.cancels - 1)
        yield Step("cancel", state._replace(record=cancelled, left=less, answered=True))
    if left.redrives and record.state is RecordState.DEAD:
        number = record.dispatch + protocol.redrive_adds
        again = record._replace(state=RecordState.PENDING, dispatch=number, tries=0, cancel=False)
        redriven = state._replace(
            record=again,
            left=left._replace(redrives=left.redrives - 1),
            redriven=state.redriven + 1,
            answered=False,
        )
        yield Step("redrive", numbered(redriven, number))
    if left.starts and record.state is RecordState.PENDING:
        number = record.dispatch + protocol.redrive_adds
        begun = state._replace(
            record=record._replace(dispatch=number),
            left=left._replace(starts=left.starts - 1),
            redriven=state.redriven + 1,
        )
        yield Step("start now", numbered(begun, number))
