"""Parked entries: what waiting costs, and that they are sent once the queue has capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil
from typing import Any

import pytest

from nextfire.domain.due import PARKED_AT_MOST, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.usecases.dispatch import waiting
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.parked import ParkedEntries
from nextfire.usecases.find_unsent import FindUnsent
from tests.accounting import assert_all_accounted_for, settle
from tests.builders import a_fire, a_job, at
from tests.crons import LONG
from tests.fakes import MemoryDueStore
from tests.unit.auditing import audit
from tests.world import World

WRITE, READ = 0.625, 0.125  # dollars per million units
ENTRIES_PER_UNIT = 16  # of 250 bytes each, in a consistent read of 4 KB
MILLION = 1_000_000
POLL = timedelta(seconds=0.5)
NEXT: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:31:00Z"}
ONCE: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


class Meter:
    """Counts the write and read units of a world's due table, and its reads of jobs."""

    def __init__(self, world: World) -> None:
        self.writes = 0
        self.reads = 0.0
        due, jobs = world.due, world.jobs
        put, mark, delete = due.put, due.mark_held, due.delete
        read, get_many = due.read, jobs.get_many

        def count(writer: Callable[..., Any]) -> Callable[..., Any]:
            def write(entries: Any, *more: Any) -> Any:
                self.writes += len(entries)
                return writer(entries, *more)

            return write

        def counted_read(minute: datetime, shard: int, **more: Any) -> Any:
            found = [*read(minute, shard, **more)]
            most = more.get("page") or len(found)
            strong = 1 if more["consistent"] else 0.5
            # Callers never read more than one page.
            self.reads += strong * max(ceil(min(len(found), most) / ENTRIES_PER_UNIT), 1)
            yield from found

        def counted_get_many(keys: Any, **more: Any) -> Any:
            self.reads += len(keys) * (1 if more.get("consistent") else 0.5)
            return get_many(keys, **more)

        changed: dict[str, Any] = {"put": count(put), "mark_held": count(mark)}
        changed |= {"delete": count(delete), "read": counted_read}
        for name, method in changed.items():
            setattr(due, name, method)
        jobs.get_many = counted_get_many  # type: ignore[method-assign]


def a_world(
    *, backlog: int | None = 0, quotas: TenantQuotas = NO_QUOTAS, **crowds: int
) -> tuple[World, Meter]:
    """*crowds*: number of jobs due at noon, by tenant. *backlog*: capacity of the queue."""
    world = World("11:59:30", quotas=quotas)
    set_backlog(world, backlog)
    world.new_watcher()
    for tenant, count in crowds.items():
        for number in range(count):
            world.register(f"job{number:04d}", tenant=tenant, **ONCE)
    return world, Meter(world)


def set_backlog(world: World, backlog: int | None) -> None:
    """Change the capacity of the queue from the next poll on, for the same watcher."""
    backlogs = {} if backlog is None else {"default": backlog}
    if isinstance(world.shares.backlogs, dict) and world.shares.backlogs:
        world.shares.backlogs.update(backlogs)
    else:
        world.shares = Shares(backlogs=backlogs, quotas=world.shares.quotas)


def poll(world: World, times: int = 1, every: timedelta = POLL) -> None:
    for _ in range(times):
        world.clock.advance(seconds=every.total_seconds())
        world.watcher.poll(world.now)
        while world.watcher.next_at is not None and world.watcher.next_at <= world.now:
            world.watcher.release(world.now)


def wait(world: World, time: str) -> None:
    """Advance to *time* as `wait_until`."""
    wait_until(world, at(time))


def wait_until(world: World, time: datetime) -> None:
    """Advance to *time* with a poll every minute and a takeover every 15 minutes."""
    minute = 0
    while world.now < time:
        poll(world, every=timedelta(minutes=1))
        minute += 1
        if minute % 15 == 0:
            world.new_watcher()


