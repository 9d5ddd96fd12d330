"""The order of dispatch when not everything can be sent: tenant weights, priorities, full queues
and unresponsive shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.due import FireEntry, Slot, StoredEntry
from nextfire.domain.fair_queue import FairQueue
from nextfire.usecases.dispatch import reader, waiting
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.holding import BATCH
from tests.accounting import assert_all_accounted_for, records, settle
from tests.builders import NOON, RUN_ALL, a_fire, a_job, at, job_key
from tests.fakes import InlineExecutor
from tests.world import World

BEGINNING = "11:59:30"

T = TypeVar("T")
MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}


# The queue


def stored(tenant: str, number: int, *, second: int = 0, rank: int = 1, ms: int = 0) -> StoredEntry:
    job = a_job(f"job{number}", tenant=tenant, uid=f"uid{number:05d}")
    due_at = NOON + timedelta(seconds=second, milliseconds=ms)
    entry = job.fire_entry(due_at, 1)
    entry = FireEntry(entry.job, entry.uid, due_at, entry.version, rank=rank)
    return StoredEntry(Slot("2026-05-24T12:00Z#000", entry.sort_key), entry)


def drained(queue: FairQueue) -> list[StoredEntry]:
    return [queue.pop() for _ in range(len(queue))]


def tenants(entries: list[StoredEntry]) -> str:
    return "".join(each.entry.job.tenant for each in entries)


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({}, "ababababaaaa"),
        ({"a": 1, "b": 1}, "ababababaaaa"),
        ({"a": 3}, "aaabaaabaabb"),
        ({"b": 2}, "abbabbaaaaaa"),
        ({"a": 100}, "aaaaaaaabbbb"),
        ({"a": 0, "b": -1}, "ababababaaaa"),  # no tenant gets less than weight 1
        ({"c": 9}, "ababababaaaa"),
    ],
)
def test_tenants_take_turns_by_their_weights(weights: dict[str, int], order: str) -> None:
    queue = FairQueue(weights)
    for number in range(8):
        queue.push(stored("a", number))
    for number in range(4):
        queue.push(stored("b", number))

    assert tenants(drained(queue)) == order


def test_a_tenant_that_joins_late_is_served_in_the_next_round() -> None:
    queue = FairQueue({"a": 3})
    for number in range(9):
        queue.push(stored("a", number))
    first = queue.pop()
    queue.push(stored("b", 1))
    assert tenants([first, *drained(queue)]) == "aaabaaaaaa"


def test_the_turn_of_an_empty_tenant_passes_to_the_next_one() -> None:
    queue = FairQueue({"a": 3, "b": 2})
    queue.push(stored("a", 1))
    for number in range(4):
        queue.push(stored("b", number))
    assert queue.pop().entry.job.tenant == "a"
    queue.push(stored("a", 2))

    assert tenants(drained(queue)) == "bbabb"


@st.composite
def weights_and_entries(draw: st.DrawFn) -> tuple[dict[str, int], list[StoredEntry]]:
    weights = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5)))
    entries = draw(
        st.lists(
            st.builds(
                stored,
                st.sampled_from("abcd"),
                st.integers(0, 99_999),
                second=st.integers(0, 2),
                rank=st.integers(0, 2),
                ms=st.integers(0, 999),
            ),
            max_size=60,
            unique_by=lambda each: (each.entry.job.tenant, each.slot),
        )
    )
    return weights, entries


@given(weights_and_entries())
def test_a_queue_gives_back_what_it_was_given_in_order_within_a_tenant(
    register_jobs: tuple[dict[str, int], list[StoredEntry]],
) -> None:
    weights, entries = register_jobs
    queue = FairQueue(weights)
    for each in entries:
        queue.push(each)
    assert len(queue) == len(entries)

    popped = drained(queue)

    assert Counter(popped) == Counter(entries)
    assert len(queue) == 0
    for tenant in "abcd":
        own = [each.entry for each in popped if each.entry.job.tenant == tenant]
        assert own == sorted(own, key=lambda e: (e.at.replace(microsecond=0), e.rank, e.at))


@given(weights_and_entries())
def test_a_tenant_waits_at_most_one_turn_of_each_other_tenant(
    register_jobs: tuple[dict[str, int], list[StoredEntry]],
) -> None:
    weights, entries = register_jobs
    queue = FairQueue(weights)
    for each in entries:
        queue.push(each)
    order = tenants(drained(queue))

    for tenant in set(order):
        others = sum(weights.get(other, 1) for other in set(order) - {tenant})
        waits = order[: order.rindex(tenant)].split(tenant)
        assert max(map(len, waits)) <= others
    # While other tenants wait, no tenant gets more than its weight in a row.
    last = max((order.rindex(tenant) for tenant in set(order) - {*order[-1:]}), default=-1)
    for own, turn in groupby(order[: last + 1]):
        assert len([*turn]) <= weights.get(own, 1)


@given(weights_and_entries(), st.lists(st.booleans(), max_size=80))
def test_pushes_and_pops_in_any_order_lose_nothing(
    register_jobs: tuple[dict[str, int], list[StoredEntry]], pops: list[bool]
) -> None:
    weights, entries = register_jobs
    queue, out, left = FairQueue(weights), [], [*entries]
    for pop in pops:
        if pop and len(queue):
            assert queue.next_at <= NOON + timedelta(seconds=3)
            out.append(queue.pop())
        elif left:
            queue.push(left.pop())
    for each in left:
        queue.push(each)

    assert Counter(out + drained(queue)) == Counter(entries)


# Tenants and priorities in the watcher


def sharing(world: World, *, weights: dict[str, int] | None = None, **backlogs: int) -> None:
    world.shares = Shares(backlogs=backlogs, weights=weights or {})
    world.new_watcher()


def register_jobs(world: World, tenant: str, jobs: int, **fields: Any) -> None:
    """Register *jobs* jobs of *tenant* that are due at 12:00."""
    for number in range(jobs):
        world.register(f"{tenant}{number}", tenant=tenant, **fields)


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


# Unresponsive shards


class Hanging(InlineExecutor):
    """Reads of the shards in `hang` never complete, measured by the test clock. Applies to methods
    with `what` in their names.
    """

    def __init__(self) -> None:
        self.hang: set[int] = set()
        self.what = ""
        self.world: World | None = None
        self.left: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        of_shard = args and isinstance(args[0], int) and args[0] in self.hang
        if not of_shard or self.what not in fn.__name__:
            return super().submit(fn, *args, **kwargs)
        assert self.world is not None
        future: _Waited[T] = _Waited(self.world)
        self.left.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def answer(self) -> None:
        """Complete the reads that hang."""
        self.hang.clear()
        for do in self.left:
            do()


class _Waited(Future[T]):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            assert timeout is not None, "a read waits without a timeout"
            self._world.advance(seconds=timeout)
            raise TimeoutError
        return super().result(timeout)


@pytest.fixture
def hanging() -> tuple[World, Hanging]:
    executor = Hanging()
    world = World("11:59:30", executor=executor, shards=4)
    executor.world = world
    ids = {job_key(f"job{n}").shard(4): f"job{n}" for n in range(40)}
    for job_id in ids.values():
        world.register(job_id, **MINUTELY)
    return world, executor


def test_a_shard_that_hangs_does_not_stop_the_others(hanging: tuple[World, Hanging]) -> None:
    world, executor = hanging
    world.tick()
    executor.hang = {1}
    world.at("12:00")

    first = world.watcher.poll(world.now)
    assert world.now <= at("12:00:01"), "the poll waits for one second at most"
    world.watcher.release(world.now)
    assert len(world.sent) == 3
    assert first.notes == ["shard 1 does not answer"]

    for minute in range(1, 4):
        world.at(f"12:0{minute}:00")
        began = world.now
        world.watcher.poll(world.now)
        assert world.now - began < timedelta(seconds=0.1), "later polls do not wait for the shard"
        world.watcher.release(world.now)
    assert len(world.sent) == 12


def test_a_shard_that_hangs_from_the_first_poll_on(hanging: tuple[World, Hanging]) -> None:
    """This includes the repeated read of the shard's last minutes."""
    world, executor = hanging
    executor.hang = {1}

    for _ in range(2):
        world.watcher.poll(world.now)

    assert world.now <= at("11:59:33")


