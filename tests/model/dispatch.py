"""The tick: a chain of occurrences, two watchers that both think they hold the lease, a queue that
drops repetitions, and executors that put on record what they took.

All occurrences are due from the start; a FIRE entry stands for one, by its number. That both
watchers act at any time is more than the lease allows: nothing here may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.model.explore import Model, Step

NO_RECORD = -2
RAN = -1
"""Records: none, that of a run, or (0 and more) a range record up to that occurrence."""


class Doing(Enum):
    """What a watcher is about to do. Between any two it may die, or be overtaken."""

    READ = "read"
    SEND = "send"
    LOOK = "look at the records"
    COVER = "cover"
    STORE = "store the successor"
    DELETE = "delete the entry"


class Watcher(NamedTuple):
    """`entry`: what it has in hand; `last`: of what it is to cover; `next`: the successor."""

    doing: Doing = Doing.READ
    entry: int = 0
    last: int = 0
    next: int = 0


class State(NamedTuple):
    """`due`, `seen`, `looked`: sets of occurrences as bits: with an entry in the table; sent within
    the window of deduplication; before an executor that found nothing that covers them. `queued`:
    how many messages of each. `late`: those below are missed by now. `accepted`, `stored`: what
    ever was, for the properties.
    """

    due: int
    queued: tuple[int, ...]
    records: tuple[int, ...]
    watchers: tuple[Watcher, ...]
    crashes: int
    lost: int
    windows: int
    outages: int
    seen: int = 0
    looked: int = 0
    late: int = 0
    accepted: int = 0
    stored: int = 1


@dataclass(frozen=True)
class Protocol:
    """The order and the conditions of a tick. Each departure from the defaults breaks it."""

    successor_before_delete: bool = True
    accepted_before_delete: bool = True
    accepted_before_successor: bool = True
    covers_only_without_record: bool = True
    looks_for_ranges: bool = True


@dataclass(frozen=True)
class _Steps:
    """What may happen next under *protocol*. `order`: of the calls for an entry that is sent."""

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
            yield Step("the window of deduplication passes", forgotten, fault=True)
        if state.outages:
            for late in range(1, self.occurrences + 1):
                after = state._replace(late=late, outages=state.outages - 1)
                yield Step(f"an outage: the first {late} are missed", after, fault=True)

    def _watch(self, state: State, w: int) -> Iterator[Step[State]]:
        watcher = state.watchers[w]
        doing, entry = watcher.doing, watcher.entry
        name = f"watcher {'ab'[w]}"
        idle = _with(state, w, Watcher())
        if doing is not Doing.READ and state.crashes:
            yield Step(f"{name} dies", idle._replace(crashes=state.crashes - 1), fault=True)
        if doing not in (Doing.READ, Doing.LOOK) and state.lost:
            refused = idle._replace(lost=state.lost - 1)
            yield Step(f"{name}: to {doing.value} is refused", refused, fault=True)
            for done in self._done(state, w):
                if done.name.endswith("accepted") or doing is not Doing.SEND:
                    unknown = _with(done.to, w, Watcher())._replace(lost=state.lost - 1)
                    yield Step(f"{done.name}, unknowing", unknown, fault=True)
        if doing is Doing.READ:
            for number in _numbers(state.due):
                missed = number < state.late
                to = Watcher(Doing.LOOK if missed else self.order[0], number, 0, number + 1)
                yield Step(f"{name} reads entry {number}", _with(state, w, to))
        elif doing is Doing.LOOK:
            others = (other.doing for other in state.watchers)
            if self.alone and (Doing.COVER in others or state.looked):
                return
            yield Step(f"{name} looks at the records", _with(state, w, self._look(state, entry)))
        else:
            yield from self._done(state, w)

    def _done(self, state: State, w: int) -> Iterator[Step[State]]:
        """The one call that *w* is about to make, when it goes through."""
        watcher = state.watchers[w]
        entry, name = watcher.entry, f"watcher {'ab'[w]}"
        match watcher.doing:
            case Doing.SEND:
                yield Step(
                    f"{name} sends {entry}: accepted",
                    _with(_sent(state, entry), w, self._then(watcher)),
                )
            case Doing.COVER:
                there = state.records[entry]
                if there == NO_RECORD or not self.protocol.covers_only_without_record:
                    there = watcher.last
                    state = _recorded(state, entry, there)
                following = max(entry, there) + 1
                to = watcher._replace(doing=Doing.STORE, next=following)
                yield Step(f"{name} covers {entry} to {watcher.last}", _with(state, w, to))
            case Doing.STORE:
                if watcher.next < self.occurrences:
                    bit = 1 << watcher.next
                    state = state._replace(due=state.due | bit, stored=state.stored | bit)
                yield Step(
                    f"{name} stores entry {watcher.next}", _with(state, w, self._then(watcher))
                )
            case Doing.DELETE:
                state = state._replace(due=state.due & ~(1 << entry))
                yield Step(f"{name} deletes entry {entry}", _with(state, w, self._then(watcher)))

    def _then(self, watcher: Watcher) -> Watcher:
        """What follows a call that went through."""
        after = self.order[self.order.index(watcher.doing) + 1 :]
        return watcher._replace(doing=after[0]) if after else Watcher()

    def _look(self, state: State, entry: int) -> Watcher:
        """As `cover_missed`: up to the next record, and after what a range covers already."""
        last = state.late - 1
        between = [k for k in range(entry, last + 1) if state.records[k] != NO_RECORD]
        if between and between[0] > entry:
            last = between[0] - 1
        before = [k for k in range(entry + 1) if state.records[k] != NO_RECORD]
        until = max(before[-1], state.records[before[-1]]) if before else NO_RECORD
        if until < entry:
            return Watcher(Doing.COVER, entry, last)
        return Watcher(Doing.STORE, entry, 0, until + 1)

    def _execute(self, state: State, number: int) -> Iterator[Step[State]]:
        if not state.queued[number]:
            return
        bit = 1 << number
        gone = _acknowledged(state, number)
        if not state.looked & bit:
            if self.alone and any(watcher.doing is Doing.COVER for watcher in state.watchers):
                return
            covered = (
                number < state.late and self.protocol.looks_for_ranges and _covered(state, number)
            )
            to = gone if covered else state._replace(looked=state.looked | bit)
            yield Step(f"an executor looks what covers {number}", to)
            return
        if state.crashes:
            crashed = state._replace(looked=state.looked & ~bit, crashes=state.crashes - 1)
            yield Step(f"the executor of {number} dies", crashed, fault=True)
        if state.records[number] == NO_RECORD:
            yield Step(f"an executor runs {number}", _recorded(gone, number, RAN))
        else:
            yield Step(f"an executor finds {number} ended", gone)


def _order(protocol: Protocol) -> tuple[Doing, ...]:
    if not protocol.accepted_before_successor:
        return Doing.STORE, Doing.SEND, Doing.DELETE
    if not protocol.successor_before_delete:
        return Doing.SEND, Doing.DELETE, Doing.STORE
    if not protocol.accepted_before_delete:
        return Doing.STORE, Doing.DELETE, Doing.SEND
    return Doing.SEND, Doing.STORE, Doing.DELETE


def dispatch(
    protocol: Protocol = Protocol(),
    *,
    occurrences: int = 3,
    crashes: int = 1,
    lost: int = 1,
    windows: int = 1,
    outages: int = 1,
    alone: bool = True,
) -> Model[State]:
    """The model, with so many faults of each kind: crashes; requests that are refused, or whose
    answer is lost; passings of the window of deduplication; outages, after which some are missed.
    *alone*: between a look at the records and the write that follows from it (a range record, or a
    claim) nobody else of the job looks. The lease and the shortness of that time make it likely;
    nothing enforces it. Without it an occurrence may be on record twice.
    """
    return Model(
        name="dispatch",
        initial=State(
            due=1,
            queued=(0,) * occurrences,
            records=(NO_RECORD,) * occurrences,
            watchers=(Watcher(), Watcher()),
            crashes=crashes,
            lost=lost,
            windows=windows,
            outages=outages,
        ),
        steps=_Steps(protocol, occurrences, alone, _order(protocol)),
        always={
            "an occurrence is covered by one record at most": lambda state: all(
                _records_of(state, number) <= 1 for number in range(occurrences)
            )
        },
        changes={
            "an entry goes only when it was sent or covered and its successor stored": _may_go,
            "what is on record stays as it is": lambda before, _, after: all(
                was in (NO_RECORD, now)
                for was, now in zip(before.records, after.records, strict=True)
            ),
        },
        accounted=lambda state: (
            not state.due
            and not any(state.queued)
            and all(watcher.doing is Doing.READ for watcher in state.watchers)
            and all(_records_of(state, number) == 1 for number in range(occurrences))
        ),
    )


def _with(state: State, w: int, watcher: Watcher) -> State:
    return state._replace(watchers=(*state.watchers[:w], watcher, *state.watchers[w + 1 :]))


def _numbers(bits: int) -> Iterator[int]:
    return (number for number in range(bits.bit_length()) if bits >> number & 1)


def _sent(state: State, number: int) -> State:
    bit = 1 << number
    queued = state.queued
    if not state.seen & bit:
        queued = (*queued[:number], queued[number] + 1, *queued[number + 1 :])
    return state._replace(queued=queued, seen=state.seen | bit, accepted=state.accepted | bit)


def _acknowledged(state: State, number: int) -> State:
    queued = (*state.queued[:number], state.queued[number] - 1, *state.queued[number + 1 :])
    return state._replace(queued=queued, looked=state.looked & ~(1 << number))


def _recorded(state: State, number: int, record: int) -> State:
    return state._replace(records=(*state.records[:number], record, *state.records[number + 1 :]))


def _records_of(state: State, number: int) -> int:
    """How many records stand for the occurrence."""
    own = state.records[number] != NO_RECORD
    return own + sum(record >= number for record in state.records[:number])


def _covered(state: State, number: int) -> bool:
    """Whether the record that is newest before it stands for it: as `decide_covered`."""
    before = [record for record in state.records[:number] if record != NO_RECORD]
    return bool(before) and before[-1] >= number


def _may_go(before: State, _: str, after: State) -> bool:
    for gone in _numbers(before.due & ~after.due):
        number = gone
        while number < len(before.records):
            if number > gone and before.stored >> number & 1:
                break
            if not before.accepted >> number & 1 and not _records_of(before, number):
                return False
            number += 1
    return True