def sent(world: World) -> Counter[str]:
    return Counter(message.tenant for message in world.queue.log)


@pytest.mark.parametrize("quota", [None, 1], ids=["room", "quota"])
def test_a_million_parked_entries_cost_at_most_50_dollars_a_day(
    quota: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts only the writes of each entry. The reads for tries do not grow with the number of
    entries; the next test measures them for a real watcher. Without NEXTFIRE_LONG six hours count,
    after two in which entries move more often.
    """
    monkeypatch.setattr(waiting, "_TRIES_AT_ONCE", 5)
    count = 50 if quota is None else 130
    counted_from, hours = ("12:00", 24) if LONG else ("14:00", 6)
    quotas = TenantQuotas.model_validate({"tenants": {"acme": {"runsPerMinute": quota}}})
    world, meter = a_world(backlog=0 if quota is None else None, quotas=quotas, acme=count)
    if quota is not None:  # other runs of the tenant use up the quota
        world.control.take_runs = lambda *_: 0  # type: ignore[method-assign]
    world.at("12:00")
    wait(world, counted_from)
    before = meter.writes
    wait_until(world, world.now + timedelta(hours=hours))

    assert len(world.entries) == count
    assert not world.queue.log
    writes = (meter.writes - before) / count * 24 / hours
    moves = writes / 2
    # Moving an entry reads it with its bucket, and reads its job.
    dollars = writes * WRITE + moves * (0.5 + 1 / ENTRIES_PER_UNIT) * READ
    assert dollars <= 45, f"{moves:.1f} moves of each, ${dollars:.2f} per million"


@pytest.mark.parametrize("tenants", [1, 40] if LONG else [40])
def test_retries_of_parked_entries_cost_at_most_5_dollars_a_day(tenants: int) -> None:
    entries = 2_000 if LONG else 800
    crowds: Any = {f"tenant{n}": entries // tenants for n in range(tenants)}
    world, meter = a_world(**crowds)
    wait(world, "13:00")
    poll(world, 60)
    reads, writes, began_at = meter.reads, meter.writes, world.now

    while world.now < began_at + timedelta(seconds=50):
        poll(world)

    a_day = (meter.reads - reads) / 50 * 86_400
    assert a_day / MILLION * READ <= 5
    # Entries whose minute has come are moved; nothing is written for the others.
    assert (meter.writes - writes) <= 4 * entries // 10


@pytest.mark.parametrize("takeover", [False, True], ids=["same holder", "after a takeover"])
def test_parked_entries_are_sent_within_a_few_polls_of_free_capacity(*, takeover: bool) -> None:
    world, _ = a_world(acme=300, other=300)
    wait(world, "14:10" if LONG else "13:10")
    if takeover:
        world.new_watcher()
    assert not world.queue.log

    set_backlog(world, 200)
    poll(world, 20)

    # The last tenth is for tenants without waiting entries.
    assert sum(sent(world).values()) == 180
    assert min(sent(world).values()) >= 60, f"each tenant gets a share: {sent(world)}"
    set_backlog(world, 10_000)
    poll(world, 20)
    assert sent(world) == {"acme": 300, "other": 300}
    assert not world.entries


def test_a_poll_with_nothing_to_look_for_reads_no_future_bucket() -> None:
    world, meter = a_world(acme=1)
    world.at("11:59:30")
    poll(world, 10)
    before = meter.reads

    poll(world, 10)

    assert meter.reads - before <= 20


def test_a_parked_entry_is_not_moved_before_its_minute() -> None:
    world, meter = a_world(acme=30)
    wait(world, "12:40")
    slots, writes = set(world.due.items), meter.writes
    furthest = max(slot.minute for slot in slots)
    assert world.now < furthest <= world.now + PARKED_AT_MOST

    poll(world, 40)

    assert {s for s in slots if s.minute > world.now} <= set(world.due.items)
    assert meter.writes == writes


def test_a_fresh_pool_is_not_held_up_by_what_waits_for_another() -> None:
    world, _ = a_world(acme=300)
    wait(world, "12:30")
    world.register("b", tenant="acme", target={"pool": "batch", "handler": "x"}, **NEXT)

    world.at("12:31")
    poll(world, 2)

    assert [message.job_id for message in world.queue.log] == ["b"]


def test_those_that_wait_for_a_quota_are_spread_over_the_minutes_that_have_it() -> None:
    quotas = TenantQuotas.model_validate({"tenants": {"acme": {"runsPerMinute": 10}}})
    world, meter = a_world(backlog=None, quotas=quotas, acme=100)
    world.at("12:00")
    for _ in range(11 * 60 // 5):
        poll(world, every=timedelta(seconds=5))

    assert sent(world) == {"acme": 100}
    assert meter.writes <= 100 * (2 + 1) + 2 * 2 * 10, "each entry is moved about once"


def parked(**crowds: Any) -> World:
    """A world at 12:40 with all of *crowds* parked more than three minutes ahead."""
    world, _ = a_world(**crowds)
    wait(world, "12:40")
    ahead = {slot.minute for slot in world.due.items}
    assert min(ahead) > world.now + timedelta(minutes=3)
    return world


def test_tenants_that_were_not_tried_for_the_longest_time_come_first() -> None:
    world = parked(**{f"tenant{number}": 1 for number in range(6)})
    world.new_watcher()
    poll(world, 10)  # it has read the next hour
    postponer = world.watcher._waiting  # noqa: SLF001 — the order is seen from here only
    found = [(slot, each) for slot, each in world.due.items.items() if isinstance(each, DueEntry)]
    stored = {each.job.tenant: StoredEntry(slot, each) for slot, each in found}
    for tenant in ("tenant4", "tenant0", "tenant5", "tenant2", "tenant3", "tenant1", "tenant4"):
        postponer.admits(stored[tenant], world.now)

    tried_last = ["tenant0", "tenant5", "tenant2", "tenant3", "tenant1", "tenant4"]
    assert [*postponer.wanted(world.now + timedelta(hours=1))] == tried_last


def test_a_parked_entry_is_sent_once_and_accounted_for() -> None:
    world = parked(acme=1)
    job = world.job(world.entries[0].job)
    (slot,) = world.due.items
    assert StoredEntry(slot, world.entries[0]).is_parked(world.now)

    set_backlog(world, 10)
    poll(world, 20)
    world.worker().work()
    settle(world)

    assert_all_accounted_for(world, job)
    assert sent(world) == {"acme": 1}


def test_a_parked_entry_keeps_the_id_of_a_deleted_job() -> None:
    world = parked(acme=1)
    job = world.job(world.entries[0].job)
    unsent = FindUnsent(world.due, world.control, read_shards=1)

    found = unsent.of(job.key, job.uid, world.now)

    assert found == world.entries


def test_the_auditor_does_not_call_a_parked_entry_lost() -> None:
    world = parked(acme=3)
    slots = set(world.due.items)

    report = audit(world)

    assert (report.jobs, report.repaired) == (3, 0), report
    assert set(world.due.items) == slots


def test_entries_that_were_read_before_a_throttled_read_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are not read again: their place was passed."""
    due, noon = MemoryDueStore(), at("12:00")
    entry = a_fire(a_job(), noon)
    due.items[Slot(bucket_name(at("12:01"), 0), entry.sort_key)] = entry
    read = due.read

    def throttled(minute: datetime, shard: int, **bounds: Any) -> Any:
        if minute > at("12:03"):
            raise UnavailableError("read due entries: throttled. Try again.")
        return read(minute, shard, **bounds)

    monkeypatch.setattr(due, "read", throttled)
    parked = ParkedEntries(due)

    [found] = parked.read(0, noon)
    with pytest.raises(UnavailableError):
        parked.read(0, noon)

    assert isinstance(found, StoredEntry)
    assert found.entry == entry
