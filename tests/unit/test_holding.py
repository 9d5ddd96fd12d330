"""Due entries that a watcher holds in memory: which are taken next, and which can wait."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from nextfire.domain.due import Slot, StoredEntry
from nextfire.domain.fair_queue import FairQueue
from nextfire.domain.instants import MOMENT
from nextfire.usecases.dispatch.holding import BATCH, HeldEntries
from tests.builders import NOON, a_fire, a_job, at

HOUR = timedelta(hours=1)
BUCKET = "2026-05-24T12:00Z#000"


def an_entry(job_id: str = "report", due_at: datetime = NOON, tenant: str = "acme") -> StoredEntry:
    entry = a_fire(a_job(job_id, tenant=tenant, uid=f"uid{job_id}"), due_at)
    return StoredEntry(Slot(BUCKET, entry.sort_key), entry)


def many(count: int, due_at: datetime = NOON, prefix: str = "job") -> list[StoredEntry]:
    return [an_entry(f"{prefix}{n:05d}", due_at) for n in range(count)]


def a_holding(*held: StoredEntry, budget: int = 1_000, now: datetime = NOON) -> HeldEntries:
    holding = HeldEntries({}, budget)
    for stored in held:
        holding.hold(stored, now)
    return holding


def set_aside_until(
    holding: HeldEntries, spare: StoredEntry, *, until: datetime | None = None
) -> None:
    """Take a batch and set *spare* aside as an entry that can wait."""
    batch = holding.take(NOON)
    assert spare in batch
    assert holding.set_aside(spare, until, NOON)
    holding.done(batch)


def test_an_entry_is_taken_once() -> None:
    entry = an_entry()
    holding = a_holding(entry)

    assert holding.take(NOON) == [entry]
    holding.hold(entry, NOON)
    assert holding.take(NOON) == []


def test_a_job_s_next_entry_waits_until_the_one_before_it_is_done() -> None:
    first, second, other = an_entry(), an_entry(due_at=at("12:00:01")), an_entry("other")
    holding = a_holding(first)
    batch = holding.take(NOON)
    holding.hold(second, NOON)
    holding.hold(other, NOON)
    later = NOON + timedelta(seconds=2)

    assert holding.take(later) == [other]
    assert holding.take(later) == []

    holding.done(batch)
    assert holding.take(later) == [second]


def test_the_backlog_of_one_job_is_not_moved_with_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backlog = [an_entry(due_at=NOON + n * MOMENT) for n in range(5_000)]
    holding = a_holding(*backlog, budget=10_000)
    taken: list[StoredEntry] = []
    push, pushed, later = FairQueue.push, 0, NOON + timedelta(minutes=1)

    def counted(queue: FairQueue, stored: StoredEntry) -> None:
        nonlocal pushed
        pushed += 1
        push(queue, stored)

    monkeypatch.setattr(FairQueue, "push", counted)
    while batch := holding.take(later):
        other = an_entry(f"other{len(taken)}")
        holding.hold(other, NOON)
        assert holding.take(later) == [other], "it does not wait for the backlog"
        assert holding.take(later) == []
        holding.done([other])
        holding.done(batch)
        taken += batch

    assert taken == backlog
    assert pushed < 3 * len(backlog)


def test_take_full_returns_a_full_batch_or_nothing() -> None:
    holding = a_holding(*many(BATCH - 1))
    assert holding.take(NOON, full=True) == []

    holding.hold(an_entry(), NOON)
    assert len(holding.take(NOON, full=True)) == BATCH


def test_fresh_entries_and_those_of_small_tenants_have_room_beyond_the_budget() -> None:
    now = NOON + HOUR
    holding = a_holding(*many(200), budget=160, now=now)
    assert (len(holding), holding.room) == (160, 0)

    for stored in many(300, now, "fresh"):
        holding.hold(stored, now)
    assert len(holding) == 200

    for number in range(200):
        holding.hold(an_entry(f"small{number}", NOON, tenant="small"), now)
    assert len(holding) == 200, "late entries have no room beyond the budget"
    for number in range(200):
        holding.hold(an_entry(f"small{number}", now, tenant="small"), now)
    assert len(holding) == 220


def test_a_tenant_is_small_again_once_its_entries_were_taken() -> None:
    small = [an_entry(f"small{number}", tenant="small") for number in range(120)]
    holding = a_holding(*small[:100], budget=160)
    holding.done(holding.take(NOON))

    for stored in [*many(300), *small[100:]]:
        holding.hold(stored, NOON)

    assert len(holding) == 220


def test_set_aside_entries_go_when_nothing_else_is_ready() -> None:
    spares = many(30, prefix="spare")
    holding = a_holding(*spares)
    batch = holding.take(NOON)
    for spare in spares:
        assert holding.set_aside(spare, NOON + HOUR, NOON)
    holding.done(batch)

    assert holding.take(NOON) == spares


def test_spare_entries_go_with_each_batch() -> None:
    spares = many(60, at("11:59:59"), "spare")
    holding = a_holding(*spares)
    batch = holding.take(NOON)
    for spare in spares:
        assert holding.set_aside(spare, NOON + HOUR, NOON)
    holding.done(batch)
    for stored in many(BATCH + 10):
        holding.hold(stored, NOON)

    full, incomplete = holding.take(NOON), holding.take(NOON)

    assert len(full) == BATCH
    assert [stored for stored in full if stored in spares] == spares[:1]
    assert [stored for stored in incomplete if stored in spares] == spares[1:26]
    assert len(incomplete) == 10 + 1 + 25


def test_an_entry_is_set_aside_once() -> None:
    spare = an_entry("spare")
    holding = a_holding(spare)
    set_aside_until(holding, spare)

    assert holding.take(NOON) == [spare]
    assert not holding.set_aside(spare, None, NOON)

    holding.done([spare])
    holding.hold(spare, NOON)
    assert holding.take(NOON) == [spare]
    assert holding.set_aside(spare, None, NOON), "it was read from the table again"


def test_spare_entries_use_half_of_the_memory_and_the_others_are_left_for_a_minute() -> None:
    entries = many(60)
    holding = a_holding(*entries, budget=100)
    batch = holding.take(NOON)
    for stored in entries:
        assert holding.set_aside(stored, None, NOON)
    holding.done(batch)
    left = entries[-1]

    assert len(holding) == 50
    assert (holding.room, holding.room_for_late) == (50, 0)
    holding.hold(left, NOON)
    assert len(holding) == 50
    holding.forget(NOON + timedelta(minutes=1), NOON)
    holding.hold(left, NOON)
    assert len(holding) == 51


def test_a_left_entry_is_read_again_when_the_next_occurrence_of_its_job_is_due() -> None:
    entries = many(60)
    holding = a_holding(*entries, budget=100)
    batch = holding.take(NOON)
    for stored in entries:
        holding.set_aside(stored, at("12:00:20"), NOON)
    holding.done(batch)

    holding.forget(at("12:00:20"), NOON)

    assert not holding.knows(entries[-1].slot)


def test_what_is_spare_is_ready_when_its_job_s_next_occurrence_is_due() -> None:
    spares = many(3, at("11:59:59"), "spare")
    holding = a_holding(*spares, *many(5 * BATCH))
    batch = holding.take(NOON)
    for spare in spares:
        assert holding.set_aside(spare, at("12:00:02"), NOON)
    holding.done(batch)

    assert spare not in holding.take(at("12:00:01"))
    assert spare in [*holding.take(at("12:00:02")), *holding.take(at("12:00:02"))]


def test_what_is_set_aside_twice_and_comes_due_is_taken_once() -> None:
    spare = an_entry("spare")
    until = at("12:00:02")
    holding = a_holding(spare)
    for _ in range(2):
        holding.hold(spare, NOON)
        set_aside_until(holding, spare, until=until)
        holding.done(holding.take(NOON))
    holding.hold(spare, NOON)

    assert holding.take(until) == [spare]
    assert holding.take(until) == []


def test_what_is_held_again_while_an_old_call_for_it_waits_is_taken_once() -> None:
    """It was set aside, could not be recorded, and was read from the table again."""
    spare, until = an_entry("spare"), at("12:00:02")
    holding = a_holding(spare)
    set_aside_until(holding, spare, until=until)
    holding.done(holding.take(NOON))
    holding.hold(spare, NOON)

    assert holding.take(until) == [spare]
    assert holding.take(until) == []


def test_what_is_ignored_is_held_again_after_its_time() -> None:
    entry = an_entry()
    holding = a_holding()
    holding.ignore([entry.slot], NOON + HOUR)
    holding.hold(entry, NOON)
    assert len(holding) == 0

    holding.forget(NOON + HOUR, NOON + HOUR)
    holding.hold(entry, NOON)
    assert holding.take(NOON) == [entry]


def test_what_was_deleted_is_not_held_again_by_a_read_that_began_before() -> None:
    """A shard can answer long after the request."""
    holding, entry = a_holding(), an_entry()
    asked_at = NOON
    holding.deleted([entry.slot], NOON + timedelta(seconds=1))

    holding.forget(NOON + timedelta(minutes=1), asked_at)
    holding.hold(entry, NOON)
    assert len(holding) == 0

    holding.forget(NOON + timedelta(minutes=1), NOON + timedelta(minutes=1))
    holding.hold(entry, NOON)
    assert len(holding) == 1
