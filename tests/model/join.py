"""A join: one run that waits for the runs of two parents.

The executor of a parent's run adds a mark to the join, decides, and starts or skips the run of the
child. It may die between any two calls; then its message is delivered again. The first parent ends;
the second may never end. A parent that failed may be redriven. The join ends at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explore import Model, Step

REDRIVEN = "R"
"""A parent that waits for its next attempt. Others: S(ucceeded), F(ailed), or empty."""
RUNS, BY_RULE, BY_END, REOPENED = "runs", "skipped by rule", "skipped by its end", "reopened"
START, RESTART, END = "start", "restart", "end"
"""The messages of the child's run: its first dispatch, that of a reopened run, and the end of its
join.
"""

Marks = frozenset[tuple[int, str]]


class Hand(NamedTuple):
    """An executor that has received *message*. `step`: its next call; `ended`: how the parent had
    ended when it read it; `marks` and `seen`: what it has read.
    """

    message: str
    step: str
    ended: str = ""
    marks: Marks = frozenset()
    seen: str = ""


class State(NamedTuple):
    """`parents`: how each parent ended; `record`: of the child's run. `came`, `noted`: its time;
    `left`: the parent that was noted last as not ended, or -1; see `timed_join`.
    """

    parents: tuple[str, ...]
    queue: tuple[str, ...]
    hands: tuple[Hand | None, ...]
    items: tuple[Marks, ...]
    entry: bool = False
    record: str = ""
    crashes: int = 0
    doubles: int = 0
    redrives: int = 0
    came: bool = False
    noted: bool = False
    left: int = -1


@dataclass(frozen=True)
class Protocol:
    """How a join is kept. Each departure from the defaults breaks it."""

    entry_before_mark: bool = True
    acknowledges_last: bool = True
    marks_before_reading_others: bool = True
    adds_marks: bool = True
    skips_only_without_record: bool = True
    looks_again_after_skip: bool = True
    reopens_only_by_rule: bool = True
    end_never_starts: bool = True
    reopens_with_dispatch: bool = True


def decide(marks: Marks) -> str:
    """ALL_SUCCEEDED: RUN, SKIP or WAIT. The best mark of a parent counts."""
    best = {each: {state for parent, state in marks if parent == each} for each in (0, 1)}
    if any(states == {"F"} for states in best.values()):
        return "SKIP"
    return "RUN" if all("S" in states for states in best.values()) else "WAIT"


@dataclass(frozen=True)
class Steps:
    """The possible next steps under *protocol*."""

    protocol: Protocol

    def __call__(self, state: State) -> Iterator[Step[State]]:
        yield from self._parents(state)
        if state.entry:
            sent = state._replace(entry=False)
            yield Step("the join ends", send(sent, END))
        for number, hand in enumerate(state.hands):
            name = f"executor {'ab'[number]}"
            if hand is None:
                yield from self._receive(state, number, name)
                continue
            if state.crashes:
                dead = with_hand(state, number, None)._replace(crashes=state.crashes - 1)
                left = hand.message if self.protocol.acknowledges_last else ""
                yield Step(f"{name} dies", send(dead, left), fault=True)
            yield from self._continue(state, number, hand, name)

    def _parents(self, state: State) -> Iterator[Step[State]]:
        for parent, ended in enumerate(state.parents):
            message = f"parent {parent}"
            if ended in ("", REDRIVEN):
                for to in "S" if ended == REDRIVEN else "SF":
                    yield Step(
                        f"{message} ends {to}",
                        send(_ended(state, parent, to), message),
                        # Nothing may depend on the second one.
                        fault=parent == 1 and not ended,
                    )
            if ended == "F" and state.redrives:
                redriven = _ended(state, parent, REDRIVEN)
                redriven = redriven._replace(redrives=state.redrives - 1)
                yield Step(f"{message} is redriven", redriven, fault=True)

    def _receive(self, state: State, number: int, name: str) -> Iterator[Step[State]]:
        if number == 1 and state.hands[0] is None:
            return  # the executors do not differ
        for message in sorted({*state.queue}):
            left = [*state.queue]
            left.remove(message)
            to = state._replace(queue=tuple(left))
            yield from self.take(to, number, message, f"{name} receives {message}")
            if state.doubles:
                again = send(to._replace(doubles=state.doubles - 1), message)
                what = f"{name} receives {message}, which stays"
                yield from self.take(again, number, message, what, fault=True)

    def take(
        self, state: State, number: int, message: str, name: str, *, fault: bool = False
    ) -> Iterator[Step[State]]:
        if message in (START, RESTART):
            free = "" if message == START else REOPENED
            taken = state._replace(record=RUNS) if state.record == free else state
            yield Step(name, taken, fault)
            return
        first = "read record" if message == END else "read item"
        ended = "" if message == END else state.parents[int(message[-1])]
        if ended == REDRIVEN:
            yield Step(name, state, fault)  # an older dispatch
            return
        yield Step(name, with_hand(state, number, Hand(message, first, ended)), fault)

    def _continue(self, state: State, number: int, hand: Hand, name: str) -> Iterator[Step[State]]:
        to = getattr(self, "_" + hand.step.replace(" ", "_"))(state, number, hand)
        yield Step(f"{name}, {hand.message}: {hand.step}", to)

    # The calls of an executor of a parent

    def _read_item(self, state: State, number: int, hand: Hand) -> State:
        item = self._item(state, hand)
        hand = hand._replace(seen="" if state.items[item] else "empty")
        if not self.protocol.marks_before_reading_others:
            others = [marks for each, marks in enumerate(state.items) if each != item]
            hand = hand._replace(marks=frozenset().union(*others))
        put = hand.seen == "empty" and self.protocol.entry_before_mark
        return with_hand(state, number, hand._replace(step="put entry" if put else "add mark"))

    def _put_entry(self, state: State, number: int, hand: Hand) -> State:
        step = "add mark" if self.protocol.entry_before_mark else "decide"
        return with_hand(state._replace(entry=True), number, hand._replace(step=step))

    def _add_mark(self, state: State, number: int, hand: Hand) -> State:
        item, own = self._item(state, hand), frozenset({(self._parent(hand), hand.ended)})
        marks = (state.items[item] | own) if self.protocol.adds_marks else own
        items = tuple(marks if each == item else had for each, had in enumerate(state.items))
        step = "read others" if self.protocol.marks_before_reading_others else "decide"
        if hand.seen == "empty" and not self.protocol.entry_before_mark:
            step = "put entry"
        read = hand._replace(step=step, marks=marks | hand.marks)
        return with_hand(state._replace(items=items), number, read)

    def _read_others(self, state: State, number: int, hand: Hand) -> State:
        item = self._item(state, hand)
        others = [marks for each, marks in enumerate(state.items) if each != item]
        marks = hand.marks.union(*others)
        return with_hand(state, number, hand._replace(marks=marks, step="decide"))

    def _decide(self, state: State, number: int, hand: Hand) -> State:
        """Read the record, unless it is not needed."""
        step = {"RUN": "reopen", "SKIP": "skip", "WAIT": "acknowledge"}[decide(hand.marks)]
        return with_hand(state, number, hand._replace(step=step, seen=state.record))

    def _reopen(self, state: State, number: int, hand: Hand) -> State:
        allowed = (BY_RULE,) if self.protocol.reopens_only_by_rule else (BY_RULE, BY_END)
        if hand.seen in allowed and state.record == hand.seen:
            state = state._replace(record=REOPENED)
            if self.protocol.reopens_with_dispatch:  # in one transaction
                sent = send(state, RESTART)
                return with_hand(sent, number, hand._replace(step="acknowledge"))
            hand = hand._replace(seen=REOPENED)
        elif hand.seen != "":
            hand = hand._replace(seen=RUNS)
        return with_hand(state, number, hand._replace(step="send"))

    def _send(self, state: State, number: int, hand: Hand) -> State:
        message = {"": START, REOPENED: RESTART}.get(hand.seen)
        sent = send(state, message) if message else state
        return with_hand(sent, number, hand._replace(step="acknowledge"))

    def _skip(self, state: State, number: int, hand: Hand) -> State:
        if state.record and self.protocol.skips_only_without_record:
            return with_hand(state, number, hand._replace(step="acknowledge"))
        by = BY_RULE if decide(hand.marks) == "SKIP" else BY_END
        again = by == BY_RULE and self.protocol.looks_again_after_skip
        hand = hand._replace(step="look again" if again else "acknowledge", seen=by)
        return with_hand(state._replace(record=by), number, hand)

    def _look_again(self, state: State, number: int, hand: Hand) -> State:
        marks: Marks = frozenset().union(*state.items)
        step = "reopen" if decide(marks) == "RUN" else "acknowledge"
        return with_hand(state, number, hand._replace(marks=marks, step=step))

    def _acknowledge(self, state: State, number: int, hand: Hand) -> State:  # noqa: ARG002
        return with_hand(state, number, None)

    # The calls of an executor of the end

    def _read_record(self, state: State, number: int, hand: Hand) -> State:
        if state.record == BY_RULE and self.protocol.looks_again_after_skip:
            return with_hand(state, number, hand._replace(seen=BY_RULE, step="look again"))
        step = "acknowledge" if state.record else "read marks"
        return with_hand(state, number, hand._replace(seen=state.record, step=step))

    def _read_marks(self, state: State, number: int, hand: Hand) -> State:
        marks: Marks = frozenset().union(*state.items)
        starts = decide(marks) == "RUN" or not self.protocol.end_never_starts
        hand = hand._replace(marks=marks, step="send" if starts else "skip")
        return with_hand(state, number, hand)

    def _parent(self, hand: Hand) -> int:
        return int(hand.message[-1])

    def _item(self, state: State, hand: Hand) -> int:
        return self._parent(hand) % len(state.items)


def send(state: State, message: str) -> State:
    """The queue merges equal dispatches of a run."""
    if not message or message in state.queue:
        return state
    return state._replace(queue=tuple(sorted([*state.queue, message])))


def with_hand(state: State, number: int, hand: Hand | None) -> State:
    hands = tuple(hand if each == number else had for each, had in enumerate(state.hands))
    return state._replace(hands=hands)


def _ended(state: State, parent: int, to: str) -> State:
    ends = tuple(to if each == parent else had for each, had in enumerate(state.parents))
    return state._replace(parents=ends)


def _accounted(state: State) -> bool:
    """At rest the run has a record. It was skipped by the rule only if a parent failed."""
    if all(ended == "S" for ended in state.parents):
        return state.record in (RUNS, BY_END)
    return state.record in (BY_RULE, BY_END)


def _starts_after_both(before: State, _: str, after: State) -> bool:
    begins = after.record == RUNS and before.record != RUNS
    return not begins or all(ended == "S" for ended in after.parents)


def keeps_record(before: State, _: str, after: State) -> bool:
    if before.record == after.record or not before.record:
        return True
    return (before.record, after.record) in {(BY_RULE, REOPENED), (REOPENED, RUNS)}


def _is_sent(before: State, _: str, after: State) -> bool:
    """When both parents were handed over, the run is sent, or has a record: it does not wait for
    the end of its join.
    """
    messages = {f"parent {parent}" for parent in (0, 1)}
    held = {hand.message for hand in after.hands if hand is not None}
    under_way = messages & {*after.queue} or held
    complete = all(ended == "S" for ended in after.parents) and not under_way
    return not complete or bool(after.record) or START in after.queue or before == after


def join(
    protocol: Protocol = Protocol(),
    *,
    items: int = 1,
    crashes: int = 2,
    doubles: int = 1,
    redrives: int = 0,
    begun: bool = False,
) -> Model[State]:
    """The model of a join whose parents' marks are in *items* items. *begun*: the second parent
    succeeded and was handed over.
    """
    mark: Marks = frozenset({(1, "S")} if begun else ())
    initial = State(
        parents=("", "S" if begun else ""),
        queue=(),
        hands=(None, None),
        items=(*[frozenset()] * (items - 1), mark),
        entry=begun,
        crashes=crashes,
        doubles=doubles,
        redrives=redrives,
    )
    return Model(
        name=f"join of {items} items, {crashes} crashes, {doubles} doubles, {redrives} redrives",
        initial=initial,
        steps=Steps(protocol),
        always={},
        changes={
            "a run starts only after both parents succeeded": _starts_after_both,
            "the record of a joined run changes only if a parent was redriven": keeps_record,
            "a complete join is sent without waiting for its end": _is_sent,
        },
        accounted=_accounted,
    )
