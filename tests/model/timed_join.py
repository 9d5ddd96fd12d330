"""A run of a job with a schedule that waits for its time and for the runs of two parents.

The executor that receives the time reads the parents' records and decides; if it has to wait, it
stores the end of the join, notes the time, and reads them again. The executor of a parent has
written its record; it reads whether the time is noted, and if so the records. Both may die
between any two calls; then the message is delivered again. The records are read one by one. The
executor that ends the join notes the time too, if that was not done.

An executor that has to wait notes a parent that has not ended. The executor of the other parent
reads only the record of that one, and waits too if it has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model import join
from tests.model.explore import Model, Step
from tests.model.join import BY_END, BY_RULE, END, REDRIVEN, RUNS, START, Hand, State, decide

TIME = "time"
_READ = ("read parent 0", "read parent 1")


@dataclass(frozen=True)
class Protocol(join.Protocol):
    """How the time is kept. Each departure from the defaults breaks it."""

    notes_time_before_reading: bool = True
    looks_when_a_parent_ended: bool = True
    reads_who_is_left: bool = True


@dataclass(frozen=True)
class _TimedSteps(join.Steps):
    """The possible next steps under *protocol*."""

    protocol: Protocol

    def __call__(self, state: State) -> Iterator[Step[State]]:
        if not state.came:
            yield Step("its time comes", join.send(state._replace(came=True), TIME))
        yield from super().__call__(state)

    def take(
        self, state: State, number: int, message: str, name: str, *, fault: bool = False
    ) -> Iterator[Step[State]]:
        if message in ("parent 0", "parent 1"):
            if state.parents[int(message[-1])] == REDRIVEN:
                yield Step(name, state, fault)  # an older dispatch
                return
            looks = self.protocol.looks_when_a_parent_ended
            first = "look for time" if looks else "acknowledge"
            hand = Hand(message, first, seen=state.parents[int(message[-1])])
            yield Step(name, join.with_hand(state, number, hand), fault)
        elif message == TIME:
            handled = state.record != "" or (not self.protocol.entry_before_mark and state.noted)
            hand = Hand(message, "acknowledge" if handled else _READ[0])
            if state.record == BY_RULE and self.protocol.looks_again_after_skip:
                hand = Hand(message, "look again", seen=BY_RULE)
            yield Step(name, join.with_hand(state, number, hand), fault)
        else:
            yield from super().take(state, number, message, name, fault=fault)

    def _look_for_time(self, state: State, number: int, hand: Hand) -> State:
        step = _READ[0] if state.noted else "acknowledge"
        if state.noted and state.left not in (-1, self._parent(hand)) and hand.seen != "F":
            step = "read who is left" if self.protocol.reads_who_is_left else "acknowledge"
        return join.with_hand(state, number, hand._replace(step=step, marks=frozenset()))

    def _read_who_is_left(self, state: State, number: int, hand: Hand) -> State:
        # With two parents it is the other one.
        step = _READ[0] if _ended(state, 1 - self._parent(hand)) else "acknowledge"
        return join.with_hand(state, number, hand._replace(step=step))

    def _decide(self, state: State, number: int, hand: Hand) -> State:
        if decide(hand.marks) == "WAIT":
            return join.with_hand(state, number, hand._replace(step="note who is left"))
        return super()._decide(state, number, hand)

    def _note_who_is_left(self, state: State, number: int, hand: Hand) -> State:
        first = min({0, 1} - {parent for parent, _ in hand.marks})
        noted = state._replace(left=max(state.left, first))
        return join.with_hand(noted, number, hand._replace(step="acknowledge"))

    def _read_parent_0(self, state: State, number: int, hand: Hand) -> State:
        hand = hand._replace(marks=_ended(state, 0))
        return join.with_hand(state, number, hand._replace(step=_READ[1]))

    def _read_parent_1(self, state: State, number: int, hand: Hand) -> State:
        marks = hand.marks | _ended(state, 1)
        waits = hand.message == TIME and not hand.ended and decide(marks) != "RUN"
        step = "decide"
        if waits:
            step = "put entry" if self.protocol.entry_before_mark else "note time"
        elif hand.ended == "read" and not self.protocol.notes_time_before_reading:
            step = "note time"
        if hand.message == END:
            step = "end"
        return join.with_hand(state, number, hand._replace(step=step, marks=marks))

    def _put_entry(self, state: State, number: int, hand: Hand) -> State:
        entered = state._replace(entry=True)
        if not self.protocol.entry_before_mark:
            return join.with_hand(entered, number, hand._replace(step=_READ[0], ended="noted"))
        if not self.protocol.notes_time_before_reading:
            return join.with_hand(entered, number, hand._replace(step=_READ[0], ended="read"))
        return join.with_hand(entered, number, hand._replace(step="note time"))

    def _note_time(self, state: State, number: int, hand: Hand) -> State:
        noted = state._replace(noted=True)
        if not self.protocol.entry_before_mark:
            return join.with_hand(noted, number, hand._replace(step="put entry"))
        step = "decide" if hand.ended == "read" else _READ[0]
        ended = hand.ended if hand.message == END else "noted"
        return join.with_hand(noted, number, hand._replace(step=step, ended=ended))

    def _look_again(self, state: State, number: int, hand: Hand) -> State:
        marks = _ended(state, 0) | _ended(state, 1)
        step = "reopen" if decide(marks) == "RUN" else "acknowledge"
        return join.with_hand(state, number, hand._replace(marks=marks, step=step))

    def _read_marks(self, state: State, number: int, hand: Hand) -> State:
        step = _READ[0] if state.noted else "note time"
        return join.with_hand(state, number, hand._replace(step=step, marks=frozenset()))

    def _end(self, state: State, number: int, hand: Hand) -> State:
        step = "send" if decide(hand.marks) == "RUN" else "skip"
        return join.with_hand(state, number, hand._replace(step=step))


def _ended(state: State, parent: int) -> join.Marks:
    """How the parent has ended, by its record."""
    ended = state.parents[parent]
    return frozenset({(parent, ended)} if ended in ("S", "F") else ())


def _starts_after_all(before: State, _: str, after: State) -> bool:
    begins = after.record == RUNS and before.record != RUNS
    return not begins or (after.came and all(ended == "S" for ended in after.parents))


def _is_sent(before: State, _: str, after: State) -> bool:
    messages = {"parent 0", "parent 1", TIME}
    held = {hand.message for hand in after.hands if hand is not None}
    under_way = messages & {*after.queue} or held
    complete = all(ended == "S" for ended in after.parents) and after.came and not under_way
    return not complete or bool(after.record) or START in after.queue or before == after


def _accounted(state: State) -> bool:
    """At rest the run has a record. It was skipped by the rule only if a parent failed."""
    if all(ended == "S" for ended in state.parents):
        return state.record in (RUNS, BY_END)
    return state.record in (BY_RULE, BY_END)


def timed_join(
    protocol: Protocol = Protocol(),
    *,
    crashes: int = 1,
    doubles: int = 0,
    redrives: int = 0,
) -> Model[State]:
    """The model of a run that waits for its time and for two parents."""
    initial = State(
        parents=("", ""),
        queue=(),
        hands=(None, None),
        items=(frozenset(),),
        crashes=crashes,
        doubles=doubles,
        redrives=redrives,
    )
    return Model(
        name=f"time and parents, {crashes} crashes, {doubles} doubles, {redrives} redrives",
        initial=initial,
        steps=_TimedSteps(protocol),
        always={},
        changes={
            "a run starts only after its time and both parents": _starts_after_all,
            "the record of a joined run changes only if a parent was redriven": join.keeps_record,
            "a complete join is sent without waiting for its end": _is_sent,
        },
        accounted=_accounted,
    )
