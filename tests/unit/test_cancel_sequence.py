"""Cancel of a run and of all runs below it in its sequence."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from nextfire.domain.cancel_plan import CancelAction, CancelStep
from nextfire.domain.edges import MAX_PARENTS
from nextfire.domain.errors import ConflictError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import MAX_CHILDREN, Job
from nextfire.domain.run import RunState
from nextfire.usecases import read_sequence
from tests.builders import at
from tests.unit.sequencing import after, chain, states
from tests.world import World, started

BEGINNING = "11:58:30"

CANCEL, KEEP = CancelAction.CANCEL, CancelAction.KEEP
CANCELLED, SUCCEEDED = RunState.CANCELLED, RunState.SUCCEEDED


def key(job: Job, time: str = "12:00") -> RunKey:
    return job.run_key(at(time))


def plan_of(steps: list[CancelStep]) -> dict[str, tuple[CancelAction, str]]:
    return {step.node.key.job.job_id: (step.action, step.reason) for step in steps}


def test_what_has_ended_stays_and_what_waits_never_starts(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c")
    world.tick_at("12:00")
    world.worker().work_one()

    done = plan_of(world.cancel_sequence.cancel(key(a), "wrong input"))

    assert done == {
        "a": (KEEP, "has ended: SUCCEEDED"),
        "b": (CANCEL, "has no run yet: it will not start"),
        "c": (CANCEL, "has no run yet: it will not start"),
    }
    world.worker().work()
    assert states(world, a, b, c) == [SUCCEEDED, CANCELLED, CANCELLED]
    assert world.run(b, "12:00").reason == "wrong input"
    assert len(world.runner.calls) == 1


def test_a_sequence_of_which_a_part_cannot_be_read_stays_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = chain(world, "a", "b", "c")
    world.tick_at("12:00")
    read = world.jobs.get_many

    def throttled(keys: Any, **options: Any) -> Any:
        errors = dict.fromkeys({b.key} & {*keys}, UnavailableError("throttled"))
        return {**read(keys, **options), **errors}

    monkeypatch.setattr(world.jobs, "get_many", throttled)
    with pytest.raises(UnavailableError, match="throttled"):
        world.cancel_sequence.cancel(key(a), "wrong input")
    world.faults.refuse("runs.find")
    with pytest.raises(UnavailableError):
        world.cancel_sequence.cancel(key(a), "wrong input")

    monkeypatch.undo()
    world.worker().work()
    assert states(world, a, b, c) == [SUCCEEDED] * 3


def test_a_running_link_is_asked_to_end_and_its_clean_up_does_not_start(world: World) -> None:
    a = world.register("a")
    other = world.register("other", **after("a"))
    b = world.register("b", **after("a"))
    cleanup = world.register("cleanup", **after("b", triggerRule="ALL_DONE"))
    world.tick_at("12:00")
    world.worker().work_one()
    done: dict[str, Any] = {}

    def cancel() -> None:
        if not done:
            done.update(plan_of(world.cancel_sequence.cancel(key(b), None)))
            world.advance(seconds=5)  # the worker checks for a cancel every 4 s

    world.script()
    world.script(meanwhile=cancel)
    world.worker().work()

    assert done["b"] == (CANCEL, "is running: its worker is asked to end it")
    assert done["other"][0] is KEEP
    assert states(world, a, other, b, cleanup) == [SUCCEEDED, SUCCEEDED, CANCELLED, CANCELLED]


def test_a_run_that_waits_for_its_retry_is_cancelled_at_once(world: World) -> None:
    a, b = chain(world, "a", "b")
    world.script(exit_code=1)
    world.tick_and_work("12:00")

    done = plan_of(world.cancel_sequence.cancel(key(a), None))

    assert done["a"] == (CANCEL, "waits: it will not start")
    assert states(world, a, b) == [CANCELLED, CANCELLED]


def test_a_plan_changes_nothing(world: World) -> None:
    a, *_ = chain(world, "a", "b")
    world.tick_at("12:00")
    world.worker().work_one()
    before = dict(world.runs.all)

    assert plan_of(world.cancel_sequence.plan(key(a)))["b"][0] is CANCEL

    assert world.runs.all == before


def test_an_instant_at_which_nothing_was_due_is_not_found(world: World) -> None:
    a, b = chain(world, "a", "b")

    for unknown in (key(a, "11:30"), key(b, "11:30"), key(a, "13:00")):
        with pytest.raises(NotFoundError):
            world.cancel_sequence.cancel(unknown, None)

    assert world.runs.all == {}


def test_an_occurrence_that_was_sent_is_cancelled_with_all_below(world: World) -> None:
    jobs = chain(world, "a", "b", "c")
    world.tick_at("12:00")

    world.cancel_sequence.cancel(key(jobs[0]), None)
    world.worker().work()

    assert states(world, *jobs) == [CANCELLED] * 3
    assert world.runner.calls == []


def test_a_cancel_that_dies_anywhere_is_completed_by_a_repetition() -> None:
    for calls in range(50):
        world = started(BEGINNING)
        jobs = chain(world, "a", "b", "c", "d")
        world.tick_at("12:00")
        world.worker().work_one()
        killed = world.dies(calls, partial(world.cancel_sequence.cancel, key(jobs[1]), None))

        world.cancel_sequence.cancel(key(jobs[1]), None)
        world.worker().work()

        assert states(world, *jobs) == [SUCCEEDED, *[CANCELLED] * 3], calls
        if not killed:
            assert calls > 5
            return
    raise AssertionError("the cancel never finished")


def test_a_fan_out_of_the_permitted_width_with_its_join_is_read_as_a_whole() -> None:
    assert max(MAX_CHILDREN, MAX_PARENTS) + 2 < read_sequence.MAX_NODES


def test_a_sequence_that_is_not_read_as_a_whole_is_not_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = chain(world, "a", "b", "c")
    world.tick_at("12:00")
    monkeypatch.setattr(read_sequence, "MAX_NODES", 3)

    with pytest.raises(ConflictError, match="has 3 jobs or more"):
        world.cancel_sequence.cancel(key(a), "wrong input")
    with pytest.raises(ConflictError, match="has 3 jobs or more"):
        world.sequences.plan(key(a), "b", downstream=True)

    world.worker().work()
    assert states(world, a, b) == [SUCCEEDED, SUCCEEDED]


def test_deleted_children_leave_room_for_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, *gone = (world.register("a"), *(world.register(f"a{n}", **after("a")) for n in range(4)))
    children = [world.register(name, **after("a")) for name in "bc"]
    for job in gone:
        world.delete(job)
    world.tick_at("12:00")
    monkeypatch.setattr(read_sequence, "MAX_NODES", 4)

    world.cancel_sequence.cancel(key(a), "wrong input")
    world.worker().work()

    assert states(world, a, *children) == [CANCELLED] * 3


def test_an_occurrence_that_a_range_covers_keeps_its_only_record(world: World) -> None:
    """It has ended as SKIPPED with the others, before the run that was sent instead of them."""
    a = world.register(type="CRON", schedule="* * * * *", misfire={"policy": "RUN_LATEST"})
    world.tick_at("12:10")
    world.worker().work()
    [covering] = (run for run in world.runs.items.values() if run.covered > 1)
    assert covering.key.scheduled_at < at("12:05") < covering.covers_until
    before = {**world.runs.items}

    done = plan_of(world.cancel_sequence.cancel(key(a, "12:05"), None))

    assert done == {a.key.job_id: (KEEP, "has ended: SKIPPED")}
    assert world.runs.items == before
