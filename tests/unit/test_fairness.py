"""The order of dispatch if not everything can be sent: weights, priorities, full queues."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nextfire.domain.due import Slot
from nextfire.usecases.dispatch import reader, waiting
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.holding import BATCH, HeldEntries
from tests.accounting import assert_all_accounted_for, records, settle
from tests.builders import MINUTELY, NOON, RUN_ALL, a_fire, at
from tests.unit.sharing import register_jobs
from tests.world import World

BEGINNING = "11:59:30"

# Tenants and priorities in the watcher


def sharing(world: World, *, weights: dict[str, int] | None = None, **backlogs: int) -> None:
    world.shares = Shares(backlogs=backlogs, weights=weights or {})
    world.new_watcher()


def released(world: World) -> list[Counter[str]]:
    """The number of runs in each release, by tenant."""
    world.watcher.poll(world.now)
    batches = []
    while world.watcher.next_at is not None and world.watcher.next_at <= world.now:
        report = world.watcher.release(world.now)
        batches.append(Counter(run.run.job.tenant for run in report.dispatched))
    return batches


def test_a_tenant_with_many_runs_does_not_keep_another_one_waiting(world: World) -> None:
    register_jobs(world, "whale", 400)
    register_jobs(world, "minnow", 3)
    world.at("12:00")

    first, *_ = released(world)

    assert (first["minnow"], first["whale"]) == (3, BATCH - 3)


def test_tenants_get_what_their_weights_say(world: World) -> None:
    sharing(world, weights={"gold": 3})
    register_jobs(world, "gold", 200)
    register_jobs(world, "tin", 200)
    world.at("12:00")

    first, *_ = released(world)

    assert first == {"gold": 75, "tin": 25}


def test_a_tenant_who_is_due_later_does_not_wait_for_one_with_many(world: World) -> None:
    """A held entry joins the round-robin as soon as it is due."""
    register_jobs(world, "whale", 300)
    world.register("minnow", tenant="minnow", type="ONCE", schedule="2026-05-24T12:00:00.5Z")
    world.at("12:00:00")
    world.watcher.poll(world.now)
    world.watcher.release(world.now)
    world.at("12:00:00.5")

    report = world.watcher.release(world.now)

    assert "minnow" in {run.run.job.tenant for run in report.dispatched}


def test_with_a_backlog_a_poll_reads_the_next_four_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next poll begins two seconds later, and a slow table answers it later still."""
    monkeypatch.setattr(reader, "READ_AT_MOST", 3)
    monkeypatch.setattr(reader, "READ_AT_LEAST", 1)
    register_jobs(world, "whale", 10)
    world.register("minnow", tenant="minnow", type="ONCE", schedule="2026-05-24T12:00:03.5Z")
    world.at("12:00:00")
    world.watcher.poll(world.now)
    world.at("12:00:03.5")

    report = world.watcher.release(world.now)

    assert "minnow" in {run.run.job.tenant for run in report.dispatched}


def test_high_priority_runs_go_first_if_a_batch_is_full(world: World) -> None:
    register_jobs(world, "acme", 250, priority="LOW")
    for number in range(30):
        world.register(f"high{number}", priority="HIGH")
    world.at("12:00")

    released(world)

    assert all(message.startswith("high") for message in world.sent[:30])
    assert len(world.sent) == 280


@pytest.mark.parametrize("first", ["HIGH", "NORMAL"])
def test_priority_counts_within_a_second_only(world: World, first: str) -> None:
    world.register("early", priority="LOW", type="ONCE", schedule="2026-05-24T12:00:00.999Z")
    world.register("late", priority=first, type="ONCE", schedule="2026-05-24T12:00:01Z")

    world.tick_at("12:00:02")

    assert [message.split()[0] for message in world.sent] == ["early", "late"]


# Full queues


def test_runs_that_do_not_fit_in_the_queue_wait_in_the_table(world: World) -> None:
    sharing(world, default=5)
    register_jobs(world, "acme", 12)

    report = world.tick_at("12:00")

    assert len(world.queued) == 5
    assert report.held_back == 7
    assert "7 runs wait for room in their pools' queues" in report.notes
    waiting = [entry for entry in world.entries if entry.at == NOON]
    assert len(waiting) == 7


def test_what_waits_goes_as_soon_as_there_is_room(world: World) -> None:
    sharing(world, default=5)
    register_jobs(world, "acme", 12)
    world.tick_at("12:00")

    world.worker().work_one()
    world.worker().work_one()
    world.tick_at("12:00:00.5")
    assert len(world.queued) == 3, "the backlog of the queue is read once a second"
    world.tick_at("12:00:02")
    assert len(world.queued) == 5

    settle(world)
    assert len(world.runs.all) == 12


def test_a_full_pool_holds_up_no_other(world: World) -> None:
    sharing(world, default=1)
    register_jobs(world, "acme", 5)
    world.register("other", target={"pool": "batch", "handler": "report"})

    world.tick_at("12:00")

    assert "other 12:00" in world.sent
    assert len(world.sent) == 2


@pytest.mark.parametrize("fields", [{"misfire": RUN_ALL}, {"misfire": RUN_ALL, "overlap": "QUEUE"}])
def test_nothing_is_lost_in_a_queue_that_is_full_for_long(
    world: World, fields: dict[str, Any]
) -> None:
    sharing(world, default=3)
    jobs = [world.register(f"job{n}", **MINUTELY, **fields) for n in range(6)]
    for _ in range(60):
        world.advance(seconds=10)
        world.tick()
        assert len(world.queued) <= 3

    settle(world)

    for job in jobs:
        assert_all_accounted_for(world, job)
        assert len(records(world, job)) >= 10


