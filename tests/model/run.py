"""One run after it was first sent: claim, lease, fence, outcome, retry, settle, acknowledge; and
requests to cancel and redrive it.

The queue delivers only the head of the run's message group. A worker may be overtaken or die
between any two calls; its lease and its message's visibility timeout may expire at any time, which
counts as slowness while it lives. Waiting (backoff, `not_before`) is not a step: what may happen
later may happen now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.model.explore import Model, Step

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


def run(
    protocol: Protocol = Protocol(),
    *,
    crashes: int = 1,
    slow: int = 1,
    lost: int = 1,
    windows: int = 0,
    hand_backs: int = 0,
    cancels: int = 0,
    redrives: int = 0,
) -> Model[State]:
    """The model with this number of faults of each kind (crashes, expiries for slowness, lost
    answers, ends of the deduplication window) and of requests (hand-backs, cancels, redrives).
    """
    left = Left(crashes, slow, lost, windows, hand_backs, cancels, redrives)

    def steps(state: State) -> Iterator[Step[State]]:
        for w in range(len(state.workers)):
            yield from _worker_steps(protocol, state, w)
        yield from _time_steps(state)
        yield from _watcher_steps(state)
        yield from _requests(protocol, state)

    def accounted(state: State) -> bool:
        there = state.record
        published = there.state is not RecordState.DEAD or bool(
            state.published >> there.dispatch & 1
        )
        idle = all(worker == IDLE for worker in state.workers)
        return there.state.ended and published and idle and not state.queue and not state.entries

    return Model(
        name="run",
        initial=State(Record(), (1,), (IDLE, IDLE), left),
        steps=steps,
        always={
            "attempts stay within maxAttempts": lambda s: s.record.tries <= MAX_ATTEMPTS,
            "a death marked as published was published": lambda s: (
                not s.record.buried or bool(s.published >> s.record.buried & 1)
            ),
            "a dispatch number has one meaning": lambda s: (
                len({number for number, _ in s.meant}) == len(s.meant)
            ),
        },
        changes={
            "only a redrive restarts an ended run": lambda before, name, after: (
                not before.record.state.ended
                or before.record.state is after.record.state
                or name == "redrive"
            ),
            "an unexpired lease has one holder": lambda before, _, after: (
                before.record.fence == after.record.fence
                or not (before.record.live and before.record.state is RecordState.RUNNING)
            ),
            "a worker that lost the run records nothing": _fenced,
            "no attempt begins after an answered cancel": lambda before, _, after: (
                not before.answered or before.record.fence == after.record.fence
            ),
        },
        accounted=accounted,
    )


def _fenced(before: State, _: str, after: State) -> bool:
    """Only the worker with the record's fence ends or frees a RUNNING run."""
    was, now = before.record, after.record
    if was.state is not RecordState.RUNNING or now.state is RecordState.RUNNING:
        return True
    actors = zip(before.workers, after.workers, strict=True)
    return all(worker.fence == was.fence for worker, to in actors if worker != to)


def _worker_steps(protocol: Protocol, state: State, w: int) -> Iterator[Step[State]]:
    worker, left = state.workers[w], state.left
    name = f"worker {'ab'[w]}"
    if worker.doing is Doing.RECEIVE:
        if state.queue and not state.holder:
            message = state.queue[0]
            got = _with(state, w, Worker(Doing.CLAIM, message))._replace(holder=w + 1)
            yield Step(f"{name} receives {message}", got)
        return
    if left.crashes:
        crashed = _with(state, w, IDLE)._replace(left=left._replace(crashes=left.crashes - 1))
        yield Step(f"{name} dies", crashed, fault=True)
    if worker.doing is Doing.SCRIPT:
        yield from _script_steps(protocol, state, w, name)
        return
    done = _done(protocol, state, w)
    yield Step(f"{name}: {worker.doing.value}", done)
    if left.lost and done.record != state.record:
        # Written, but the answer is lost: a claim is abandoned, an outcome is written again.
        to = worker if worker.doing in _OUTCOMES else IDLE
        unknown = _with(done, w, to)._replace(left=left._replace(lost=left.lost - 1))
        yield Step(f"{name}: {worker.doing.value}, answer lost", unknown, fault=True)
    if worker.doing in _OUTCOMES and not _leased(state, w):
        yield Step(f"{name} gives up: its lease has expired", _with(state, w, IDLE))


