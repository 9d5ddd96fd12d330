"""The watchers' lease: who holds it, without comparing clocks.

Time passes in ticks. A tick passes when each watcher has done its step, unless the watcher is slow
(a fault) or dead. A step is an optional read, then a conditional write; anything may happen between
the two. Beats are ranks: it matters only whether two items are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explore import Model, Step

LIFE = 3  # ticks


class Item(NamedTuple):
    """The lease as stored. `left`: ticks to its expiry, used only where clocks are compared."""

    holder: int
    epoch: int
    beat: int
    released: bool = False
    left: int = 0


class Watcher(NamedTuple):
    """The knowledge of a watcher. `mine`: the item it wrote last, `age` ticks ago; `seen`: the item
    it has seen unchanged for `still` ticks; `next_write`: its next write, decided `late` ticks ago;
    `asked`: its previous write if the answer was lost, decided as long ago.
    """

    alive: bool = True
    done: bool = False
    mine: Item | None = None
    age: int = 0
    looked: bool = False
    seen: Item | None = None
    still: int = 0
    next_write: Item | None = None
    late: int = 0
    asked: Item | None = None

    @property
    def holds(self) -> bool:
        return self.alive and self.mine is not None and self.age < LIFE


class State(NamedTuple):
    item: Item | None
    watchers: tuple[Watcher, ...]
    crashes: int
    slow: int
    lost: int
    ends: int


@dataclass(frozen=True)
class Protocol:
    """How the lease is kept. Each departure from the defaults breaks it."""

    takes_what_it_saw: bool = True
    compares_clocks: bool = False
    counts_from_first_try: bool = True
    ahead: tuple[int, ...] = (0, 0, 0)
    """Number of ticks that each watcher's clock is ahead; used only if clocks are compared."""


@dataclass(frozen=True)
class _Steps:
    """The possible next steps under *protocol*."""

    protocol: Protocol

    def __call__(self, state: State) -> Iterator[Step[State]]:
        for w, watcher in enumerate(state.watchers):
            name = f"watcher {'abc'[w]}"
            if not watcher.alive:
                yield Step(f"{name} is invoked again", _with(state, w, Watcher()))
                continue
            if state.crashes:
                crashed = _with(state, w, Watcher(alive=False))
                yield Step(f"{name} dies", crashed._replace(crashes=state.crashes - 1), fault=True)
            if watcher.next_write is not None:
                yield from self._write(state, w, name)
            elif not watcher.done:
                yield from self._begin(state, w, name)
            if not watcher.done and state.slow:
                idle = _with(state, w, watcher._replace(done=True))
                yield Step(f"{name} is slow", idle._replace(slow=state.slow - 1), fault=True)
        if all(watcher.done or not watcher.alive for watcher in state.watchers):
            yield Step("a tick passes", _tick(state))

    def _begin(self, state: State, w: int, name: str) -> Iterator[Step[State]]:
        watcher = state.watchers[w]
        if watcher.mine is not None:
            to = watcher.mine._replace(beat=watcher.mine.beat + 1)
            again = self.protocol.counts_from_first_try and watcher.asked == to
            watcher = watcher._replace(late=watcher.late if again else 0, asked=None)
            yield Step(f"{name} decides to renew", _with(state, w, watcher._replace(next_write=to)))
            if state.ends:
                to = to._replace(released=True)
                ending = _with(state, w, watcher._replace(next_write=to, late=0))
                yield Step(f"{name} decides to release", ending._replace(ends=state.ends - 1))
            return
        item = state.item
        known = watcher.looked and item == watcher.seen
        still = watcher.still if known else 0
        watcher = watcher._replace(looked=True, seen=item, still=still)
        if item is None or item.released or self._lapsed(item, w, still):
            to = Item(w, item.epoch + 1 if item else 1, 0)
            yield Step(
                f"{name} decides to take over", _with(state, w, watcher._replace(next_write=to))
            )
        else:
            yield Step(f"{name} reads the lease", _with(state, w, watcher._replace(done=True)))

    def _lapsed(self, item: Item, w: int, still: int) -> bool:
        if self.protocol.compares_clocks:
            return item.left <= self.protocol.ahead[w]
        return still >= LIFE

    def _write(self, state: State, w: int, name: str) -> Iterator[Step[State]]:
        watcher = state.watchers[w]
        to, was = watcher.next_write, watcher.mine or watcher.seen
        assert to is not None
        over = watcher.mine is None
        what = "takes over" if over else "releases" if to.released else "renews"
        if self.protocol.compares_clocks:
            to = to._replace(left=LIFE + self.protocol.ahead[w])
        blind = over and not self.protocol.takes_what_it_saw
        written = blind or _same(state.item, was)
        if written or state.item == to:
            wrote = watcher._replace(
                mine=to,
                age=watcher.late,
                next_write=None,
                late=0,
                done=True,
                looked=False,
                seen=None,
            )
            if to.released:
                wrote = Watcher(done=True)
            yield Step(f"{name} {what}", _with(state._replace(item=to), w, wrote))
            if written and state.lost:
                unknown = watcher._replace(next_write=None, asked=to, done=True)
                if over:
                    unknown = watcher._replace(next_write=None, late=0, done=True)
                if to.released:
                    unknown = Watcher(done=True)
                left = state._replace(item=to, lost=state.lost - 1)
                yield Step(f"{name} {what}, answer lost", _with(left, w, unknown), fault=True)
        else:
            refused = watcher._replace(mine=None, age=0, next_write=None, late=0, done=True)
            yield Step(f"{name} is refused", _with(state, w, refused))