def test_a_shard_that_hangs_where_its_last_minutes_are_read_again(
    hanging: tuple[World, Hanging],
) -> None:
    world, executor = hanging
    executor.hang, executor.what = {1}, "stragglers"
    began = world.now

    report = world.watcher.poll(world.now)

    assert world.now - began <= timedelta(seconds=1)
    assert report.notes == ["a shard's last minutes are not read again: no answer"]
    world.at("12:00:01")
    world.watcher.poll(world.now)
    world.watcher.release(world.now)
    assert len(world.sent) == 4, "reads of all shards continue"


def test_current_buckets_are_read_while_past_ones_are_caught_up(
    hanging: tuple[World, Hanging],
) -> None:
    """After a long outage, catching up takes many reads of past buckets."""
    world, executor = hanging
    world.tick()
    world.at("13:00")
    executor.hang, executor.what = {0, 1, 2, 3}, "past"
    fresh = world.register("fresh", type="ONCE", schedule="2026-05-24T13:00:05Z")

    for second in range(6):
        world.at(f"13:00:0{second}")
        assert world.watcher.poll(world.now).notes == []
        world.watcher.release(world.now)

    assert [message.job_id for message in world.queue.log] == [fresh.key.job_id]
    executor.answer()
    settle(world)
    for key in {entry.job for entry in world.entries}:
        assert_all_accounted_for(world, world.job(key))


def test_a_hung_shard_is_caught_up_when_it_answers(hanging: tuple[World, Hanging]) -> None:
    world, executor = hanging
    world.tick()
    executor.hang = {1}
    world.at("12:00")
    world.watcher.poll(world.now)
    executor.answer()
    world.at("12:00:30")

    settle(world)

    assert Counter(message.key.scheduled_at for message in world.queue.log) == {NOON: 4}
    for key in {entry.job for entry in world.entries}:
        assert_all_accounted_for(world, world.job(key))


def test_a_late_answer_of_a_slow_shard_causes_no_duplicate_runs(
    hanging: tuple[World, Hanging],
) -> None:
    """The old holder read entries and hung; meanwhile a new holder dispatched them."""
    world, executor = hanging
    world.tick()
    slow = world.watcher
    executor.hang = {1}
    world.at("12:00")
    slow.poll(world.now)
    executor.hang = set()
    stale = dict(world.due.items)
    world.new_watcher()
    world.tick_at("12:00:02")
    world.worker().work()
    fresh, world.due.items = world.due.items, stale
    executor.answer()
    world.due.items = fresh
    world.at("12:00:20")

    slow.poll(world.now)
    slow.release(world.now)
    settle(world)

    for key in {entry.job for entry in world.entries}:
        assert_all_accounted_for(world, world.job(key))
    assert all(run.attempt == 1 for run in world.runs.all.values())


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
    world.tick_at("12:00")
    world.worker().work()
    world.runs.spoil(world.run(job, "12:00").key)

    world.tick_at("12:01")
    world.at("12:10")
    for _ in range(4):
        world.advance(seconds=1)
        world.tick()

    assert world.sent[-1] == "report 12:10"
