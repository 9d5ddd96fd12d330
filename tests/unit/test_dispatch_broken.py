"""Entries and jobs that do not decode are set aside and stop nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.due import DueEntry, Slot
from tests.builders import a_fire, at
from tests.fakes import Killed, raise_killed
from tests.unit.dispatching import a_broken_slot, cursor, joined_notes, times
from tests.world import World


def test_a_broken_entry_is_set_aside_and_its_chain_continues(world: World) -> None:
    job = world.register()
    world.due.delete([Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)])
    world.due.spoil(a_broken_slot("12:00"), tenant="acme", job_id="report")
    world.register("other")

    world.tick_at("11:59:59")
    report = world.tick_at("12:00:00.5")

    assert [entry.slot for entry in world.due.quarantined] == [a_broken_slot("12:00")]
    assert sorted(world.sent) == ["other 12:00", "report 12:00"]
    assert times(world.entries) == ["13:00", "13:00"]
    assert report.quarantined == 0, "the previous tick counted it"


def test_a_broken_entry_of_a_paused_job_brings_no_chain(world: World) -> None:
    job = world.register()
    world.jobs.put(job.paused(world.now, None))
    world.due.delete([Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)])
    world.due.spoil(a_broken_slot("12:00"), tenant="acme", job_id="report")

    world.tick_at("11:59:59")

    assert len(world.due.quarantined) == 1
    assert world.entries == []


def test_a_broken_entry_causes_no_run_beyond_max_runs(world: World) -> None:
    """Found by simulation seed 4281."""
    world.register(maxRuns=1)
    world.at("11:59:59")
    world.tick_at("12:00")
    world.due.spoil(a_broken_slot("12:07"), tenant="acme", job_id="report")

    world.tick_at("12:07")
    world.tick_at("13:00")

    assert len(world.due.quarantined) == 1
    assert world.entries == []
    assert world.sent == ["report 12:00"]


def test_a_broken_entry_is_counted_and_reported(world: World) -> None:
    world.due.spoil(a_broken_slot("12:00"))

    report = world.tick_at("12:00")

    assert report.quarantined == 1
    assert "quarantined 2026-05-24T12:00Z#000" in joined_notes(report)


def test_a_broken_entry_stays_until_its_chain_is_stored(world: World) -> None:
    world.register()
    world.due.spoil(a_broken_slot("12:00:01"), tenant="acme", job_id="report")
    world.due.refuses = lambda _: True
    world.tick_at("12:00:00")
    assert world.due.quarantined == []

    world.due.refuses = lambda _: False
    world.tick_at("12:00:02")

    assert len(world.due.quarantined) == 1
    assert times(world.entries) == ["13:00"]


@pytest.mark.parametrize("before", ["due.keep", "due.put", "due.quarantine"])
def test_a_copy_of_a_broken_entry_survives_a_crash_after_it_was_overwritten(
    world: World, before: str
) -> None:
    """The entry that restores the chain has the same key as the broken entry."""
    job = world.register()
    slot = Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)
    world.due.spoil(slot, tenant="acme", job_id="report")
    world.at("11:59:59")

    world.faults.call_before_next(before, raise_killed)

    with pytest.raises(Killed):
        world.tick()

    kept = [entry.slot for entry in world.due.quarantined] == [slot]
    assert kept or not isinstance(world.due.items[slot], DueEntry)


def test_a_broken_entry_of_an_undecodable_job_is_quarantined(world: World) -> None:
    job = world.register()
    world.jobs.spoil(job.key)
    world.due.spoil(a_broken_slot("11:59:30"), tenant="acme", job_id="report")

    report = world.tick_at("11:59:30")

    assert len(world.due.quarantined) == 1
    assert "not restored" in joined_notes(report)


def test_an_invalid_sort_key_is_found_when_its_bucket_is_closed(world: World) -> None:
    world.tick_at("12:00")
    world.due.spoil(Slot("2026-05-24T12:00Z#000", "when?"))

    world.tick_at("12:01:30")
    assert [entry.slot.sort_key for entry in world.due.quarantined] == ["when?"]
    world.tick_at("12:01:31")
    assert cursor(world) == "12:01"


def test_a_job_that_does_not_decode_stops_no_other_and_is_not_lost(world: World) -> None:
    bad = world.register("bad")
    world.register("good")
    world.jobs.spoil(bad.key)

    report = world.tick_at("12:00")

    assert world.sent == ["good 12:00"]
    assert report.quarantined == 1
    assert a_fire(bad, at("12:00")) in world.entries

    world.jobs.repair(bad.key)
    world.tick_at("12:01:05")
    assert world.sent == ["good 12:00", "bad 12:00"]


def test_a_job_whose_schedule_can_no_longer_be_read_stops_no_other(world: World) -> None:
    bad = world.register("bad")
    world.register("good")
    definition = bad.definition.model_copy(update={"timezone": "Mars/Olympus"})
    world.jobs.put(replace(bad, definition=definition))

    report = world.tick_at("12:00")

    assert world.sent == ["good 12:00"]
    assert "Mars/Olympus" in joined_notes(report)
    assert a_fire(bad, at("12:00")) in world.entries


@pytest.mark.parametrize("trouble", ["jobs.get", "due.keep", "due.quarantine"])
def test_a_broken_entry_that_cannot_be_set_aside_holds_nothing_back(
    world: World, trouble: str
) -> None:
    world.tick()
    world.register()
    slot = Slot("2026-05-24T12:00Z#000", a_fire(world.register("bad"), at("12:00")).sort_key)
    world.due.spoil(slot, tenant="acme", job_id="bad")
    world.faults.refuse(trouble, times=1000)
    world.at("11:59:59")

    report = world.watcher.poll(world.now)

    assert f"{slot.sort_key} waits" in joined_notes(report)
    world.at("12:00")
    world.watcher.release(world.now)
    assert world.sent == ["report 12:00"]
    world.faults.clear()
    world.tick_at("12:00:02")
    world.tick_at("12:00:03")
    assert len(world.due.quarantined) == 1
    assert sorted(world.sent) == ["bad 12:00", "report 12:00"]


def test_many_broken_entries_delay_the_others_by_half_a_second(world: World) -> None:
    world.tick()
    for n in range(100):
        slot = a_broken_slot("12:00:01")
        world.due.spoil(slot._replace(sort_key=f"{slot.sort_key}{n:03d}"))
    world.faults.call_before_each("due.quarantine", lambda: world.advance(seconds=0.04))
    world.at("12:00")

    polls = 0
    while len(world.due.quarantined) < 100:
        began_at, polls = world.now, polls + 1
        world.watcher.poll(world.now)
        assert world.now - began_at < timedelta(seconds=0.6)

    assert polls < 10
