"""The id of a deleted job is free once all that was due is sent."""

from __future__ import annotations

import pytest

from nextfire.domain.errors import ConflictError
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.idempotent_requests import IdempotentRequest
from tests.accounting import ran, settle
from tests.builders import at
from tests.unit.managing import EVERY_MINUTE, RUN_ALL, states
from tests.world import World


def test_the_id_of_a_deleted_job_is_free_once_all_that_was_due_is_sent(world: World) -> None:
    old = world.register(**EVERY_MINUTE)
    world.at("12:03:30")
    world.delete(old)
    world.at("12:03:31")

    with pytest.raises(ConflictError) as refused:
        world.register()

    assert "not on record yet" in refused.value.problem
    assert "Try again in a moment" in refused.value.remedy
    assert world.job(old.key).state is JobState.CANCELLED
    for _ in range(4):
        world.tick()
        world.advance(seconds=1)
    new = world.register()
    settle(world)
    gone = dict.fromkeys(["12:00", "12:01", "12:02", "12:03"], RunState.CANCELLED)
    assert states(world, old.uid) == gone
    assert world.job(new.key) == new


def test_the_id_of_a_job_deleted_in_the_second_it_was_due_is_not_free_before_that_is_sent(
    world: World,
) -> None:
    old = world.register(**EVERY_MINUTE)
    world.tick()
    world.at("12:00:00.2")
    world.delete(old)
    world.at("12:00:00.3")

    with pytest.raises(ConflictError):
        world.register()

    world.tick()
    world.register()
    settle(world)
    assert states(world, old.uid) == {"12:00": RunState.CANCELLED}


def test_an_entry_that_only_a_consistent_read_shows_keeps_the_id(world: World) -> None:
    world.tick()
    world.due.freeze()
    old = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.at("12:00:00.2")
    world.delete(old)

    with pytest.raises(ConflictError):
        world.register()


def test_the_id_of_a_deleted_job_is_kept_by_its_own_entries_alone(world: World) -> None:
    world.tick()
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:02Z"}
    world.register("other", type="ONCE", schedule="2026-05-24T12:00:01Z")
    due, later = world.register("due", **once), world.register("later", schedule="0 13 * * *")
    world.at("12:00:03")
    world.delete(due)
    world.delete(world.job(later.key))

    with pytest.raises(ConflictError):
        world.register("due")
    world.register("later")


def test_waiting_runs_reserve_the_id_of_a_deleted_job(world: World) -> None:
    """The cursor has passed the minute of the entry; the entry moved to a later bucket."""
    world.shares = Shares(backlogs={"default": 0})
    world.new_watcher()
    old = world.register(**EVERY_MINUTE)
    world.tick_at("12:00")
    world.delete(old)
    for _ in range(300):
        world.advance(seconds=1)
        world.tick()
    assert world.control.moved[0][0] > at("12:02")

    with pytest.raises(ConflictError):
        world.register()


def test_what_jitter_puts_off_keeps_the_id_of_a_deleted_job(world: World) -> None:
    old = world.register(type="CRON", schedule="0 * * * *", jitterSec=1800, **RUN_ALL)
    due_at = old.due_at(at("12:00"))
    assert due_at > at("12:01")
    world.at("12:00:30")
    world.delete(old)

    with pytest.raises(ConflictError) as refused:
        world.register()

    assert isoformat(due_at) in refused.value.problem
    world.clock.move_to(due_at)
    world.tick()
    world.register()


def test_an_occurrence_after_the_deletion_keeps_no_id(world: World) -> None:
    old = world.register(schedule="30 * * * *")
    world.tick()
    world.at("12:00")
    world.delete(old)

    new = world.register()

    assert world.job(new.key) == new


def test_the_id_of_a_deleted_job_is_reserved_while_watchers_are_hours_behind(world: World) -> None:
    old = world.register(schedule="30 * * * *")
    world.tick()
    world.delete(old)
    world.at("14:00")

    with pytest.raises(ConflictError):
        world.register()


def test_the_id_of_a_deleted_job_is_free_though_another_had_it_for_a_moment(world: World) -> None:
    world.tick()
    world.delete(world.register())
    world.advance(seconds=1)
    world.faults.call_before_next("due.read", lambda: world.delete(world.register()))

    job = world.register()

    assert world.job(job.key) == job


def test_one_of_two_concurrent_creates_gets_a_deleted_jobs_id(world: World) -> None:
    world.tick()
    old = world.register()
    world.delete(old)
    rivals: list[Job] = []
    world.faults.call_before_next("due.read", lambda: rivals.append(world.register()))

    with pytest.raises(ConflictError) as refused:
        world.register()

    assert "already exists (ACTIVE)" in refused.value.problem
    assert [world.job(old.key)] == rivals


def test_a_request_of_before_a_deletion_owns_nothing_of_the_former_job(world: World) -> None:
    old = world.register(schedule="* * * * *")
    asked = IdempotentRequest(at("11:59:58"), "seed", again=True)
    world.tick_and_work("12:00")
    world.at("12:00:30")
    world.delete(old)
    world.at("12:01:30")
    world.tick()

    new = world.manage.register(old.key, old.definition, uid="uid99999", now=world.now, asked=asked)

    assert new.effective_from == at("12:00:30.001")
    settle(world)
    assert ran(world, new)[0] == "12:01"
    assert ran(world, old) == ["12:00"]


@pytest.mark.parametrize("refused", [False, True])
def test_a_job_that_was_deleted_does_not_come_back_with_its_request(
    world: World, *, refused: bool
) -> None:
    asked = IdempotentRequest(world.now, "seed", again=True, refused=refused)
    mine = world.register(schedule="* * * * *")
    world.tick_at("12:00")
    world.delete(mine)
    world.at("12:00:30")
    other = world.register(schedule="0 * * * *")
    world.delete(other)
    settle(world)

    with pytest.raises(ConflictError, match="created and deleted after the first such request"):
        world.manage.register(mine.key, mine.definition, uid=mine.uid, now=world.now, asked=asked)

    assert world.job(mine.key).uid == other.uid
    assert world.job(mine.key).state is JobState.CANCELLED
