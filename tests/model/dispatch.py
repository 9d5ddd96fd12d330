"""The tick: a chain of occurrences; two watchers that both think they hold the lease; a queue that
drops repetitions; executors that record missed occurrences.

The watcher covers a missed entry, or it sends the first occurrence that is not missed in its place.
The message of that run lists the missed occurrences before it: its row. The executor records the
row, step by step, before it handles its own run.

All occurrences are due from the start; a FIRE entry is the number of its occurrence. Both watchers
may act at any time, which is more than the lease allows: nothing here may depend on the lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.dispatch_state import (
    NO_RECORD,
    RAN,
    SOUND,
    Doing,
    Handling,
    MessageInHand,
    Protocol,
    State,
    Watcher,
    acknowledged,
    claiming,
    covering,
    handed,
    is_covered,
    numbers,
    recorded,
    records_of,
    sent,
    uncovered,
    with_watcher,
)
from tests.model.explore import Model, Step

ENTRY_GOES = (
    "an entry is deleted only after it was sent, listed or covered and its successor stored"
)


@dataclass(frozen=True)
class _Steps:
    """The possible next steps under *protocol*. `order`: of the calls for an entry that is sent."""

    protocol: Protocol
    occurrences: int
    alone: bool
    order: tuple[Doing, ...]

    def __call__(self, state: State) -> Iterator[Step[State]]:
        for w in range(len(state.watchers)):
            yield from self._watch(state, w)
        for number in range(self.occurrences):
            yield from self._execute(state, number)
        if state.windows and state.seen:
            forgotten = state._replace(seen=0, windows=state.windows - 1)
            yield Step("the deduplication window passes", forgotten, fault=True)
        if state.outages:
            for late in range(1, self.occurrences + 1):
                after = state._replace(late=late, outages=state.outages - 1)
                yield Step(f"an outage: the first {late} are missed", after, fault=True)

    def _watch(self, state: State, w: int) -> Iterator[Step[State]]:
        watcher = state.watchers[w]
        doing, entry = watcher.doing, watcher.entry
        name = f"watcher {'ab'[w]}"
        idle = with_watcher(state, w, Watcher())
        if doing is not Doing.READ and state.crashes:
            yield Step(f"{name} dies", idle._replace(crashes=state.crashes - 1), fault=True)
        if doing not in (Doing.READ, Doing.LOOK) and state.lost:
            refused = idle._replace(lost=state.lost - 1)
            yield Step(f"{name}: to {doing.value} is refused", refused, fault=True)
            for done in self._done(state, w):
                if done.name.endswith("accepted") or doing is not Doing.SEND:
                    unknown = with_watcher(done.to, w, Watcher())._replace(lost=state.lost - 1)
                    yield Step(f"{done.name}, answer lost", unknown, fault=True)
        if doing is Doing.READ:
            yield from self._read(state, w)
        elif doing is Doing.LOOK:
            if self.alone and (covering(state) or claiming(state)):
                return
            yield Step(
                f"{name} reads the records", with_watcher(state, w, self._look(state, entry))
            )
        else:
            yield from self._done(state, w)

    def _read(self, state: State, w: int) -> Iterator[Step[State]]:
        """A missed entry is covered, or the first occurrence that is not missed is sent instead. If
        the chain has two entries, the first is covered before the other is read.
        """
        name = f"watcher {'ab'[w]}"
        entries = [*numbers(state.due)]
        for number in entries:
            missed, both = number < state.late, len(entries) > 1
            if self.protocol.covers_where_two_are_left and entries[0] < min(number, state.late):
                continue
            if not missed:
                to = Watcher(self.order[0], number, 0, number + 1, sends=True)
                yield Step(f"{name} reads entry {number}", with_watcher(state, w, to))
                continue
            to = Watcher(Doing.LOOK, number)
            yield Step(f"{name} reads entry {number}, to cover it", with_watcher(state, w, to))
            if state.late < self.occurrences and not (
                both and self.protocol.covers_where_two_are_left
            ):
                to = Watcher(self.order[0], number, 0, state.late + 1, sends=True)
                yield Step(
                    f"{name} reads entry {number}, to send {state.late}", with_watcher(state, w, to)
                )

    def _done(self, state: State, w: int) -> Iterator[Step[State]]:
        """The next call of *w*, if it succeeds."""
        watcher = state.watchers[w]
        entry, name = watcher.entry, f"watcher {'ab'[w]}"
        match watcher.doing:
            case Doing.SEND:
                number = watcher.next - 1
                row = "" if number == entry else f", missed from {entry}"
                yield Step(
                    f"{name} sends {number}{row}: accepted",
                    with_watcher(sent(state, number, entry), w, self._then(watcher)),
                )
            case Doing.COVER:
                until = state.records[entry]
                if until == NO_RECORD or not self.protocol.covers_only_without_record:
                    until = watcher.last
                    state = recorded(state, entry, until)
                following = max(entry, until) + 1
                to = watcher._replace(doing=Doing.STORE, next=following)
                yield Step(f"{name} covers {entry} to {watcher.last}", with_watcher(state, w, to))
            case Doing.STORE:
                if watcher.next < self.occurrences:
                    bit = 1 << watcher.next
                    state = state._replace(due=state.due | bit, stored=state.stored | bit)
                yield Step(
                    f"{name} stores entry {watcher.next}",
                    with_watcher(state, w, self._then(watcher)),
                )
            case Doing.DELETE:
                state = state._replace(due=state.due & ~(1 << entry))
                yield Step(
                    f"{name} deletes entry {entry}", with_watcher(state, w, self._then(watcher))
                )

    def _then(self, watcher: Watcher) -> Watcher:
        """The step after a successful call."""
        after = self.order[self.order.index(watcher.doing) + 1 :]
        if not watcher.sends:
            after = tuple(doing for doing in after if doing is not Doing.SEND)
        return watcher._replace(doing=after[0]) if after else Watcher()

    def _look(self, state: State, entry: int) -> Watcher:
        last, until = uncovered(state, entry, state.late - 1)
        if until is None:
            return Watcher(Doing.COVER, entry, last)
        return Watcher(Doing.STORE, entry, 0, until + 1)

    def _execute(self, state: State, number: int) -> Iterator[Step[State]]:
        hand = state.hands[number]
        if hand is not None:
            if state.crashes:
                crashed = handed(state, number, None)._replace(crashes=state.crashes - 1)
                yield Step(f"the executor of {number} dies", crashed, fault=True)
            yield from self._handle(state, number, hand)
            return
        for first in sorted({*state.queued[number]}):
            again = state.delivered >> number & 1
            forgets = again and not self.protocol.row_by_every_delivery
            row = first < number and not forgets and self.protocol.row_before_claim
            doing = Handling.LOOK_ROW if row else Handling.LOOK_OWN
            taken = state._replace(delivered=state.delivered | 1 << number)
            if self.protocol.row_by_every_delivery:
                taken = state  # whether it was delivered before does not matter then
            yield from self._handle(taken, number, MessageInHand(first, first, doing))

    def _handle(self, state: State, number: int, hand: MessageInHand) -> Iterator[Step[State]]:
        """The next step of an executor with its message."""
        name = f"the executor of {number}"
        match hand.doing:
            case Handling.LOOK_ROW:
                if self.alone and (covering(state) or claiming(state)):
                    return
                to = self._row(state, number, hand)
                yield Step(f"{name} reads the records from {hand.at}", to)
            case Handling.RECORD_ROW:
                until = state.records[hand.at]
                if until == NO_RECORD or not self.protocol.row_only_without_record:
                    until = hand.last
                    state = recorded(state, hand.at, until)
                to = self._row_from(state, number, hand, max(hand.at, until) + 1)
                yield Step(f"{name} covers {hand.at} to {hand.last}", to)
            case Handling.LOOK_OWN:
                if self.alone and covering(state):
                    return
                looks = number < state.late and self.protocol.looks_for_ranges
                claims = handed(state, number, hand._replace(doing=Handling.CLAIM))
                covered = looks and is_covered(state, number)
                to = acknowledged(state, number, hand) if covered else claims
                yield Step(f"{name} checks for a record that covers it", to)
            case Handling.CLAIM:
                yield from self._claim(state, number, hand)
            case Handling.ACKNOWLEDGE:
                yield Step(f"{name} acknowledges", acknowledged(state, number, hand))

    def _claim(self, state: State, number: int, hand: MessageInHand) -> Iterator[Step[State]]:
        if state.records[number] != NO_RECORD:
            ended = acknowledged(state, number, hand)
            yield Step(f"the executor of {number} finds that it ended", ended)
            return
        ran = recorded(state, number, RAN)
        if self.protocol.row_before_claim or hand.first == number:
            yield Step(f"the executor of {number} runs it", acknowledged(ran, number, hand))
        else:
            to = handed(ran, number, hand._replace(doing=Handling.LOOK_ROW))
            yield Step(f"the executor of {number} runs it before its row", to)

    def _row(self, state: State, number: int, hand: MessageInHand) -> State:
        """The step after reading the records, like `record_missed`."""
        last, until = uncovered(state, hand.at, number - 1)
        if until is not None:
            return self._row_from(state, number, hand, until + 1)
        return handed(state, number, hand._replace(doing=Handling.RECORD_ROW, last=last))

    def _row_from(self, state: State, number: int, hand: MessageInHand, at: int) -> State:
        """The row is recorded up to *at*."""
        if at < number:
            to = MessageInHand(hand.first, at, Handling.LOOK_ROW)
        elif self.protocol.row_before_claim:
            to = MessageInHand(hand.first, number, Handling.LOOK_OWN)
        else:
            to = MessageInHand(hand.first, number, Handling.ACKNOWLEDGE)
        return handed(state, number, to)


def _order(protocol: Protocol) -> tuple[Doing, ...]:
    if not protocol.accepted_before_successor:
        return Doing.STORE, Doing.SEND, Doing.DELETE
    if not protocol.successor_before_delete:
        return Doing.SEND, Doing.DELETE, Doing.STORE
    if not protocol.accepted_before_delete:
        return Doing.STORE, Doing.DELETE, Doing.SEND
    return Doing.SEND, Doing.STORE, Doing.DELETE


def dispatch(
    protocol: Protocol = SOUND,
    *,
    occurrences: int = 3,
    crashes: int = 1,
    lost: int = 1,
    windows: int = 1,
    outages: int = 1,
    alone: bool = True,
) -> Model[State]:
    """The model with this number of faults of each kind: crashes; requests that are refused or
    whose answer is lost; ends of the deduplication window; outages, after which some occurrences
    are missed.

    *alone*: between reading the records and the resulting write (a range record or a claim), no
    other process reads the records of the job. The lease and the short duration make that likely;
    nothing enforces it. Without it an occurrence may be recorded twice.
    """
    return Model(
        name="dispatch",
        initial=State(
            due=1,
            queued=((),) * occurrences,
            hands=(None,) * occurrences,
            records=(NO_RECORD,) * occurrences,
            watchers=(Watcher(), Watcher()),
            crashes=crashes,
            lost=lost,
            windows=windows,
            outages=outages,
        ),
        steps=_Steps(protocol, occurrences, alone, _order(protocol)),
        always={
            "an occurrence is covered by at most one record": lambda state: all(
                records_of(state, number) <= 1 for number in range(occurrences)
            )
        },
        changes={
            ENTRY_GOES: _may_go,
            "records do not change": lambda before, _, after: all(
                was in (NO_RECORD, now)
                for was, now in zip(before.records, after.records, strict=True)
            ),
        },
        accounted=lambda state: (
            not state.due
            and not any(state.queued)
            and all(watcher.doing is Doing.READ for watcher in state.watchers)
            and all(records_of(state, number) == 1 for number in range(occurrences))
        ),
    )


def _may_go(before: State, _: str, after: State) -> bool:
    for gone in numbers(before.due & ~after.due):
        number = gone
        while number < len(before.records):
            if number > gone and before.stored >> number & 1:
                break
            if not before.accepted >> number & 1 and not records_of(before, number):
                return False
            number += 1
    return True