def test_the_misfire_policy_applies_to_runs_delayed_by_a_full_queue(world: World) -> None:
    sharing(world, default=1)
    world.register("blocker", type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    job = world.register(**MINUTELY)
    for _ in range(30):
        world.advance(seconds=20)
        world.tick()

    settle(world)

    assert_all_accounted_for(world, job)
    assert len(records(world, job)) <= 4


def test_a_retry_waits_for_room_too_and_is_not_lost(world: World) -> None:
    sharing(world, default=1)
    job = world.register(retryPolicy={"initialDelayMs": 1_000})
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.register("blocker", type="ONCE", schedule="2026-05-24T12:00:01Z")
    world.tick_at("12:00:01")
    for second in range(2, 90):
        world.advance(seconds=1)
        world.tick()
        if second == 80:
            world.worker().work()

    settle(world)

    run = world.run(job, "12:00")
    assert (run.attempt, run.state) == (2, "SUCCEEDED")


def test_room_that_appears_is_shared_by_the_tenants(world: World) -> None:
    sharing(world, weights={"gold": 3}, default=40)
    register_jobs(world, "gold", 90)
    register_jobs(world, "tin", 90)
    world.tick_at("12:00")
    assert Counter(message.tenant for message in world.queue.log) == {"gold": 30, "tin": 10}

    world.worker().work()
    world.tick_at("12:00:02")

    sent = Counter(message.tenant for message in world.queue.log)
    assert sent == {"gold": 60, "tin": 20}


def test_a_queue_of_unknown_backlog_takes_all_runs(world: World) -> None:
    sharing(world, default=1)
    register_jobs(world, "acme", 3)
    world.faults.refuse("queue.backlog", times=9)

    world.tick_at("12:00")

    assert len(world.queued) == 3


def test_waiting_entries_above_a_thousand_move_to_the_next_minute(world: World) -> None:
    sharing(world, default=10)
    register_jobs(world, "acme", 1_150)
    world.at("12:00")
    for _ in range(4):
        world.tick()
        world.advance(seconds=0.5)

    buckets = Counter(
        slot.bucket[:17]
        for slot, item in world.due.items.items()
        if getattr(item, "at", None) == NOON
    )
    assert buckets["2026-05-24T12:00Z"] <= 1_000
    assert buckets["2026-05-24T12:01Z"] >= 140
    assert sum(buckets.values()) == 1_140

    sharing(world, default=2_000)
    world.at("12:01:02")
    for _ in range(4):
        world.tick()
        world.advance(seconds=1)
    assert len({message.job_id for message in world.queue.log}) == 1_150


def test_an_entry_without_a_rank_is_dispatched(world: World) -> None:
    """The former version stored the entry without a rank."""
    job = world.register(priority="HIGH")
    world.due.items.clear()
    world.due.put([a_fire(job, NOON)], world.now)

    world.tick_at("12:00")

    assert world.sent == ["report 12:00"]
    assert world.entries == [job.fire_entry(at("13:00"), 1)]


def test_current_entries_are_read_behind_any_number_of_waiting_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "READ_AT_MOST", 3)
    monkeypatch.setattr(reader, "READ_AT_LEAST", 1)
    world.shares = Shares(backlogs={"batch": 0})
    world.new_watcher()
    for n in range(9):
        world.register(f"waits{n}", target={"pool": "batch", "handler": "x"})
    world.register("fresh", tenant="other", type="ONCE", schedule="2026-05-24T12:00:20Z")
    for second in range(0, 20, 2):
        world.tick_at(f"12:00:{second:02d}")

    world.tick_at("12:00:20")

    assert world.sent == ["fresh 12:00:20"]


def test_entries_carried_into_a_minute_do_not_count_against_its_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_NEAR", 4)
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    for n in range(4):
        world.register(f"job{n}", type="ONCE", schedule="2026-05-24T12:00:58Z")
    for second in ("12:00:58", "12:00:59.5", "12:01:00.5", "12:01:01", "12:01:02"):
        world.tick_at(second)

    assert {slot.minute for slot in world.due.items} == {at("12:01")}


@pytest.mark.parametrize("overlap", ["ALLOW", "QUEUE"])
def test_a_record_that_does_not_decode_does_not_end_its_chain(world: World, overlap: str) -> None:
    job = world.register(schedule="* * * * *", overlap=overlap)
    world.tick_and_work("12:00")
    world.runs.spoil(world.run(job, "12:00").key)

    world.tick_at("12:01")
    world.at("12:10")
    for _ in range(4):
        world.advance(seconds=1)
        world.tick()

    assert world.sent[-1] == "report 12:10"


def test_what_waits_costs_a_postponed_entry_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that wait are counted once per poll, not with each batch that has to wait too."""
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    for n in range(250):
        world.register(f"job{n}", tenant=f"tenant{n % 4}", schedule="* * * * *")
    world.tick_at("12:00")
    looked = 0
    waits = HeldEntries.waits

    def counted(holding: HeldEntries, slot: Slot) -> bool:
        nonlocal looked
        looked += 1
        return waits(holding, slot)

    monkeypatch.setattr(HeldEntries, "waits", counted)
    world.at("12:00:02")
    report = world.watcher.poll(world.now)
    by_the_poll, looked = looked, 0
    while world.watcher.next_at is not None and world.watcher.next_at <= world.now:
        report += world.watcher.release(world.now)

    assert report.held_back == 249
    assert (by_the_poll > 0, looked) == (True, 0)
