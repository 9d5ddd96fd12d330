"""The lease of a shard group. Each watcher measures time by its own clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nextfire.domain.instants import to_ms
from nextfire.domain.ports.control import Lease
from nextfire.usecases.hold_lease import LIFE, HoldLease
from tests.builders import NOON
from tests.fakes import Faults, MemoryControlStore

TENTH = timedelta(milliseconds=100)


@pytest.fixture
def control() -> MemoryControlStore:
    return MemoryControlStore()


def second(n: float) -> datetime:
    return NOON + timedelta(seconds=n)


def until_held(watcher: HoldLease, start: datetime, most: timedelta) -> datetime | None:
    """Step *watcher* every 0.1 s for *most*. Return the first instant when it holds the lease."""
    now = start
    while now <= start + most:
        if watcher.step(now) is not None:
            return now
        now += TENTH
    return None


def test_the_first_watcher_of_a_new_group_holds_at_once(control: MemoryControlStore) -> None:
    lease = HoldLease(control, group=0, holder="a").step(NOON)

    assert lease is not None
    assert lease == control.lease(0)
    assert lease.holder == "a"


def test_a_holder_renews_every_second(control: MemoryControlStore) -> None:
    watcher = HoldLease(control, group=0, holder="a")
    beats = []
    for tenths in range(31):
        lease = watcher.step(NOON + tenths * TENTH)
        assert lease is not None
        beats.append(lease.beat)

    assert [beats.count(beat) for beat in range(4)] == [10, 10, 10, 1]
    assert watcher.next_at == second(4)


def test_a_standby_does_nothing_while_the_lease_is_renewed(control: MemoryControlStore) -> None:
    holder = HoldLease(control, group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")

    for tenths in range(600):
        now = NOON + tenths * TENTH
        assert holder.step(now) == control.leases[0]
        assert standby.step(now) is None


def test_a_standby_takes_over_when_the_lease_stood_still_for_its_life(
    control: MemoryControlStore,
) -> None:
    holder = HoldLease(control, group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    first = holder.step(NOON)
    assert first is not None
    standby.step(NOON)

    taken_at = until_held(standby, NOON + TENTH, timedelta(seconds=10))

    assert taken_at == second(3)
    assert control.leases[0].holder == "b"
    assert control.leases[0].epoch > first.epoch


def test_a_new_watcher_waits_one_lease_by_its_own_clock(
    control: MemoryControlStore,
) -> None:
    control.leases[0] = Lease("dead for an hour", 1, 700)

    assert until_held(HoldLease(control, group=0, holder="b"), NOON, 2 * LIFE) == second(3)


def test_a_released_lease_is_taken_at_the_next_look(control: MemoryControlStore) -> None:
    holder = HoldLease(control, group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    holder.step(NOON)
    standby.step(NOON)

    holder.release()

    assert until_held(standby, NOON + TENTH, LIFE) == second(0.5)
    assert holder.step(second(0.6)) is None
    holder.release()
    assert control.leases[0].holder == "b"


def test_a_renewal_that_arrives_late_does_not_undo_a_release(control: MemoryControlStore) -> None:
    holder = HoldLease(control, group=0, holder="a")
    mine = holder.step(NOON)
    assert mine is not None

    holder.release()

    assert not control.replace_lease(0, mine, replace(mine, beat=mine.beat + 1))
    assert control.leases[0].released


def test_a_holder_that_was_away_finds_itself_replaced(control: MemoryControlStore) -> None:
    holder = HoldLease(control, group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    holder.step(NOON)
    standby.step(NOON)
    until_held(standby, NOON + TENTH, LIFE)

    assert holder.step(second(3.1)) is None
    assert standby.step(second(3.1)) is not None


def test_a_holder_that_was_away_and_was_not_replaced_continues(control: MemoryControlStore) -> None:
    holder = HoldLease(control, group=0, holder="a")
    first = holder.step(NOON)

    back = holder.step(second(60))

    assert first is not None
    assert back is not None
    assert back.epoch == first.epoch


def test_a_holder_that_cannot_renew_stops_before_the_standby_begins(
    control: MemoryControlStore,
) -> None:
    faults = Faults()
    holder = HoldLease(faults.through(control, "control"), group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    holder.step(NOON)
    standby.step(NOON)
    faults.refuse("control.replace_lease", times=1000)
    faults.refuse("control.lease", times=1000)

    for tenths in range(1, 100):
        now = NOON + tenths * TENTH
        held = holder.step(now), standby.step(now)
        assert None in held, f"both hold the lease at {now}"
    assert standby.step(second(10)) is not None


def test_a_renewal_whose_answer_was_lost_does_not_lose_the_lease(
    control: MemoryControlStore,
) -> None:
    faults = Faults()
    holder = HoldLease(faults.through(control, "control"), group=0, holder="a")
    first = holder.step(NOON)
    faults.lose_answer("control.replace_lease")

    for tenths in range(1, 50):
        assert holder.step(NOON + tenths * TENTH) is not None

    assert first is not None
    assert control.leases[0].epoch == first.epoch


def test_a_renewal_whose_answer_was_lost_counts_from_its_first_try(
    control: MemoryControlStore,
) -> None:
    faults = Faults()
    holder = HoldLease(faults.through(control, "control"), group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    holder.step(NOON)
    faults.lose_answer("control.replace_lease")
    holder.step(second(1))
    standby.step(second(1))
    holder.step(second(1.5))
    faults.refuse("control.replace_lease", times=1000)

    for tenths in range(16, 100):
        now = NOON + tenths * TENTH
        held = holder.step(now), standby.step(now)
        assert None in held, f"both hold the lease at {now}"


@pytest.mark.parametrize("apart", [-2, 2], ids=["standby behind", "standby ahead"])
def test_clocks_that_differ_change_nothing(control: MemoryControlStore, apart: int) -> None:
    holder = HoldLease(control, group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    first = holder.step(NOON)
    for tenths in range(100):
        now = NOON + tenths * TENTH
        assert holder.step(now) is not None
        assert standby.step(now + timedelta(seconds=apart)) is None

    died_at = second(9)  # the last renewal before the holder dies
    taken_at = until_held(standby, second(10 + apart), 2 * LIFE)

    assert first is not None
    assert taken_at is not None
    assert LIFE <= taken_at - timedelta(seconds=apart) - died_at <= LIFE + timedelta(seconds=1)
    assert control.leases[0].epoch > first.epoch, "epochs grow regardless of the clocks"


def test_the_epoch_grows_under_a_standby_whose_clock_is_an_hour_behind(
    control: MemoryControlStore,
) -> None:
    epoch = to_ms(second(3600))
    control.leases[0] = Lease("dead", epoch, 5)

    until_held(HoldLease(control, group=0, holder="b"), NOON, 2 * LIFE)

    assert control.leases[0] == Lease("b", epoch + 1, 0)


def test_two_standbys_do_not_both_take_over(control: MemoryControlStore) -> None:
    control.leases[0] = Lease("dead", 1, 0)
    standbys = [HoldLease(control, group=0, holder=name) for name in "bc"]

    for tenths in range(40):
        held = [standby.step(NOON + tenths * TENTH) for standby in standbys]
        assert None in held

    assert [standby.step(second(4)) is not None for standby in standbys] == [True, False]


def test_groups_do_not_share_a_lease(control: MemoryControlStore) -> None:
    assert HoldLease(control, group=0, holder="a").step(NOON) is not None
    assert HoldLease(control, group=1, holder="b").step(NOON) is not None


def test_a_lease_that_does_not_decode_is_taken_over_after_its_life(
    control: MemoryControlStore,
) -> None:
    control.spoil_lease(0)
    standbys = [HoldLease(control, group=0, holder=name) for name in "bc"]

    for tenths in range(30):
        now = NOON + tenths * TENTH
        assert [standby.step(now) for standby in standbys] == [None, None]

    held = [standby.step(second(3)) is not None for standby in standbys]
    assert held == [True, False]
    assert control.leases[0] == Lease("b", to_ms(second(3)), 0)


def test_a_lease_that_is_broken_under_its_holder_changes_hands_once(
    control: MemoryControlStore,
) -> None:
    watchers = [HoldLease(control, group=0, holder=name) for name in "abc"]
    for watcher in watchers:
        watcher.step(NOON)
    assert control.leases[0].holder == "a"
    control.spoil_lease(0)

    epochs, idle = set(), 0
    for tenths in range(1, 100):
        now = NOON + tenths * TENTH
        held = [lease for watcher in watchers if (lease := watcher.step(now)) is not None]
        assert len(held) <= 1, f"two hold the lease at {now}"
        epochs |= {lease.epoch for lease in held}
        idle += not held

    assert len(epochs) == 2
    assert idle * TENTH <= LIFE + timedelta(milliseconds=500)


def test_watchers_survive_repeatedly_broken_leases(control: MemoryControlStore) -> None:
    watchers = [HoldLease(control, group=0, holder=name) for name in "ab"]

    for tenths in range(200):
        if tenths % 7 == 0 and tenths < 150:
            control.spoil_lease(0)
        for watcher in watchers:
            watcher.step(NOON + tenths * TENTH)
        if tenths % 11 == 0:
            watchers[0].release()

    assert control.leases[0].holder in {"a", "b"}


def test_a_holder_whose_clock_is_set_back_does_not_hold_it_with_another(
    control: MemoryControlStore,
) -> None:
    holder = HoldLease(control, group=0, holder="a")
    standby = HoldLease(control, group=0, holder="b")
    both = []
    for tenths in range(100):
        now = NOON + tenths * TENTH
        theirs = now if tenths < 25 else now - timedelta(hours=1)
        both.append((holder.step(theirs), standby.step(now)))

    assert both[24][0] is not None
    assert any(both[-1])
    assert [(a, b) for a, b in both if a is not None and b is not None] == []


def test_a_standby_whose_clock_is_set_back_still_takes_over(control: MemoryControlStore) -> None:
    HoldLease(control, group=0, holder="a").step(NOON)
    standby = HoldLease(control, group=0, holder="b")
    standby.step(NOON)

    back = NOON - timedelta(hours=1)

    assert until_held(standby, back, timedelta(seconds=10)) == back + LIFE
