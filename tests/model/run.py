"""One run after it was first sent: claim, lease, fence, outcome, retry, settle, acknowledge; and
requests to cancel and redrive it, and to start it before its retry is due.

The queue delivers only the head of the run's message group. A worker may be overtaken or die
between any two calls; its lease and its message's visibility timeout may expire at any time, which
counts as slowness while it lives. Waiting (backoff, `not_before`) is not a step: what may happen
later may happen now.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explore import Model, Step
from tests.model.run_environment import requests, time_steps, watcher_steps
from tests.model.run_state import (
    IDLE,
    MAX_ATTEMPTS,
    OF_LOST,
    OUTCOMES,
    SOUND,
    Doing,
    Left,
    Protocol,
    Record,
    RecordState,
    State,
    Worker,
    acknowledged,
    numbered,
    with_worker,
)


def run(
    protocol: Protocol = SOUND,
    *,
    crashes: int = 1,
    slow: int = 1,
    lost: int = 1,
    windows: int = 0,
    hand_backs: int = 0,
    cancels: int = 0,
    redrives: int = 0,
    starts: int = 0,
) -> Model[State]:
    """The model with this number of faults of each kind (crashes, expiries for slowness, lost
    answers, ends of the deduplication window) and of requests (hand-backs, cancels, redrives,
    starts before a retry is due).
    """
    left = Left(crashes, slow, lost, windows, hand_backs, cancels, redrives, starts)

    def steps(state: State) -> Iterator[Step[State]]:
        for w in range(len(state.workers)):
            yield from _worker_steps(protocol, state, w)
        yield from time_steps(state)
        yield from watcher_steps(state)
        yield from requests(protocol, state)

    def accounted(state: State) -> bool:
        record = state.record
        published = record.state is not RecordState.DEAD or bool(
            state.published >> record.dispatch & 1
        )
        idle = all(worker == IDLE for worker in state.workers)
        return record.state.ended and published and idle and not state.queue and not state.entries

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
            got = with_worker(state, w, Worker(Doing.CLAIM, message))._replace(holder=w + 1)
            yield Step(f"{name} receives {message}", got)
        return
    if left.crashes:
        crashed = with_worker(state, w, IDLE)._replace(left=left._replace(crashes=left.crashes - 1))
        yield Step(f"{name} dies", crashed, fault=True)
    if worker.doing is Doing.SCRIPT:
        yield from _script_steps(protocol, state, w, name)
        return
    done = _done(protocol, state, w)
    yield Step(f"{name}: {worker.doing.value}", done)
    if left.lost and done.record != state.record:
        # Written, but the answer is lost: a claim is abandoned, an outcome is written again.
        to = worker if worker.doing in OUTCOMES else IDLE
        unknown = with_worker(done, w, to)._replace(left=left._replace(lost=left.lost - 1))
        yield Step(f"{name}: {worker.doing.value}, answer lost", unknown, fault=True)
    if worker.doing in OUTCOMES and not _leased(state, w):
        yield Step(f"{name} gives up: its lease has expired", with_worker(state, w, IDLE))


def _leased(state: State, w: int) -> bool:
    return state.record.live and state.record.fence == state.workers[w].fence


def _script_steps(protocol: Protocol, state: State, w: int, name: str) -> Iterator[Step[State]]:
    worker, record = state.workers[w], state.record
    ours = record.state is RecordState.RUNNING and record.fence == worker.fence
    again = worker.tries < MAX_ATTEMPTS
    retry = Doing.STORE_RETRY if protocol.entry_before_retry else Doing.RETRY
    ways = {"fails": retry if again else Doing.DIE, "succeeds": Doing.SUCCEED}
    if ours and record.cancel:
        ways["is stopped for a cancel"] = Doing.CANCEL
    for how, doing in ways.items():
        to = with_worker(state, w, worker._replace(doing=doing))
        if not protocol.acknowledges_last:
            to = acknowledged(to, worker.message)
        yield Step(f"{name}'s script {how}", to)
    if state.left.hand_backs:
        to = with_worker(state, w, worker._replace(doing=Doing.HAND_BACK))
        left = state.left._replace(hand_backs=state.left.hand_backs - 1)
        yield Step(f"{name} gets SIGTERM", to._replace(left=left))
    if ours and not record.live:
        # The heartbeat may have been in flight since before the expiry; a worker that read the
        # expired lease read another one.
        others = tuple(
            other._replace(same=False) if other.doing in OF_LOST else other
            for other in state.workers
        )
        beaten = state._replace(record=record._replace(live=True), workers=others)
        yield Step(f"{name}'s heartbeat arrives", beaten)
    if not ours or not record.live:
        yield Step(f"{name} stops its script: the lease is lost", with_worker(state, w, IDLE))


def _done(  # noqa: C901, PLR0912 — a list of calls, each with its own effect
    protocol: Protocol, state: State, w: int
) -> State:
    """The state after worker *w*'s next call."""
    worker, record = state.workers[w], state.record
    match worker.doing:
        case Doing.CLAIM:
            return _claim(protocol, state, w)
        case Doing.TAKE_OVER:
            taken = record._replace(
                dispatch=max(record.dispatch, worker.message),
                tries=record.tries + 1,
                fence=record.fence + 1,
                live=True,
            )
            return _write(protocol, state, w, taken, Doing.SCRIPT)
        case Doing.BURY_LOST | Doing.DIE:
            return _write(protocol, state, w, _ended(record, RecordState.DEAD), Doing.PUBLISH)
        case Doing.CANCEL_LOST | Doing.CANCEL:
            return _write(
                protocol, state, w, _ended(record, RecordState.CANCELLED), Doing.ACKNOWLEDGE
            )
        case Doing.CANCEL_WAITING:
            if record.state is RecordState.PENDING:
                state = state._replace(record=_ended(record, RecordState.CANCELLED))
            return with_worker(state, w, worker._replace(doing=Doing.CLAIM))
        case Doing.SUCCEED:
            return _write(
                protocol, state, w, _ended(record, RecordState.SUCCEEDED), Doing.ACKNOWLEDGE
            )
        case Doing.STORE_RETRY:
            state = numbered(state, worker.dispatch + 1)
            after = Doing.RETRY if protocol.entry_before_retry else Doing.ACKNOWLEDGE
            return with_worker(state, w, worker._replace(doing=after))
        case Doing.RETRY:
            to = record._replace(
                state=RecordState.PENDING, dispatch=worker.dispatch + 1, live=False
            )
            after = Doing.ACKNOWLEDGE if protocol.entry_before_retry else Doing.STORE_RETRY
            return _write(protocol, state, w, to, after)
        case Doing.HAND_BACK:
            to = record._replace(state=RecordState.PENDING, tries=record.tries - 1, live=False)
            state = _write(protocol, state, w, to, Doing.RECEIVE)
            return state._replace(holder=0) if state.holder == w + 1 else state
        case Doing.PUBLISH:
            after = Doing.MARK if protocol.publishes_before_mark else Doing.ACKNOWLEDGE
            state = state._replace(published=state.published | 1 << worker.dispatch)
            return with_worker(state, w, worker._replace(doing=after))
        case Doing.MARK:
            if record.state is RecordState.DEAD and record.dispatch == worker.dispatch:
                state = state._replace(record=record._replace(buried=worker.dispatch))
            after = Doing.ACKNOWLEDGE if protocol.publishes_before_mark else Doing.PUBLISH
            return with_worker(state, w, worker._replace(doing=after))
        case _:
            return with_worker(acknowledged(state, worker.message), w, IDLE)