_OF_LOST = {Doing.TAKE_OVER, Doing.BURY_LOST, Doing.CANCEL_LOST}
_OUTCOMES = {Doing.SUCCEED, Doing.CANCEL, Doing.DIE, Doing.RETRY, Doing.HAND_BACK}


def _leased(state: State, w: int) -> bool:
    return state.record.live and state.record.fence == state.workers[w].fence


def _script_steps(protocol: Protocol, state: State, w: int, name: str) -> Iterator[Step[State]]:
    worker, there = state.workers[w], state.record
    ours = there.state is RecordState.RUNNING and there.fence == worker.fence
    again = worker.tries < MAX_ATTEMPTS
    retry = Doing.STORE_RETRY if protocol.entry_before_retry else Doing.RETRY
    ways = {"fails": retry if again else Doing.DIE, "succeeds": Doing.SUCCEED}
    if ours and there.cancel:
        ways["is stopped for a cancel"] = Doing.CANCEL
    for how, doing in ways.items():
        to = _with(state, w, worker._replace(doing=doing))
        if not protocol.acknowledges_last:
            to = _acknowledged(to, worker.message)
        yield Step(f"{name}'s script {how}", to)
    if state.left.hand_backs:
        to = _with(state, w, worker._replace(doing=Doing.HAND_BACK))
        left = state.left._replace(hand_backs=state.left.hand_backs - 1)
        yield Step(f"{name} gets SIGTERM", to._replace(left=left))
    if ours and not there.live:
        # The heartbeat may have been in flight since before the expiry; a worker that read the
        # expired lease read another one.
        others = tuple(
            other._replace(same=False) if other.doing in _OF_LOST else other
            for other in state.workers
        )
        beaten = state._replace(record=there._replace(live=True), workers=others)
        yield Step(f"{name}'s heartbeat arrives", beaten)
    if not ours or not there.live:
        yield Step(f"{name} stops its script: the lease is lost", _with(state, w, IDLE))


def _done(  # noqa: C901, PLR0912 — a list of calls, each with its own effect
    protocol: Protocol, state: State, w: int
) -> State:
    """The state after worker *w*'s next call."""
    worker, there = state.workers[w], state.record
    match worker.doing:
        case Doing.CLAIM:
            return _claim(protocol, state, w)
        case Doing.TAKE_OVER:
            taken = there._replace(
                dispatch=max(there.dispatch, worker.message),
                tries=there.tries + 1,
                fence=there.fence + 1,
                live=True,
            )
            return _write(protocol, state, w, taken, Doing.SCRIPT)
        case Doing.BURY_LOST | Doing.DIE:
            return _write(protocol, state, w, _ended(there, RecordState.DEAD), Doing.PUBLISH)
        case Doing.CANCEL_LOST | Doing.CANCEL:
            return _write(
                protocol, state, w, _ended(there, RecordState.CANCELLED), Doing.ACKNOWLEDGE
            )
        case Doing.CANCEL_WAITING:
            if there.state is RecordState.PENDING:
                state = state._replace(record=_ended(there, RecordState.CANCELLED))
            return _with(state, w, worker._replace(doing=Doing.CLAIM))
        case Doing.SUCCEED:
            return _write(
                protocol, state, w, _ended(there, RecordState.SUCCEEDED), Doing.ACKNOWLEDGE
            )
        case Doing.STORE_RETRY:
            state = _numbered(state, worker.dispatch + 1)
            after = Doing.RETRY if protocol.entry_before_retry else Doing.ACKNOWLEDGE
            return _with(state, w, worker._replace(doing=after))
        case Doing.RETRY:
            to = there._replace(state=RecordState.PENDING, dispatch=worker.dispatch + 1, live=False)
            after = Doing.ACKNOWLEDGE if protocol.entry_before_retry else Doing.STORE_RETRY
            return _write(protocol, state, w, to, after)
        case Doing.HAND_BACK:
            to = there._replace(state=RecordState.PENDING, tries=there.tries - 1, live=False)
            state = _write(protocol, state, w, to, Doing.RECEIVE)
            return state._replace(holder=0) if state.holder == w + 1 else state
        case Doing.PUBLISH:
            after = Doing.MARK if protocol.publishes_before_mark else Doing.ACKNOWLEDGE
            state = state._replace(published=state.published | 1 << worker.dispatch)
            return _with(state, w, worker._replace(doing=after))
        case Doing.MARK:
            if there.state is RecordState.DEAD and there.dispatch == worker.dispatch:
                state = state._replace(record=there._replace(buried=worker.dispatch))
            after = Doing.ACKNOWLEDGE if protocol.publishes_before_mark else Doing.PUBLISH
            return _with(state, w, worker._replace(doing=after))
        case _:
            return _with(_acknowledged(state, worker.message), w, IDLE)


