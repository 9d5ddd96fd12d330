"""The audit restores lost chains of occurrences, as far as the job owes them."""

from __future__ import annotations

from nextfire.domain.due import DueEntry, Slot
from nextfire.domain.occurrences import JobState
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import RUN_ALL
from tests.unit.auditing import advance_until, audit, delete_due_entries, fire_times, purge
from tests.world import World

BEGINNING = "11:59"

# The chain


def test_a_lost_chain_continues_after_the_last_record(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    advance_until(world, "12:11")
    assert delete_due_entries(world) == 1
    advance_until(world, "12:31")
    assert fire_times(world) == []

    report = audit(world)

    assert (report.restored, report.repaired) == (1, 1)
    assert fire_times(world) == ["12:15"]
    settle(world)
    assert ran(world, job) == ["12:00", "12:05", "12:10", "12:30"]
    assert covered(world, job) == ["12:15-12:25 (3)"]
    assert_all_accounted_for(world, job)
    assert audit(world).repaired == 0


def test_an_audit_is_not_done_until_its_repair_is_stored(world: World) -> None:
    """DynamoDB throttles the write of the entry at each attempt."""
    world.register(schedule="*/5 * * * *")
    advance_until(world, "12:11")
    delete_due_entries(world)
    advance_until(world, "12:31")
    world.due.refuses = lambda _: True

    report = audit(world)

    assert (report.done, report.jobs, report.repaired) == (False, 0, 0)
    world.due.refuses = lambda _: False
    report = audit(world, restart=False)
    assert (report.done, report.jobs, report.restored) == (True, 1, 1)


def test_a_restored_chain_knows_how_many_occurrences_there_were(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", maxRuns=6, misfire=RUN_ALL)
    advance_until(world, "12:11")
    delete_due_entries(world)
    world.tick_at("12:18")

    assert audit(world).restored == 1

    advance_until(world, "12:59")
    assert ran(world, job) == ["12:00", "12:05", "12:10", "12:15", "12:20", "12:25"]
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_chain_is_restored_while_runs_wait_but_nothing_is_taken_for_lost(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    for time in ("12:00", "12:05", "12:10"):
        world.tick_at(time)
    delete_due_entries(world)
    world.tick_at("12:31")

    report = audit(world)

    assert fire_times(world) == ["12:35"], "the audit cannot know which of 12:00 to 12:30 were sent"
    assert (report.restored, report.repaired) == (1, 1)
    assert report.waiting == 4, "12:00 to 12:15: occurrences of the last 15 minutes are not checked"
    advance_until(world, "12:51")
    report = audit(world)
    assert (report.covered, report.resent) == (3, 1)
    settle(world)
    assert ran(world, job) == [f"12:{m:02d}" for m in (0, 5, 10, 30, 35, 40, 45, 50)]
    assert_all_accounted_for(world, job)


def test_a_resumed_job_whose_entry_is_lost_owns_what_was_due_since_its_pause(world: World) -> None:
    job = world.register(schedule="*/10 * * * *")
    advance_until(world, "12:01")
    world.pause(job)
    world.at("12:32")
    job = world.resume(job)
    delete_due_entries(world)
    world.tick_at("12:45")

    assert audit(world).restored == 1

    settle(world)
    assert ran(world, job) == ["12:00", "12:40"]
    assert covered(world, job) == ["12:10-12:30 (3)"]
    assert_all_accounted_for(world, job)


def test_what_a_replaced_version_left_undone_is_found(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    advance_until(world, "12:06")
    world.at("12:18")
    delete_due_entries(world)
    job = world.change(job, schedule="50 * * * *")
    world.tick_at("12:40")

    report = audit(world)

    assert (report.restored, report.resent) == (0, 2)
    settle(world)
    assert ran(world, job) == ["12:00", "12:05", "12:10", "12:15"]
    assert_all_accounted_for(world, job)


def test_an_entry_of_a_replaced_version_does_not_count_as_a_chain(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    advance_until(world, "12:08")
    former = [*world.due.items]
    world.change(job, schedule="50 * * * *")
    world.due.delete([slot for slot in world.due.items if slot not in former])
    assert fire_times(world) == ["12:10"]

    report = audit(world)

    assert report.restored == 1
    assert fire_times(world) == ["12:10", "12:50"]
    assert any(note.startswith("acme/report: had no due entry") for note in report.notes)


def test_a_failed_chain_repair_is_not_counted(world: World) -> None:
    world.register()
    delete_due_entries(world)
    world.due.refuses = lambda _: True

    assert audit(world).restored == 0


def test_an_entry_that_does_not_decode_is_left_to_its_watcher(world: World) -> None:
    world.register(schedule="30 * * * *")
    [slot] = world.due.items
    world.due.spoil(slot, tenant="acme", job_id="report")

    assert audit(world).repaired == 0


def test_an_entry_that_is_due_and_does_not_decode_is_left_to_its_watcher(world: World) -> None:
    world.register()
    [slot] = world.due.items
    world.due.spoil(slot, tenant="acme", job_id="report")
    world.at("12:00:05")

    assert audit(world).repaired == 0

    world.tick()
    assert fire_times(world) == ["13:00"]


def test_a_paused_job_owes_nothing_for_its_pause(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    advance_until(world, "12:01")
    world.pause(job)
    world.tick_at("13:01")

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 0)


def test_nothing_is_owed_beyond_the_last_run_nor_of_a_deleted_job(world: World) -> None:
    world.register("few", schedule="*/5 * * * *", maxRuns=2)
    advance_until(world, "12:31")
    gone = world.register("gone", schedule="*/5 * * * *")
    world.tick_at("12:35")
    purge(world)
    world.delete(gone)
    world.tick_at("13:01")

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 0)


def test_an_entry_written_into_another_number_of_shards_is_found() -> None:
    world = World("11:59", shards=4)
    world.tick()
    jobs = [world.register(f"job{n}", uid=f"uid{n:05d}") for n in range(12)]
    world.due.items = {
        Slot(e.bucket(world.now, 2), e.sort_key): e
        for e in world.due.items.values()
        if isinstance(e, DueEntry)
    }
    assert {j.key.shard(2) for j in jobs} != {j.key.shard(4) for j in jobs}

    assert audit(world).repaired == 0
