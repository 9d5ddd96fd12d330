"""Watchers that died while they held a lease are recorded in the lease, and reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.adapters.dynamodb.control_items import decode_lease, encode_lease
from nextfire.domain.instants import MINUTE
from nextfire.domain.ports.control import Lease, Takeover
from nextfire.domain.watchers import WatcherGroup, WatcherState
from nextfire.usecases.hold_lease import LIFE, HoldLease
from nextfire.usecases.read_watchers import LOST_AFTER, read_watchers
from tests.builders import NOON
from tests.fakes import Faults, MemoryControlStore

TENTH = timedelta(milliseconds=100)
SECOND = timedelta(seconds=1)
TAKEOVER = Takeover(NOON, NOON + LIFE)


@pytest.fixture
def control() -> MemoryControlStore:
    return MemoryControlStore()


def run(*watchers: HoldLease, first: float, last: float) -> None:
    """Step *watchers* every 0.1 s between these seconds."""
    for tenth in range(round(first * 10), round(last * 10) + 1):
        for watcher in watchers:
            watcher.step(NOON + tenth * TENTH)


def lost(control: MemoryControlStore) -> list[HoldLease]:
    """Two watchers: the first one held the lease at noon and died, the second one took it."""
    first, second = (HoldLease(control, group=0, holder=name) for name in "ab")
    first.step(NOON)
    run(second, first=0, last=3)
    assert control.leases[0].holder == "b"
    return [second, HoldLease(control, group=0, holder="c")]


def test_a_lease_that_expired_was_lost_and_one_that_was_released_was_not(
    control: MemoryControlStore,
) -> None:
    second, third = lost(control)

    assert control.leases[0].takeover == TAKEOVER
    run(second, third, first=3.1, last=6)
    assert control.leases[0].takeover == TAKEOVER, "renewals keep it"
    second.release()
    assert control.leases[0].takeover == TAKEOVER
    run(third, first=6.1, last=8)
    assert control.leases[0].holder == "c"
    assert control.leases[0].takeover == TAKEOVER, "the next holder keeps it"

    run(second, first=8.1, last=20)
    assert control.leases[0].takeover == Takeover(NOON + 7.1 * SECOND, NOON + 11.1 * SECOND)


def test_a_watcher_that_takes_its_own_lease_again_was_not_lost(
    control: MemoryControlStore,
) -> None:
    faults = Faults()
    holder = HoldLease(faults.through(control, "control"), group=0, holder="a")
    holder.step(NOON)
    faults.refuse("control.replace_lease", times=8)

    run(holder, first=1, last=20)

    assert control.leases[0].epoch > 0
    assert control.leases[0].takeover is None


@pytest.mark.parametrize("was", [Lease("old", 1, 700), Lease("", 0, 0)])
def test_no_takeover_is_recorded_if_the_last_renewal_is_unknown(
    control: MemoryControlStore, was: Lease
) -> None:
    control.leases[0] = was

    run(HoldLease(control, group=0, holder="b"), first=0, last=4)

    assert control.leases[0].holder == "b"
    assert control.leases[0].takeover is None


def test_versions_read_each_others_leases() -> None:
    lease = Lease("a", 5, 2, renewed_at=NOON)
    old = {"holder", "epoch", "beat", "renewed_at"}

    assert encode_lease(lease).keys() == old
    new = encode_lease(replace(lease, takeover=TAKEOVER))
    assert new.keys() == {*old, "lost_at", "taken_at"}
    assert decode_lease(new).takeover == TAKEOVER
    for one in ("lost_at", "taken_at"):
        found = decode_lease({name: value for name, value in new.items() if name != one})
        assert (found, found.takeover) == (lease, None)


def only_group(control: MemoryControlStore, seconds: float) -> WatcherGroup:
    [found] = read_watchers(control, 1, NOON + seconds * SECOND, life=2 * MINUTE)
    return found


def test_a_group_is_lost_until_another_watcher_takes_its_lease(
    control: MemoryControlStore,
) -> None:
    assert only_group(control, 0) == WatcherGroup(0, WatcherState.NEW, None, None)
    HoldLease(control, group=0, holder="a").step(NOON)
    at_most = LOST_AFTER / SECOND
    assert at_most <= 4, "a renewal was at most a second before the death; reported within 5 s"
    assert only_group(control, at_most).state is WatcherState.WATCHING
    assert only_group(control, at_most + 0.1) == WatcherGroup(0, WatcherState.LOST, NOON, None)

    second = HoldLease(control, group=0, holder="b")
    run(second, first=10, last=13)
    takeover = Takeover(NOON, NOON + 13 * SECOND)
    group = only_group(control, 13)
    assert group == WatcherGroup(0, WatcherState.WATCHING, NOON + 13 * SECOND, takeover)
    second.release()
    assert only_group(control, 20) == WatcherGroup(0, WatcherState.ASLEEP, None, takeover)
    later = 13 + 15 * MINUTE / SECOND
    assert only_group(control, later).takeover == takeover
    assert only_group(control, later + 0.1).takeover is None


def test_a_group_whose_watchers_are_no_longer_started_is_stopped(
    control: MemoryControlStore,
) -> None:
    """The last one fell asleep, as always, and released the lease. None has taken it since."""
    holder = HoldLease(control, group=0, holder="a")
    holder.step(NOON)
    holder.release(idle=True)
    longest = (2 * MINUTE + 3 * MINUTE) / SECOND

    assert only_group(control, longest).state is WatcherState.ASLEEP
    assert only_group(control, longest + 0.1).state is WatcherState.STOPPED

    HoldLease(control, group=0, holder="b").step(NOON + 6 * MINUTE)  # which dies
    assert only_group(control, 360).state is WatcherState.WATCHING
    assert only_group(control, 365).state is WatcherState.LOST
    assert only_group(control, 360 + longest + 0.1).state is WatcherState.STOPPED


def test_all_groups_are_reported(control: MemoryControlStore) -> None:
    HoldLease(control, group=1, holder="a").step(NOON)

    found = [(each.group, each.state) for each in read_watchers(control, 2, NOON, life=MINUTE)]

    assert found == [(0, WatcherState.NEW), (1, WatcherState.WATCHING)]
