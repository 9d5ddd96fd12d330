"""A process that stores an entry that is due soon wakes sleeping watchers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.ports.control import Lease
from nextfire.usecases.hold_lease import PRESUMED_DEAD_AFTER
from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue, WakingJobs, WakingRuns
from tests.builders import job_key
from tests.unit.sleeping.conftest import (
    LIFE,
    RUN,
    SECOND,
    UID,
    Notices,
    Woken,
    a_watcher,
    an_entry,
    lives,
)
from tests.world import World


def test_a_due_entry_wakes_sleeping_watchers_once(
    world: World, wake: WakeWatchers, woken: Woken
) -> None:
    lives(world, a_watcher(world))
    due = WakingDue(world.due, wake)

    due.put([an_entry(world, 5 * SECOND), an_entry(world, 6 * SECOND)], world.now)
    due.put([an_entry(world, 5 * SECOND)], world.now)
    assert woken == [0]

    world.advance(seconds=1)
    due.put([an_entry(world, 5 * SECOND)], world.now)
    assert woken == [0, 0]


class Log(list[str]):
    """A store, or `WakeWatchers`, that lists the names of its calls."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.append(name)


@pytest.mark.parametrize(
    ("waking", "call", "values"),
    [
        (WakingJobs, "create", 3),
        (WakingJobs, "update", 3),
        (WakingRuns, "redrive", 3),
        (WakingRuns, "bring_forward", 4),
        (WakingRuns, "request", 3),
        (WakingDue, "put", 2),
    ],
)
def test_watchers_are_woken_when_the_entry_is_stored(waking: Any, call: str, values: int) -> None:
    """A watcher that is woken before might read the entry's bucket first, and sleep again."""
    log = Log()
    getattr(waking(log, log), call)(*[()] * values)
    assert log == [call, "stored"]


def test_no_watcher_is_woken_for_an_entry_that_a_tick_finds(
    world: World, wake: WakeWatchers, woken: Woken
) -> None:
    WakingDue(world.due, wake).put([an_entry(world, LIFE)], world.now)
    assert not woken
    assert "control.lease" not in world.faults.calls


@pytest.mark.parametrize(
    ("renewed_before", "is_woken"),
    [
        (SECOND, False),
        (PRESUMED_DEAD_AFTER, False),
        (PRESUMED_DEAD_AFTER + SECOND, True),
        (None, False),  # a watcher of an older version does not store it
    ],
)
def test_a_watcher_is_woken_if_the_holder_must_be_dead(
    world: World,
    wake: WakeWatchers,
    woken: Woken,
    renewed_before: timedelta | None,
    *,
    is_woken: bool,
) -> None:
    renewed_at = None if renewed_before is None else world.now - renewed_before
    world.control.replace_lease(0, None, Lease("other", 1, 0, renewed_at=renewed_at))
    WakingDue(world.due, wake).put([an_entry(world, SECOND)], world.now)
    assert woken == [0] * is_woken


def test_a_holder_stores_when_it_renewed_its_lease(world: World) -> None:
    watcher = a_watcher(world)
    watcher.begin()
    watcher.turn(world.now)
    world.advance(seconds=2)
    watcher.turn(world.now)
    assert world.control.leases[0].renewed_at == world.now


def test_what_is_due_soon_counts_from_the_end_of_the_write(
    world: World, wake: WakeWatchers, woken: Woken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that takes long, with retries, must not hide that the entry is due soon by then."""
    began, put = world.now, world.due.put

    def slow(*args: Any) -> Any:
        world.advance(seconds=30)
        return put(*args)

    monkeypatch.setattr(world.due, "put", slow)
    WakingDue(world.due, wake).put([an_entry(world, LIFE + 10 * SECOND)], began)
    assert woken == [0]


def test_a_thread_does_not_call_while_another_calls(
    world: World, wake: WakeWatchers, woken: Woken, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = woken.wake

    def meanwhile(group: int) -> None:
        if not woken:
            call(group)
            wake.stored([an_entry(world, SECOND)])

    monkeypatch.setattr(woken, "wake", meanwhile)
    wake.stored([an_entry(world, SECOND)])
    assert woken == [0]


def test_the_group_of_the_shard_is_woken(world: World, woken: Woken) -> None:
    wake = WakeWatchers(world.control, woken, world.clock, Notices(), shards=4, groups=3)
    keys = [job_key(f"job-{number}") for number in range(40)]
    for key in keys:
        entry = DispatchEntry(key, UID, world.now, run_id=RUN, dispatch=2, pool="default")
        world.advance(seconds=1)
        wake.stored([entry])
    assert woken == [key.shard(4) % 3 for key in keys]


def test_a_lease_that_may_not_be_read_is_a_lost_wake_up(
    world: World, wake: WakeWatchers, notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("AccessDenied: the new policy has not arrived")

    monkeypatch.setattr(world.control, "lease", refuse)
    entry = an_entry(world, SECOND)

    assert WakingDue(world.due, wake).put([entry], world.now) == {entry}
    assert notices.lost == ["AccessDenied: the new policy has not arrived"]


@pytest.mark.parametrize("lost", ["the lease is not read", "the waker fails"])
def test_a_lost_wake_up_is_counted_and_hides_nothing(
    world: World, wake: WakeWatchers, woken: Woken, notices: Notices, lost: str
) -> None:
    if lost == "the waker fails":
        woken.fails = True
    else:
        world.faults.refuse("control.lease")
    entry = an_entry(world, SECOND)

    assert WakingDue(world.due, wake).put([entry], world.now) == {entry}
    assert len(notices.lost) == 1

    woken.fails = False
    WakingDue(world.due, wake).put([entry], world.now)
    assert woken == [0]