def lease(
    protocol: Protocol = Protocol(),
    *,
    watchers: int = 2,
    crashes: int = 1,
    slow: int = 4,
    lost: int = 1,
    ends: int = 1,
) -> Model[State]:
    """The model with this number of faults of each kind: crashes, ticks for which a watcher is
    slow, writes whose answer is lost; and (not a fault) watchers that end and release.
    """
    steps = _Steps(protocol)
    return Model(
        name="lease",
        initial=State(None, (Watcher(),) * watchers, crashes, slow, lost, ends),
        steps=lambda state: (s._replace(to=_ranked(s.to)) for s in steps(state)),
        always={
            "at most one watcher holds the lease within its life": lambda state: (
                sum(watcher.holds for watcher in state.watchers) <= 1
            )
        },
        changes={"the epoch increases with each holder": _epochs_go_up},
        accounted=lambda state: any(
            watcher.holds and _same(state.item, watcher.mine) for watcher in state.watchers
        ),
    )


def _same(one: Item | None, other: Item | None) -> bool:
    """Whether two items are equal under the write's condition; the epoch identifies the holder."""
    if one is None or other is None:
        return one is other
    return (one.epoch, one.beat) == (other.epoch, other.beat)


def _with(state: State, w: int, watcher: Watcher) -> State:
    return state._replace(watchers=(*state.watchers[:w], watcher, *state.watchers[w + 1 :]))


def _tick(state: State) -> State:
    def aged(watcher: Watcher) -> Watcher:
        return watcher._replace(
            done=False,
            age=min(watcher.age + 1, LIFE) if watcher.mine else 0,
            still=min(watcher.still + 1, LIFE) if watcher.looked else 0,
            late=min(watcher.late + 1, LIFE) if watcher.next_write or watcher.asked else 0,
        )

    item = state.item
    if item is not None and item.left > -LIFE:
        item = item._replace(left=item.left - 1) if item.left else item
    return state._replace(item=item, watchers=tuple(map(aged, state.watchers)))


def _epochs_go_up(before: State, _: str, after: State) -> bool:
    if before.item is None or after.item is None:
        return before.item is None
    if before.item.holder == after.item.holder:
        return after.item.epoch >= before.item.epoch
    return after.item.epoch > before.item.epoch


def _ranked(state: State) -> State:
    """Renumber the beats of each epoch from its smallest; 0 stays 0."""
    items = [
        state.item,
        *(i for w in state.watchers for i in (w.mine, w.seen, w.next_write, w.asked)),
    ]
    named = {(i.epoch, i.beat) for i in items if i is not None}
    ranks: dict[tuple[int, int], int] = {}
    epoch = rank = 0
    for each in sorted(named):
        rank = rank + 1 if each[0] == epoch else min(each[1], 1)
        epoch = each[0]
        ranks[each] = rank
    if all(beat == rank for (_, beat), rank in ranks.items()):
        return state

    def renamed(item: Item | None) -> Item | None:
        return item and item._replace(beat=ranks[item.epoch, item.beat])

    return state._replace(
        item=renamed(state.item),
        watchers=tuple(
            w._replace(
                mine=renamed(w.mine),
                seen=renamed(w.seen),
                next_write=renamed(w.next_write),
                asked=renamed(w.asked),
            )
            for w in state.watchers
        ),
    )
