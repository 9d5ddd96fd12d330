"""Watchers that are killed at any call, stopped or gone for a day."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nextfire.domain.instants import floor_minute
from tests.builders import at
from tests.crons import LONG
from tests.integration.shards_and_groups.fleet import Fleet
from tests.integration.shards_and_groups.machines import NO_TIME, SECOND
from tests.world import World


def test_a_holder_killed_at_any_call_is_replaced_and_nothing_is_lost() -> None:
    for calls in range(10_000):
        fleet = Fleet(World("11:59:58.3"), reads=2, writes=2)
        api = fleet.start_api()
        for n in range(3):
            fleet.every(api, f"interval-{n}", (2 + n) * SECOND, at("12:00:06"))
            fleet.once(api, f"once-{n}", at("12:00:00") + n * SECOND / 2)
        holder = fleet.start("a")
        holder.step()
        fleet.start("b")
        holder.faults.kill_after(calls)
        fleet.live(at("12:00:05"))
        survived = holder.alive
        holder.alive = False

        fleet.live(at("12:00:20"))

        fleet.check()
        assert fleet.lateness[-1] <= 4 * SECOND, f"killed after {calls} calls"
        if survived:
            break
    assert calls > 50, "the test did not reach most calls"


def test_cursor_and_lease_are_corrupted_and_the_holder_is_killed(fleet: Fleet) -> None:
    api = fleet.start_api()
    fleet.start("a")
    fleet.live(at("12:03:00"))
    for watcher in fleet.watchers:
        watcher.alive = False
    for n in range(20):
        fleet.once(api, f"once-{n}", fleet.now + (n + 1) * SECOND)
    fleet.world.clock.advance(minutes=40)  # longer than the set-back of a missing cursor
    for shard in range(4):
        fleet.world.control.spoil_cursor(shard)
    fleet.world.control.spoil_lease(0)
    fleet.start("b")
    fleet.start("c")

    fleet.live(fleet.now + 35 * SECOND)

    fleet.check()
    assert sum(watcher.holds for watcher in fleet.watchers) == 1
    cursors = {minute for minute, _ in fleet.world.control.moved.values()}
    assert cursors == {floor_minute(fleet.now - timedelta(seconds=30))}


@given(st.data())
@settings(max_examples=40 if LONG else 15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_watchers_stopped_killed_and_started_in_any_order_lose_nothing(data: st.DataObject) -> None:
    """Each watcher may pause for any time between two steps: another watcher, or two, may have
    had its lease before it writes what it had read.
    """
    fleet = Fleet(World("11:59:50"), reads=3, writes=3)
    api = fleet.start_api()
    for n in range(4):
        fleet.every(api, f"interval-{n}", (3 + n) * SECOND, at("12:00:10"))
    offs = st.sampled_from([-2 * SECOND, NO_TIME, 2 * SECOND])
    names = count()

    def start() -> None:
        group = data.draw(st.integers(0, 1), "group")
        fleet.start(f"w{next(names)}", group=group, ahead=data.draw(offs, "ahead"))

    start()
    for _ in range(data.draw(st.integers(10, 60), "turns")):
        turn = data.draw(st.sampled_from(["step"] * 8 + ["start", "kill"]), "turn")
        if turn == "start":
            start()
        else:
            watcher = data.draw(st.sampled_from(fleet.watchers), "watcher")
            if turn == "kill":
                watcher.faults.kill_after(data.draw(st.integers(0, 12), "calls"))
            watcher.step()
        away = data.draw(st.sampled_from([0, 1, 200, 500, 500, 1000, 3100, 7000]), "away")
        fleet.world.clock.advance(milliseconds=away)
        if data.draw(st.booleans(), "execute"):
            fleet.execute()
        fleet.check_cursors()
    fleet.world.clock.move_to(max(fleet.now, at("12:00:13")))
    fleet.start("last")
    fleet.start("last of the other group", group=1)

    fleet.live(fleet.now + 100 * SECOND)

    fleet.check()


def test_an_outage_of_26_hours_is_caught_up_from_the_stored_cursors() -> None:
    fleet = Fleet(World("12:00:20"))
    api = fleet.start_api()
    fleet.start("before")
    fleet.live(at("12:03"))
    stored = {minute for minute, _ in fleet.world.control.moved.values()}
    assert stored == {at("12:02")}
    fleet.watchers.clear()
    back_at = fleet.now + timedelta(hours=26)
    for n in range(26 * 6):  # every ten minutes of the outage, and at its end
        fleet.once(api, f"missed-{n}", fleet.now + n * timedelta(minutes=10) + SECOND)
    for n in range(20):
        fleet.once(api, f"present-{n}", back_at + n * SECOND)
    fleet.world.clock.move_to(back_at - SECOND)
    fleet.start("a")
    fleet.start("b")

    fleet.live(back_at + 40 * SECOND)

    fleet.check()
    present = {key for key in fleet.due if key.job.job_id.startswith("present")}
    late = {fleet.dispatched[key] - fleet.due[key] for key in present}
    assert max(late) <= 4 * SECOND, "current runs do not wait for all missed runs"
    cursors = {minute for minute, _ in fleet.world.control.moved.values()}
    assert cursors == {floor_minute(fleet.now - timedelta(seconds=30))}
