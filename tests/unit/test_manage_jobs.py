"""Creating, changing and deleting jobs together with their first due entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.instants import to_ms
from nextfire.domain.occurrences import JobState
from tests.builders import a_fire, at, job_key
from tests.world import World

# Registering


def test_a_job_is_stored_with_its_first_occurrence(world: World) -> None:
    job = world.register()

    assert world.job(job.key) == job
    assert (job.revision, job.state, job.effective_from) == (1, JobState.ACTIVE, at("11:59"))
    assert job.schedule_version == to_ms(at("11:59"))
    assert world.entries == [a_fire(job, at("12:00"))]


def test_the_id_of_a_living_job_is_refused(world: World) -> None:
    job = world.register()

    with pytest.raises(ConflictError) as refused:
        world.register(schedule="5 * * * *")

    assert "already exists (ACTIVE)" in refused.value.problem
    assert "PATCH" in refused.value.remedy
    assert world.job(job.key) == job
    assert len(world.entries) == 1


def test_the_id_of_a_deleted_job_is_free(world: World) -> None:
    world.tick()
    old = world.register()
    world.delete(old)

    new = world.register(schedule="5 * * * *")

    assert new.uid != old.uid
    assert (new.revision, new.state) == (1, JobState.ACTIVE)
    assert world.job(new.key) == new


def test_tenants_do_not_share_ids(world: World) -> None:
    first = world.register(tenant="acme")
    second = world.register(tenant="other")

    assert (world.job(first.key), world.job(second.key)) == (first, second)


@pytest.mark.parametrize(
    ("fields", "field", "remedy"),
    [
        ({"target": {"pool": "gpu", "handler": "x"}}, "target.pool", "Available: batch, default."),
        ({"timeoutSec": 601}, "timeoutSec", "Use at most 600, or a pool of workers."),
        (
            {"payload": "x" * 64 * 1024},
            "payload",
            "Store the data in S3 and put its address into the payload.",
        ),
        (
            {"target": {"script": "s3://scripts/other/x.py"}},
            "target.script",
            "Upload it below s3://scripts/pools/default/acme/.",
        ),
        (
            {"type": "ONCE", "schedule": "2026-05-24T11:59:00Z"},
            "schedule",
            "Use an instant in the future.",
        ),
        ({"timezone": "Mars/Olympus"}, "timezone", "Use an IANA name"),
        ({"schedule": "0 0 30 2 *"}, "schedule", "Check the day of month and the month"),
        ({"type": "DELAY", "schedule": "P1Y"}, "schedule", "Write it like PT5S"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_field_value_and_remedy(
    world: World, fields: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        world.register(**fields)

    assert refused.value.field == field
    assert refused.value.remedy.startswith(remedy)
    assert refused.value.problem
    assert refused.value.value in str(refused.value)
    assert world.entries == []
    with pytest.raises(NotFoundError):
        world.job(job_key())


def test_values_at_the_limits_are_accepted(world: World) -> None:
    world.register("a", timeoutSec=600)
    world.register("b", timeoutSec=39_600, target={"pool": "batch", "handler": "x"})
    world.register("c", payload="x" * (64 * 1024 - 2))
    world.register("d", target={"script": "s3://scripts/acme/sub/x.py"})
    world.register("e", type="ONCE", schedule="2026-05-24T11:59:00.001Z")

    assert len(world.entries) == 5


def test_a_job_whose_storing_failed_is_not_there_at_all(world: World) -> None:
    world.due.refuses = lambda _: True

    with pytest.raises(UnavailableError):
        world.register()

    with pytest.raises(NotFoundError):
        world.job(job_key())
    assert world.entries == []


# Changing


def test_a_change_of_anything_but_when_keeps_version_and_chain(world: World) -> None:
    job = world.register()
    world.at("11:59:30")

    changed = world.change(job, payload={"n": 1}, timeoutSec=9, priority="LOW")

    assert (changed.revision, changed.updated_at) == (2, at("11:59:30"))
    assert (changed.schedule_version, changed.effective_from) == (
        job.schedule_version,
        job.effective_from,
    )
    assert world.job(job.key) == changed
    assert world.entries == [a_fire(job, at("12:00"))]


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "30 12 * * *"},
        {"schedule": "30 14 * * *", "timezone": "Europe/Berlin"},
        {"type": "ONCE", "schedule": "2026-05-24T12:30:00Z"},
    ],
)
def test_a_change_of_when_is_a_new_version_with_its_own_entry(
    world: World, fields: dict[str, Any]
) -> None:
    job = world.register()
    world.at("11:59:30")

    changed = world.change(job, **fields)

    assert changed.schedule_version > job.schedule_version
    assert changed.effective_from == at("11:59:30")
    assert a_fire(changed, at("12:30")) in world.entries


def test_a_change_at_the_due_second_loses_nothing_and_repeats_nothing(world: World) -> None:
    job = world.register()
    world.at("12:00:00")

    changed = world.change(job, schedule="0,1 * * * *")
    world.tick()
    world.tick_at("12:01")

    assert world.sent == ["report 12:00", "report 12:01"]
    assert world.entries == [a_fire(changed, at("13:00"))]


def test_two_changes_in_one_millisecond_are_two_versions(world: World) -> None:
    job = world.register()

    first = world.change(job, schedule="10 * * * *")
    second = world.change(job, schedule="20 * * * *")

    versions = [job.schedule_version, first.schedule_version, second.schedule_version]
    assert versions == sorted(set(versions))
    world.tick_at("12:20")
    assert world.sent == ["report 12:20"]


def test_a_writer_whose_clock_is_behind_moves_nothing_back(world: World) -> None:
    job = world.register()
    world.at("11:58:57")

    changed = world.change(job, schedule="30 * * * *")

    assert changed.schedule_version > job.schedule_version
    assert changed.effective_from == job.effective_from
    assert changed.updated_at == job.updated_at


def test_a_change_is_applied_on_top_of_a_concurrent_one(world: World) -> None:
    job = world.register()
    world.faults.call_before_next("jobs.update", lambda: world.change(job, priority="HIGH"))

    changed = world.change(job, timeoutSec=9)

    assert changed.revision == 3
    assert (changed.definition.timeout_sec, changed.definition.priority) == (9, "HIGH")


def test_a_change_that_never_wins_gives_up_and_changes_nothing(world: World) -> None:
    job = world.register()

    def competing_change() -> None:
        world.faults.call_before_next("jobs.update", competing_change)
        current = world.job(job.key)
        world.jobs.put(replace(current, revision=current.revision + 1))

    world.faults.call_before_next("jobs.update", competing_change)
    with pytest.raises(UnavailableError, match="being changed by other requests"):
        world.change(job, timeoutSec=9)

    assert world.job(job.key).definition == job.definition


def test_a_change_that_cannot_be_carried_out_changes_nothing(world: World) -> None:
    job = world.register()

    for fields in ({"schedule": "0 0 30 2 *"}, {"timeoutSec": 601}, {"timezone": "Mars/Olympus"}):
        with pytest.raises(InvalidInputError):
            world.change(job, **fields)

    assert world.job(job.key) == job
    assert len(world.entries) == 1


def test_a_completed_job_with_a_new_instant_is_active_again(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.worker().work_one()
    assert world.job(job.key).state is JobState.COMPLETED

    assert world.change(job, timeoutSec=9).state is JobState.COMPLETED
    changed = world.change(job, schedule="2026-05-24T13:00:00Z")
    world.tick_at("13:00")

    assert changed.state is JobState.ACTIVE
    assert world.sent == ["report 12:00", "report 13:00"]


def test_a_delay_restarts_when_it_is_changed(world: World) -> None:
    job = world.register(type="DELAY", schedule="PT10M")
    world.at("12:05")

    changed = world.change(job, schedule="PT20M")

    assert a_fire(changed, at("12:25")) in world.entries


# Deleting


def test_a_deleted_job_keeps_its_record_and_is_gone_for_changes(world: World) -> None:
    job = world.register()

    cancelled = world.delete(job)

    assert (cancelled.state, cancelled.revision) == (JobState.CANCELLED, 2)
    assert world.job(job.key) == cancelled
    with pytest.raises(NotFoundError):
        world.change(job, timeoutSec=9)
    with pytest.raises(NotFoundError):
        world.delete(job)


def test_what_was_due_before_the_delete_is_accounted_for(world: World) -> None:
    job = world.register()
    world.at("12:00:01")  # no tick since 12:00
    world.delete(job)

    world.tick_at("12:00:02")
    world.worker().work_one()

    assert world.sent == ["report 12:00"]
    assert world.run(job, "12:00").reason == "its job was deleted"


@pytest.mark.parametrize(
    "touch",
    [
        lambda world: world.job(job_key()),
        lambda world: world.manage.delete(job_key(), now=world.now),
        lambda world: world.manage.change(job_key(), lambda d: d, now=world.now),
    ],
    ids=["get", "delete", "change"],
)
def test_there_is_nothing_where_there_never_was_a_job(
    world: World, touch: Callable[[World], object]
) -> None:
    with pytest.raises(NotFoundError) as missing:
        touch(world)

    assert missing.value.identity == "report"
