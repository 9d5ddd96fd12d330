"""Entries whose job is absent, changed, created again or read stale."""

from __future__ import annotations

from tests.builders import RUN_ALL, a_fire, a_job, at
from tests.unit.dispatching import joined_notes, times
from tests.world import World

# Stale reads


def test_a_job_read_stale_is_read_again_before_anything_but_firing(world: World) -> None:
    world.jobs.freeze()
    world.register()

    world.tick_at("12:00")

    assert world.sent == ["report 12:00"]


def test_an_occurrence_due_after_a_pause_that_no_read_shows_yet_runs_once(world: World) -> None:
    job = world.register(misfire=RUN_ALL)
    world.jobs.freeze()
    world.at("11:59:59.5")
    world.pause(job)

    world.tick_and_work("12:00")
    world.jobs.freeze()
    world.tick_at("13:00")
    assert world.sent == ["report 12:00"]

    world.resume(job)
    world.jobs.freeze()
    for time in ("13:00:01", "13:00:04"):
        world.tick_and_work(time)
    assert world.run(job, "12:00").dispatch_reason == "occurrence is due"
    assert [len(world.run(job, time).attempts) for time in ("12:00", "13:00")] == [1, 1]


def test_a_stale_read_does_not_drop_what_a_change_has_just_stored(world: World) -> None:
    job = world.register()
    world.jobs.freeze()
    world.at("11:59:30")
    world.change(job, schedule="30 12 * * *")

    world.tick_at("12:00")
    assert world.sent == ["report 12:00"], (
        "an outdated version fires with its own entry: it looks like the current version"
    )
    world.tick_at("12:30")
    assert world.sent == ["report 12:00", "report 12:30"]


def test_an_entry_whose_job_is_absent_is_left_then_dropped_after_a_minute(world: World) -> None:
    job = world.register()
    world.jobs.forget(job.key)

    world.tick_at("12:00:59.9")
    assert len(world.entries) == 1

    report = world.tick_at("12:01:02")
    assert "job not found, 60 s after it was due" in joined_notes(report)
    assert (world.entries, world.sent) == ([], [])


def test_an_entry_that_is_left_is_not_decided_again_by_every_poll(world: World) -> None:
    world.due.put([a_fire(a_job(), at("12:00"))], world.now)

    world.tick_at("12:00:00")
    asked = world.faults.calls.count("jobs.get")
    world.tick_at("12:00:01")

    assert world.faults.calls.count("jobs.get") == asked > 0


def test_a_job_that_appears_after_its_entry_is_dispatched(world: World) -> None:
    job = world.register()
    world.jobs.forget(job.key)
    world.tick_at("12:00:10")

    world.jobs.put(job)
    world.tick_at("12:00:13")

    assert world.sent == ["report 12:00"]


def test_the_entry_of_a_former_creation_is_dropped_and_the_new_one_fires(world: World) -> None:
    world.tick()
    old = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.delete(old)
    new = world.register(type="ONCE", schedule="2026-05-24T12:00:30Z")

    world.tick_at("12:00:30")
    world.tick_at("12:01:10")

    assert [m.key.uid for m in world.queue.log] == [new.uid]
    assert world.entries == []


# Versions


def test_an_entry_newer_than_its_job_is_left(world: World) -> None:
    job = world.register()
    newer = a_fire(job, at("12:00:05"), version=job.schedule_version + 1)
    world.due.put([newer], world.now)

    world.tick_at("12:00:05")

    assert newer in world.entries
    assert world.sent == ["report 12:00"]


def test_an_older_version_fires_up_to_the_change_without_a_successor(world: World) -> None:
    job = world.register()
    world.at("12:00:10")  # no tick in the meantime
    world.change(job, schedule="30 * * * *")

    report = world.tick_at("12:00:11")

    assert world.sent == ["report 12:00"]
    assert "before the change of 2026-05-24T12:00:10Z" in report.dispatched[0].reason
    assert times(world.entries) == ["12:30"]


def test_an_occurrence_at_the_very_change_is_the_old_version_s(world: World) -> None:
    job = world.register()
    world.at("12:00:00")
    world.change(job, timezone="Europe/Berlin")

    world.tick()

    assert world.sent == ["report 12:00"]
    assert times(world.entries) == ["13:00"]


def test_an_older_version_s_later_occurrence_is_dropped(world: World) -> None:
    job = world.register()
    world.change(job, schedule="30 * * * *")

    report = world.tick_at("12:00")
    world.tick_at("12:30")

    assert "replaced by schedule version" in joined_notes(report)
    assert world.sent == ["report 12:30"]
    assert times(world.entries) == ["13:30"]


def test_a_deleted_job_does_not_fire(world: World) -> None:
    job = world.register()
    world.delete(job)

    world.tick_at("12:00")

    assert (world.sent, world.entries) == ([], [])


def test_a_version_owns_what_was_due_before_its_change_however_late_it_is_seen(
    world: World,
) -> None:
    job = world.register(schedule="* * * * *", misfire=RUN_ALL)
    world.tick_at("12:00")  # the last tick for six minutes
    world.at("12:05:30")
    world.change(job, schedule="30 * * * *")
    for second in range(8):
        world.tick_at(f"12:06:{second:02d}")

    assert [f"{m.key.scheduled_at:%H:%M}" for m in world.queue.log] == [
        f"12:{minute:02d}" for minute in range(6)
    ]
    assert [e.at for e in world.entries] == [at("12:30")]


def test_an_occurrence_removed_by_a_change_is_not_restored_by_the_next_change(
    world: World,
) -> None:
    job = world.register(schedule="0 * * * *")  # the first entry is for 12:00
    world.at("11:59:30")
    world.change(job, schedule="30 * * * *")
    world.at("12:00:00.4")
    world.change(job, schedule="45 * * * *")

    world.tick_at("12:00:01")

    assert world.sent == []
    assert [e.at for e in world.entries if e.at > at("12:01")] == [at("12:30"), at("12:45")]