def _claim(protocol: Protocol, state: State, w: int) -> State:
    """One conditional write; if it is refused, the record decides."""
    worker, there = state.workers[w], state.record
    older = worker.message < there.dispatch
    pending = there.state is RecordState.PENDING
    stopped = there.cancel and protocol.claims_no_cancelled
    free = there.state is RecordState.ABSENT or (pending and not older and not stopped)
    if free or not protocol.claims_only_what_is_free:
        taken = there._replace(
            state=RecordState.RUNNING,
            dispatch=worker.message,
            tries=there.tries + 1,
            fence=there.fence + 1,
            live=True,
        )
        return _knowing(state._replace(record=taken), w, Doing.SCRIPT)
    if there.state.ended:
        return _knowing(state, w, _settling(protocol, there))
    if older:
        return _knowing(state, w, Doing.ACKNOWLEDGE)
    if there.live and not pending:
        waits = _with(state, w, IDLE)
        return waits._replace(holder=0) if state.holder == w + 1 else waits
    if there.cancel:
        return _knowing(state, w, Doing.CANCEL_WAITING if pending else Doing.CANCEL_LOST)
    if there.tries >= MAX_ATTEMPTS:
        return _knowing(state, w, Doing.BURY_LOST)
    return _knowing(state, w, Doing.TAKE_OVER)


def _settling(protocol: Protocol, there: Record) -> Doing:
    if there.state is not RecordState.DEAD or there.buried == there.dispatch:
        return Doing.ACKNOWLEDGE
    return Doing.PUBLISH if protocol.publishes_before_mark else Doing.MARK


def _write(protocol: Protocol, state: State, w: int, to: Record, after: Doing) -> State:
    """Write the outcome *to* if the record is still the worker's (or the lost one that it read).
    Returns the state with the worker's next step in either case.
    """
    worker, there = state.workers[w], state.record
    lapsed = worker.doing in _OF_LOST
    ours = there.fence == worker.fence or not protocol.records_under_its_fence
    if there.state is RecordState.RUNNING and ours:
        if lapsed and protocol.takes_the_lease_it_saw and (there.live or not worker.same):
            return _with(state, w, worker._replace(doing=Doing.CLAIM))
        if worker.doing is Doing.TAKE_OVER and there.cancel and protocol.takes_over_no_cancelled:
            return _with(state, w, worker._replace(doing=Doing.CLAIM))
        again = worker.doing in (Doing.RETRY, Doing.DIE, Doing.BURY_LOST, Doing.HAND_BACK)
        if again and there.cancel and protocol.retries_no_cancelled:
            cancel = Doing.CANCEL_LOST if lapsed else Doing.CANCEL
            return _with(state, w, worker._replace(doing=cancel))
        if after is Doing.PUBLISH and not protocol.publishes_before_mark:
            after = Doing.MARK
        return _knowing(state._replace(record=to), w, after)
    wrote = there.fence == worker.fence and there.state is _leads_to(worker.doing)
    if wrote and not lapsed:
        # It wrote this before, and the answer was lost.
        return _knowing(state, w, after)
    if lapsed:
        return _with(state, w, worker._replace(doing=Doing.CLAIM))
    return _with(state, w, IDLE)


