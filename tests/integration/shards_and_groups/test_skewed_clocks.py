"""Machines whose clocks are ahead or behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import at
from tests.crons import LONG
from tests.integration.shards_and_groups.fleet import ON_TIME, Fleet, under_load
from tests.integration.shards_and_groups.machines import SECOND, machine

CLOCKS = [
    ((-2,), 2, 0),
    ((2,), 0, -2),
    ((-2, 2), 2, -2),
    ((2,), -2, 0),
    ((-2,), 0, 2),
    ((2, -2), 0, 0),
]
"""Seconds by which the clocks of watchers, executors and the API are ahead. The last three: with
NEXTFIRE_LONG only.
"""


@pytest.mark.parametrize(("watchers", "executors", "api"), CLOCKS if LONG else CLOCKS[:3])
def test_clocks_two_seconds_off_shift_runs_by_two_seconds(
    fleet: Fleet, watchers: tuple[int, ...], executors: int, api: int
) -> None:
    fleet.watcher_ahead = tuple(SECOND * ahead for ahead in watchers)
    fleet.executor_ahead, fleet.api_ahead = SECOND * executors, SECOND * api

    under_load(fleet, lasts=280, then={})  # checks the cursors at each step

    fleet.check()
    assert fleet.lateness[0] >= -2 * SECOND
    # An occurrence in the API's future, by its slow clock, may have been past when it was
    # stored.
    stored_late = max(-api - 1.25, 0) * SECOND
    assert fleet.lateness[-1] <= 2 * SECOND + stored_late + ON_TIME


@pytest.mark.parametrize("api", [-2, 0, 2])
def test_entries_at_the_edge_of_a_minute_are_not_passed(fleet: Fleet, api: int) -> None:
    """An API process with a fast clock seeds the cursors; another with a slow clock writes
    entries that are due at once. The late reads of closed buckets find them.
    """
    fleet.world.at("12:00:58.2")
    fleet.api_ahead = 2 * SECOND
    fleet.start_api()
    for _ in range(8):
        writer = machine(fleet.world, writes=4, ahead=SECOND * api)
        for n in range(4):
            job_id = f"edge-{fleet.now:%S%f}-{n}"
            fleet.once(writer, job_id, writer.now + timedelta(milliseconds=1))
        fleet.world.advance(seconds=0.5)
    behind = [slot for slot in fleet.world.due.items if slot.minute < at("12:01")]
    assert bool(behind) == (api < 2), "required for a meaningful test"

    fleet.start("w")
    end = fleet.now + 90 * SECOND
    while fleet.now < end:
        for watcher in fleet.watchers:
            watcher.step()
        fleet.execute()
        fleet.world.advance(seconds=0.5)

    fleet.check()


def test_a_later_holder_whose_clock_is_behind_still_moves_cursors_in_the_end(fleet: Fleet) -> None:
    """A shard moves from a group with a fast clock to one with a slow clock and an earlier
    epoch. Cursors stand still while that holder has the lease, but no longer.
    """
    fleet.world.control.seed_cursors(4, at("11:58"))
    ahead = fleet.start("ahead", group=1, ahead=2 * SECOND)
    fleet.live(at("12:00:21"))
    assert ahead.holds
    ahead.alive = False
    behind = fleet.start("behind", ahead=-2 * SECOND)
    fleet.live(at("12:05"))
    stood = dict(fleet.world.control.moved)
    behind.alive = False
    fleet.start("next", ahead=-2 * SECOND)

    fleet.live(at("12:05:10"))

    assert {minute for minute, _ in stood.values()} <= {at("11:58"), at("11:59")}
    assert {minute for minute, _ in fleet.world.control.moved.values()} == {at("12:04")}
