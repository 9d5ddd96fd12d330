"""The quota of runs a minute: what exceeds it waits and is not lost."""

from __future__ import annotations

from collections import Counter

import pytest

from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, records, settle
from tests.builders import MINUTELY, RUN_ALL, SKIP, at
from tests.unit.limited import ONCE, a_world
from tests.world import World


def by_tenant(world: World) -> Counter[str]:
    return Counter(message.tenant for message in world.queue.log)


def lift_quotas(world: World) -> None:
    """Remove all quotas and let the waiting runs finish."""
    world.shares = Shares()
    world.new_watcher()
    settle(world)


# Runs per minute


def test_what_exceeds_the_runs_of_a_minute_waits_in_the_table_for_the_next() -> None:
    world = a_world(runsPerMinute=5)
    for number in range(12):
        world.register(f"job{number:02d}", **ONCE)
        world.register(f"job{number:02d}", tenant="other", **ONCE)

    report = world.tick_at("12:00")

    assert by_tenant(world) == {"acme": 5, "other": 12}
    assert report.held_back == 7
    assert "7 runs wait for their tenants' quotas" in report.notes
    parked = Counter(slot.minute for slot in world.due.items)
    assert parked == {at("12:01"): 6, at("12:02"): 1}, "the quota plus one in each minute"
    for seconds in (10, 30, 58):
        assert world.tick_at(f"12:00:{seconds}").dispatched == []
    world.tick_at("12:01")
    assert by_tenant(world)["acme"] == 10
    world.tick_at("12:02")
    assert by_tenant(world)["acme"] == 12
    assert not world.entries


def test_the_earliest_due_go_first_however_long_they_wait() -> None:
    world = a_world(runsPerMinute=1)
    for second in (3, 1, 2):
        world.register(f"at{second}", type="ONCE", schedule=f"2026-05-24T12:00:0{second}Z")
    for minute in range(3):
        world.tick_at(f"12:0{minute}:05")

    assert [message.job_id for message in world.queue.log] == ["at1", "at2", "at3"]


def test_all_watchers_together_let_no_more_go_than_the_quota() -> None:
    """A new watcher continues the count of the former one, as would a concurrent watcher."""
    world = a_world(runsPerMinute=4)
    for number in range(6):
        world.register(f"job{number}", **ONCE)
    world.faults.call_before_each("queue.send", lambda: world.advance(seconds=0.1))
    world.tick_at("12:00")
    world.register("later", type="ONCE", schedule="2026-05-24T12:00:30Z")

    world.new_watcher()
    world.tick_at("12:00:31")

    assert by_tenant(world) == {"acme": 4}


def test_what_a_minute_has_left_is_for_those_that_come_later_in_it() -> None:
    world = a_world(runsPerMinute=2)
    for second in (0, 20):
        world.register(f"job{second}", type="ONCE", schedule=f"2026-05-24T12:00:{second:02}Z")

    world.tick_at("12:00:00")
    world.tick_at("12:00:20")

    assert by_tenant(world) == {"acme": 2}


def test_runs_above_the_quota_are_not_read_again_within_the_minute() -> None:
    world = a_world(runsPerMinute=1)
    for second in range(8):
        world.register(f"job{second}", type="ONCE", schedule=f"2026-05-24T12:00:0{second}Z")
    world.tick_at("12:00:01")
    world.faults.calls.clear()

    world.tick_at("12:00:07")

    assert not {"jobs.get_many", "control.take_runs"} & {*world.faults.calls}
    assert at("12:00") not in {slot.minute for slot in world.due.items}, "they would be read again"


def test_a_quota_that_is_used_up_holds_up_no_other_tenant() -> None:
    world = a_world(runsPerMinute=1)
    for tenant in ("acme", "other"):
        for second in range(8):
            due = {"type": "ONCE", "schedule": f"2026-05-24T12:00:0{second}Z"}
            world.register(f"job{second}", tenant=tenant, **due)
    world.tick_at("12:00:01")

    world.tick_at("12:00:07")

    assert by_tenant(world) == {"acme": 1, "other": 8}