def _leads_to(doing: Doing) -> RecordState:
    return {
        Doing.SUCCEED: RecordState.SUCCEEDED,
        Doing.DIE: RecordState.DEAD,
        Doing.CANCEL: RecordState.CANCELLED,
        Doing.RETRY: RecordState.PENDING,
        Doing.HAND_BACK: RecordState.PENDING,
    }.get(doing, RecordState.ABSENT)


def _knowing(state: State, w: int, doing: Doing) -> State:
    """Worker *w* continues with *doing*, and knows the record as it is."""
    if doing is Doing.RECEIVE:
        return _with(state, w, IDLE)
    there, message = state.record, state.workers[w].message
    if doing is Doing.ACKNOWLEDGE:
        return _with(state, w, Worker(doing, message))
    return _with(state, w, Worker(doing, message, there.fence, there.dispatch, there.tries))


def _ended(there: Record, state: RecordState) -> Record:
    return there._replace(state=state, live=False)


def _time_steps(state: State) -> Iterator[Step[State]]:
    """Expiries: free if no worker holds the lease or message, otherwise counted as slowness."""
    there, left = state.record, state.left
    slower = left._replace(slow=left.slow - 1)
    if there.state is RecordState.RUNNING and there.live:
        lapsed = state._replace(record=there._replace(live=False))
        held = any(w.fence == there.fence and w.doing in _WORKING for w in state.workers)
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


_WORKING = {Doing.SCRIPT, Doing.STORE_RETRY, *_OUTCOMES}


def _watcher_steps(state: State) -> Iterator[Step[State]]:
    """Entries are sent before they are deleted; a second watcher may repeat either."""
    for number in _numbers(state.entries):
        bit = 1 << number
        fresh = not state.sent & bit
        sent = state._replace(
            queue=(*state.queue, number) if fresh else state.queue,
            sent=state.sent | bit,
            deleting=state.deleting | bit,
        )
        yield Step(f"a watcher sends {number}{'' if fresh else ', a repetition'}", sent)
    for number in _numbers(state.deleting):
        bit = 1 << number
        deleted = state._replace(entries=state.entries & ~bit)
        done = deleted._replace(deleting=state.deleting & ~bit)
        yield Step(f"the watcher deletes entry {number}", done)
        if state.entries & bit and state.left.crashes:
            left = state.left._replace(crashes=state.left.crashes - 1)
            name = f"a watcher deletes entry {number}, another is about to"
            yield Step(name, deleted._replace(left=left), fault=True)


def _requests(protocol: Protocol, state: State) -> Iterator[Step[State]]:
    there, left = state.record, state.left
    if left.cancels and not there.state.ended:
        if there.state is RecordState.RUNNING:
            cancelled = there._replace(cancel=True)
        else:
            cancelled = there._replace(state=RecordState.CANCELLED)
        less = left._replace(cancels=left.cancels - 1)
        yield Step("cancel", state._replace(record=cancelled, left=less, answered=True))
    if left.redrives and there.state is RecordState.DEAD:
        number = there.dispatch + protocol.redrive_adds
        again = there._replace(state=RecordState.PENDING, dispatch=number, tries=0, cancel=False)
        redriven = state._replace(
            record=again,
            left=left._replace(redrives=left.redrives - 1),
            redriven=state.redriven + 1,
            answered=False,
        )
        yield Step("redrive", _numbered(redriven, number))


def _numbered(state: State, number: int) -> State:
    """Add a retry's or a redrive's entry to the due table."""
    meaning = (number, state.redriven)
    meant = state.meant if meaning in state.meant else tuple(sorted({*state.meant, meaning}))
    return state._replace(entries=state.entries | 1 << number, meant=meant)


def _acknowledged(state: State, message: int) -> State:
    """Delete the message, whichever worker has it: a late receipt may still count."""
    if not state.queue or state.queue[0] != message:
        return state
    return state._replace(queue=state.queue[1:], holder=0)


def _with(state: State, w: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:w], worker, *state.workers[w + 1 :]))


def _numbers(bits: int) -> Iterator[int]:
    return (number for number in range(bits.bit_length()) if bits >> number & 1)