def _claim(protocol: Protocol, state: State, w: int) -> State:
    """One conditional write; if it is refused, the record decides."""
    worker, record = state.workers[w], state.record
    older = worker.message < record.dispatch
    pending = record.state is RecordState.PENDING
    stopped = record.cancel and protocol.claims_no_cancelled
    free = record.state is RecordState.ABSENT or (pending and not older and not stopped)
    if free or not protocol.claims_only_what_is_free:
        taken = record._replace(
            state=RecordState.RUNNING,
            dispatch=worker.message,
            tries=record.tries + 1,
            fence=record.fence + 1,
            live=True,
        )
        return _knowing(state._replace(record=taken), w, Doing.SCRIPT)
    if record.state.ended:
        return _knowing(state, w, _settling(protocol, record))
    if older:
        return _knowing(state, w, Doing.ACKNOWLEDGE)
    if record.live and not pending:
        waits = with_worker(state, w, IDLE)
        return waits._replace(holder=0) if state.holder == w + 1 else waits
    if record.cancel:
        return _knowing(state, w, Doing.CANCEL_WAITING if pending else Doing.CANCEL_LOST)
    if record.tries >= MAX_ATTEMPTS:
        return _knowing(state, w, Doing.BURY_LOST)
    return _knowing(state, w, Doing.TAKE_OVER)


def _settling(protocol: Protocol, record: Record) -> Doing:
    if record.state is not RecordState.DEAD or record.buried == record.dispatch:
        return Doing.ACKNOWLEDGE
    return Doing.PUBLISH if protocol.publishes_before_mark else Doing.MARK


def _write(protocol: Protocol, state: State, w: int, to: Record, after: Doing) -> State:
    """Write the outcome *to* if the record is still the worker's (or the lost one that it read).
    Returns the state with the worker's next step in either case.
    """
    worker, record = state.workers[w], state.record
    lapsed = worker.doing in OF_LOST
    ours = record.fence == worker.fence or not protocol.records_under_its_fence
    if record.state is RecordState.RUNNING and ours:
        if lapsed and protocol.takes_the_lease_it_saw and (record.live or not worker.same):
            return with_worker(state, w, worker._replace(doing=Doing.CLAIM))
        if worker.doing is Doing.TAKE_OVER and record.cancel and protocol.takes_over_no_cancelled:
            return with_worker(state, w, worker._replace(doing=Doing.CLAIM))
        again = worker.doing in (Doing.RETRY, Doing.DIE, Doing.BURY_LOST, Doing.HAND_BACK)
        if again and record.cancel and protocol.retries_no_cancelled:
            cancel = Doing.CANCEL_LOST if lapsed else Doing.CANCEL
            return with_worker(state, w, worker._replace(doing=cancel))
        if after is Doing.PUBLISH and not protocol.publishes_before_mark:
            after = Doing.MARK
        return _knowing(state._replace(record=to), w, after)
    wrote = record.fence == worker.fence and record.state is _leads_to(worker.doing)
    if wrote and not lapsed:
        # It wrote this before, and the answer was lost.
        return _knowing(state, w, after)
    if lapsed:
        return with_worker(state, w, worker._replace(doing=Doing.CLAIM))
    return with_worker(state, w, IDLE)


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
        return with_worker(state, w, IDLE)
    record, message = state.record, state.workers[w].message
    if doing is Doing.ACKNOWLEDGE:
        return with_worker(state, w, Worker(doing, message))
    return with_worker(
        state, w, Worker(doing, message, record.fence, record.dispatch, record.tries)
    )


def _ended(record: Record, state: RecordState) -> Record:
    return record._replace(state=state, live=False)
