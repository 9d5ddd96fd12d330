"""Manual runs next to ranges of missed occurrences, and in an audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nextfire.domain.audit import compare, spans
from nextfire.domain.due import DispatchEntry
from nextfire.domain.run import Run, RunState
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP, a_message, at
from tests.unit.auditing import audit, delete_due_entries, purge
from tests.unit.requested import MANUAL, run_now, stored
from tests.world import World

BEGINNING = "11:58:30"


def test_neither_misfire_nor_the_relevancy_window_applies(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP | {"relevancyWindowSec": 1})
    run = run_now(world, job)
    world.tick()
    world.at("12:30")
    settle(world)
    assert stored(world, run).state is RunState.SUCCEEDED
    assert_all_accounted_for(world, job, allow_late_starts=True)


def test_a_covering_range_does_not_affect_a_manual_run(world: World) -> None:
    """A watcher covers an outage. One manual run is requested before that, and one after."""
    job = world.register(**MINUTELY, misfire=RUN_LATEST)
    world.at("12:05:30")
    early = run_now(world, job, "early", asked_at=at("12:02:30.5"))
    world.at("12:09:30")
    world.tick()
    late = run_now(world, job, "late", asked_at=at("12:03:30.5"))
    settle(world)

    assert stored(world, early).state is stored(world, late).state is RunState.SUCCEEDED
    assert covered(world, job) == ["11:59-12:08 (10)"]
    assert "12:09" in ran(world, job)
    assert_all_accounted_for(world, job)


def test_it_hides_no_range_from_a_message_that_comes_late(world: World) -> None:
    """12:00 is sent and its watcher dies; the next watcher covers 12:00. Records of manual runs are
    between the range and the occurrence that is looked up.
    """
    job = world.register(schedule="*/2 * * * *", misfire=SKIP)
    world.at("12:11:30")
    world.tick()
    before = dict(world.runs.all)
    run_now(world, job, asked_at=at("12:03:30.5"))
    found = world.find_run.find(job.run_key(at("12:04")))
    assert isinstance(found, Run)
    assert found.key in before


def test_a_manual_run_inside_a_range_does_not_split_it(world: World) -> None:
    """Covered occurrences do not count as waiting, even if another record is inside the range."""
    job = world.register(overlap="REPLACE", misfire=SKIP, schedule="*/2 * * * *")
    world.at("12:41:30")
    world.tick()
    assert covered(world, job) == ["12:00-12:40 (21)"]
    run_now(world, job, asked_at=at("12:10:30.5"))

    world.tick()
    world.tick_at("12:42")

    assert [each.partition(" ")[2] for each in world.queued] == [
        "12:10:30",
        "12:42",
    ]


@pytest.mark.parametrize("ends", ["maxRuns", "paused", "completed"])
def test_a_manual_run_does_not_wait_for_occurrences_that_never_come(
    world: World, ends: str
) -> None:
    more: dict[str, Any] = {} if ends == "paused" else {"maxRuns": 2}
    job = world.register(overlap="QUEUE", **MINUTELY, **more)
    for minute in ("11:59", "12:00"):
        world.tick_at(minute)
        if ends == "completed":
            world.worker().work()
    if ends == "paused":
        world.pause(job)
    world.at("13:00:00.5")

    run = run_now(world, job)
    world.tick()
    world.worker().work()

    assert stored(world, run).state is RunState.SUCCEEDED


# The auditor


def test_the_chain_is_restored_after_what_was_due_not_after_what_was_asked_for(
    world: World,
) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_LATEST)
    delete_due_entries(world)
    world.at("12:19:30")
    run_now(world, job)
    world.tick()
    world.worker().work()
    world.at("12:40:30")
    world.tick()

    report = audit(world)
    settle(world)

    assert report.restored == 1
    assert covered(world, job) == ["12:00-12:35 (8)"]
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("deleted", [False, True])
def test_late_ones_do_not_read_the_records_of_all_before_them(
    world: World, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """Otherwise a pool that is a minute behind with many of a job would only get further behind."""
    job = world.register(**MANUAL)
    for second in range(40):
        world.advance(seconds=1)
        run_now(world, job, f"r{second}")
    world.tick()
    world.advance(minutes=2)
    if deleted:
        world.delete(job)
    between, read = world.runs.between, 0

    def counted(*args: Any, **named: Any) -> Iterator[Run]:
        nonlocal read
        for run in between(*args, **named):
            read += 1
            yield run

    monkeypatch.setattr(world.runs, "between", counted)
    world.worker().work()

    state = RunState.CANCELLED if deleted else RunState.SUCCEEDED
    assert [run.state for run in world.runs.all.values()] == [state] * 40
    assert read <= 5 * 40


def test_many_of_them_hide_no_range_from_a_message_that_comes_late(world: World) -> None:
    job = world.register(schedule="*/2 * * * *", misfire=SKIP)
    world.at("12:11:30")
    world.tick()
    for number in range(7):
        run_now(world, job, f"r{number}", asked_at=at(f"12:03:3{number}.5"))
    settle(world)
    assert covered(world, job) == ["12:00-12:10 (6)"]
    of_late = job.run_key(at("12:04"))
    world.queue.send([("default", a_message(of_late))])

    handled = world.worker().work_one()

    assert not handled.started
    assert of_late not in world.runs.all


def test_one_whose_message_is_lost_is_sent_again(world: World) -> None:
    job = world.register(**MANUAL)
    run = run_now(world, job, payload="7")
    world.tick()
    purge(world)
    world.advance(minutes=16)
    world.tick()

    assert audit(world).revived == 1
    settle(world)

    assert stored(world, run).state is RunState.SUCCEEDED
    assert [call.payload for call in world.runner.calls] == ["7"]


def test_a_run_on_request_that_was_taken_says_nothing_of_what_was_sent_before_it(
    world: World,
) -> None:
    """The message of 12:00 waits. A manual run that is sent later is behind it in their group, but
    a manual run with a later instant may have been sent first.
    """
    job = world.register(schedule="*/30 * * * *", overlap="QUEUE", misfire=RUN_ALL)
    world.at("12:00:10")
    run = run_now(world, job)
    (entry,) = [e for e in world.entries if isinstance(e, DispatchEntry)]
    (slot,) = [s for s, e in world.due.items.items() if e != entry]
    fire = world.due.items.pop(slot)
    world.tick()
    world.worker().work()
    assert stored(world, run).state is RunState.SUCCEEDED
    world.due.items[slot] = fire
    world.tick()
    world.at("13:01:10")

    found = compare(
        world.job(job.key),
        spans(world.job(job.key), at("11:59"), at("12:20")),
        [*world.runs.all.values()],
        now=world.now,
    )

    assert found.claimed_up_to is None
    assert [missing.first for missing in found.missing] == [at("12:00")]