def test_skipped_occurrences_take_nothing_from_a_quota() -> None:
    world = a_world(runsPerMinute=1)
    skips = world.register("skips", type="CRON", schedule="0 * * * *", misfire=SKIP)
    world.register("runs", type="ONCE", schedule="2026-05-24T12:30:00Z")

    world.tick_at("12:30")

    assert world.queued == ["runs 12:30"]
    assert world.run(skips, "12:00").state is RunState.SKIPPED


def test_a_run_that_a_throttled_table_does_not_delete_is_not_moved_again() -> None:
    """Each copy would take from the quota of its minute."""
    world = a_world(runsPerMinute=5)
    for number in range(12):
        world.register(f"job{number:02d}", **ONCE)
    world.due.deletes = False
    for second in range(0, 20, 2):
        world.tick_at(f"12:00:{second:02d}")

    minutes = Counter(slot.minute for slot in world.due.items)
    assert minutes == {at("12:00"): 12, at("12:01"): 6, at("12:02"): 1}
    world.due.deletes = True
    for minute in (0, 1, 2):
        world.tick_at(f"12:0{minute}:30")
    assert by_tenant(world) == {"acme": 12}
    assert not world.entries


def test_a_run_that_was_moved_is_not_moved_again_by_a_stale_read() -> None:
    world = a_world(runsPerMinute=5)
    for number in range(12):
        world.register(f"job{number:02d}", **ONCE)
    world.due.freeze()
    for second in range(3):
        world.tick_at(f"12:00:0{second}")

    minutes = Counter(slot.minute for slot in world.due.items)
    assert minutes == {at("12:01"): 6, at("12:02"): 1}


def test_retries_count_and_wait_like_the_others() -> None:
    world = a_world(runsPerMinute=1)
    job = world.register(retryPolicy={"initialDelayMs": 1_000}, **ONCE)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()

    world.tick_at("12:00:02")
    assert len(world.sent) == 1
    world.tick_and_work("12:01")

    assert (world.run(job, "12:00").attempt, world.run(job, "12:00").state) == (2, "SUCCEEDED")


def test_the_misfire_policy_applies_to_runs_delayed_by_a_quota() -> None:
    world = a_world(runsPerMinute=1)
    jobs = [world.register(f"job{n}", **MINUTELY) for n in range(3)]
    for minute in range(9):
        world.tick_at(f"12:0{minute}")
        world.worker().work()

    assert len(world.sent) == 9
    assert sum(run.covered for run in world.runs.all.values() if run.state == "SKIPPED") > 9
    lift_quotas(world)
    for job in jobs:
        assert_all_accounted_for(world, job)


def test_nothing_is_lost_to_a_quota() -> None:
    world = a_world(runsPerMinute=2)
    jobs = [world.register(f"job{n}", misfire=RUN_ALL, **MINUTELY) for n in range(5)]
    for _ in range(120):
        world.advance_and_work(seconds=5)

    assert len(world.sent) == 20
    lift_quotas(world)

    for job in jobs:
        assert_all_accounted_for(world, job)
        assert len(records(world, job)) >= 10


@pytest.mark.parametrize("trouble", ["refuse", "lose_answer"])
def test_runs_whose_quota_is_not_known_wait_and_those_of_others_do_not(trouble: str) -> None:
    world = a_world(runsPerMinute=5)
    world.register(**ONCE)
    world.register(tenant="other", **ONCE)
    getattr(world.faults, trouble)("control.take_runs")

    for seconds in ("00", "00.5", "01", "01.5"):
        world.tick_at(f"12:00:{seconds}")
    assert by_tenant(world) == {"other": 1}
    assert world.faults.calls.count("control.take_runs") == 1
    world.tick_at("12:00:02")

    assert by_tenant(world) == {"other": 1, "acme": 1}


def test_a_pause_that_ends_by_itself_does_not_wait_for_a_quota() -> None:
    world = a_world(runsPerMinute=1)
    world.register("first", **ONCE)
    world.register("second", **ONCE)
    job = world.register("paused", schedule="30 * * * *")
    world.manage.pause(job.key, None, now=world.now, until=at("12:00:20"))
    world.tick_at("12:00:01")

    world.tick_at("12:00:20")

    assert world.job(job.key).state is JobState.ACTIVE
