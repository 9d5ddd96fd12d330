"""How long a standby or a woken watcher stays while another one holds the lease."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.ports.control import Lease
from nextfire.usecases.hold_lease import LIFE as LEASE_LIFE
from nextfire.usecases.wake_watchers import AGAIN_AFTER
from nextfire.usecases.watcher_life import WOKEN_AT_LEAST, WatcherLife
from tests.builders import NOON
from tests.unit.sleeping.conftest import LIFE, SECOND, SHARDS, a_watcher, asleep
from tests.world import World


def stands_by(
    world: World, *, woken: bool, holder_until: timedelta, died: bool = False
) -> tuple[WatcherLife, timedelta]:
    """A standby, and how long it stays while nothing is due. Another watcher holds the lease until
    *holder_until*, and then releases it unless it *died*.
    """
    world.control.seed_cursors(SHARDS, NOON)
    watcher = a_watcher(world, "standby")
    began = world.now
    end_at = watcher.begin(woken=woken) + LIFE
    while world.now < end_at:
        since = world.now - began
        if since <= holder_until:
            beat = int(since / SECOND)
            world.control.leases[0] = Lease("other", 1, beat, released=False, idle=True)
        elif not died and world.control.leases[0].holder == "other":
            world.control.leases[0] = Lease("other", 1, 1_000, released=True, idle=True)
        world.clock.sleep(watcher.turn(world.now) - world.now)
        if watcher.falls_asleep(LIFE):
            break
    return watcher, world.now - began


def test_a_standby_stays_as_long_as_another_holds_the_lease(world: World) -> None:
    """The holder may end by its age just after an entry was stored. Nothing is woken then."""
    watcher, stayed = stands_by(world, woken=False, holder_until=80 * SECOND)
    assert 80 * SECOND < stayed < 85 * SECOND
    assert world.control.leases[0].holder == "standby"
    assert asleep(world)
    assert not watcher.holds


def test_a_standby_takes_the_lease_of_a_dead_holder_and_releases_it(world: World) -> None:
    """Otherwise it would look held, and no writer would wake a watcher."""
    _, stayed = stands_by(world, woken=False, holder_until=5 * SECOND, died=True)
    assert 5 * SECOND + LEASE_LIFE < stayed < 15 * SECOND
    assert world.control.leases[0].holder == "standby"
    assert asleep(world)


def test_a_woken_watcher_ends_if_another_renews_the_lease(world: World) -> None:
    watcher, stayed = stands_by(world, woken=True, holder_until=LIFE)
    assert WOKEN_AT_LEAST <= stayed < 2 * SECOND
    assert not watcher.holds
    assert world.control.leases[0].holder == "other"


def test_a_woken_watcher_takes_the_lease_of_a_dead_holder(world: World) -> None:
    watcher, stayed = stands_by(world, woken=True, holder_until=timedelta(), died=True)
    assert LEASE_LIFE <= stayed < 10 * SECOND
    assert world.control.leases[0].holder == "standby"
    assert not watcher.holds


def test_a_woken_watcher_reads_the_lease_consistently(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale read could show a holder that has released the lease already."""
    read, asked = world.control.lease, set()

    def noted(group: int, *, consistent: bool = False) -> Lease | None:
        asked.add(consistent)
        return read(group, consistent=consistent)

    monkeypatch.setattr(world.control, "lease", noted)
    a_watcher(world).live(LIFE, sleeps=True, woken=True)
    assert asked == {True}
    asked.clear()
    a_watcher(world).live(LIFE, sleeps=True)
    assert asked == {False}


def test_a_woken_watcher_that_cannot_read_the_lease_stays(world: World) -> None:
    world.control.seed_cursors(SHARDS, NOON)
    watcher = a_watcher(world, "standby")
    watcher.begin(woken=True)
    for beat in range(3):
        world.control.leases[0] = Lease("other", 1, beat)
        watcher.turn(world.now)
        world.advance(seconds=0.5)
    world.faults.refuse("control.lease")
    watcher.turn(world.now)
    assert not watcher.falls_asleep(LIFE)


def test_a_woken_watcher_outlives_the_wake_ups_that_were_left_out() -> None:
    assert AGAIN_AFTER < WOKEN_AT_LEAST
