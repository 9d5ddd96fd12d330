"""Which runs of its parents a job with a schedule waits for, and which schedules cannot meet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.audit import Comparison
from nextfire.domain.audit_repairs import restored
from nextfire.domain.awaited import (
    MAX_AWAITED,
    Above,
    ParentRun,
    awaited,
    interval_start,
    logical_times,
    occurrence_fed,
    recent_occurrences,
    states_of,
)
from nextfire.domain.due import FireEntry
from nextfire.domain.edges import Edge, Which
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.run import Run
from nextfire.domain.trigger_rules import ParentState
from nextfire.usecases.read_parents import read_parents
from tests.builders import a_definition, a_job, at, run_key
from tests.unit.timed import cron
from tests.world import World

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
BERLIN = {"timezone": "Europe/Berlin"}


def job(name: str, **fields: Any) -> Job:
    return a_job(name, definition=a_definition(**fields), since=MARCH)


def utc(day: int, hour: int, month: int = 3) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


@pytest.fixture
def above() -> Above:
    return {"a": job("a", schedule="0 * * * *")}


@pytest.mark.parametrize(
    ("month", "day", "count"), [(3, 29, 23), (10, 25, 25), (3, 28, 24), (3, 30, 24)]
)
def test_a_daily_child_of_an_hourly_parent_over_a_clock_change(
    above: Above, month: int, day: int, count: int
) -> None:
    """The child runs at midnight in Berlin: the day before has 23, 24 or 25 hours."""
    child = job("b", **cron("0 0 * * *", which="all"), **BERLIN)
    midnight = datetime(2026, month, day, tzinfo=UTC) + timedelta(days=1)
    midnight -= timedelta(hours=2 if month == 3 and day > 28 else 1)

    [found] = awaited(child, midnight, above)

    assert len(found.times) == count
    first = midnight - timedelta(hours=count - 1)
    assert found.times == tuple(first + timedelta(hours=hour) for hour in range(count))


def test_the_first_interval_begins_when_the_job_was_created(above: Above) -> None:
    child = job("b", **cron("0 6 * * *", which="all"))

    assert interval_start(child, utc(1, 6)) == MARCH
    [found] = awaited(child, utc(1, 6), above)
    assert [*found.times] == [utc(1, hour) for hour in range(1, 7)]
    assert interval_start(child, utc(9, 6)) == utc(8, 6)


@pytest.mark.parametrize("schedule", ["*/7 * * * *", "0 3 * * *", "0 3 1 * *", "0 3 1 1 *"])
def test_the_start_of_an_interval_is_the_occurrence_before(schedule: str) -> None:
    child = job("b", **cron(schedule, which="all"))
    times = logical_times(child, {}, MARCH, MARCH + timedelta(days=900), limit=300)

    for before, after in zip([MARCH, *times], times, strict=False):
        assert interval_start(child, after) == before


def test_the_start_of_a_long_interval_is_computed() -> None:
    """For a job of seconds after a hundred dates without occurrences, not from all before them."""
    holidays = [f"{MARCH + timedelta(days=1_000 + n):%Y-%m-%d}" for n in range(100)]
    when = {"type": "INTERVAL", "schedule": "PT1S", "exceptDates": holidays}
    child = job("b", **when, after=[{"job": "a", "which": "all"}])
    after = MARCH + timedelta(days=1_100)

    assert interval_start(child, after) == after - timedelta(days=100, seconds=1)


def test_a_run_of_a_parent_belongs_to_one_occurrence_of_the_child(above: Above) -> None:
    child = job("b", **cron("0 0 * * *", which="all"), **BERLIN)
    edge = child.definition.after[0]
    waited = {
        each: at
        for at in (utc(28, 23), utc(29, 22), utc(30, 22), utc(31, 22))
        for each in awaited(child, at, above)[0].times
    }

    assert all(occurrence_fed(child, edge, each) == at for each, at in waited.items())
    assert len(waited) == 24 + 23 + 24 + 24


def test_same_belongs_to_the_occurrence_at_that_instant_only(above: Above) -> None:
    child = job("b", **cron("0 6 * * *"))
    edge = child.definition.after[0]

    assert occurrence_fed(child, edge, utc(5, 6)) == utc(5, 6)
    assert occurrence_fed(child, edge, utc(5, 7)) is None
    assert awaited(child, utc(5, 6), above)[0].times == (utc(5, 6),)


def test_the_runs_of_a_parent_without_a_schedule_are_those_of_its_parents(above: Above) -> None:
    every = {"type": "AFTER", "schedule": None}
    jobs = {
        **above,
        "c": job("c", schedule="30 * * * *"),
        "m": job("m", type="MANUAL", schedule=None),
        "d": job("d", after=[{"job": name} for name in ("a", "c", "m")], **every),
    }

    found = logical_times(jobs["d"], jobs, utc(5, 0), utc(5, 2))

    assert [isoformat(each)[11:16] for each in found] == ["00:30", "01:00", "01:30", "02:00"]
    assert logical_times(jobs["m"], jobs, utc(5, 0), utc(5, 2)) == []


def test_each_time_counts_once_however_many_paths_lead_to_it() -> None:
    every = {"type": "AFTER", "schedule": None}
    branches = [f"b{number}" for number in range(8)]
    jobs = {
        "a": job("a", schedule="*/5 * * * *"),
        **{name: job(name, after=[{"job": "a"}], **every) for name in branches},
        "d": job("d", after=[{"job": name} for name in branches], **every),
    }

    found = logical_times(jobs["d"], jobs, utc(5, 0), utc(6, 0))

    assert len(found) == 24 * 12
    assert found[-1] == utc(6, 0)


def test_the_times_of_a_parent_with_a_schedule_are_its_own(above: Above) -> None:
    parent = job("b", **cron("0 6 * * *"))

    assert logical_times(parent, {**above, "b": parent}, utc(5, 0), utc(6, 0)) == [utc(5, 6)]


def test_a_run_with_too_many_parents_does_not_start_without_the_last_ones() -> None:
    """The parent became minutely after the edge had been checked."""
    world = World("12:00")
    parent = world.register("a", schedule="* * * * *")
    child = replace(
        job("b", **cron("0 0 * * *", which="all")), created_at=MARCH, effective_from=MARCH
    )
    parent = replace(parent, created_at=MARCH, effective_from=MARCH)
    world.jobs.items[parent.key] = parent
    first = utc(5, 0) + timedelta(minutes=1)
    for number in range(MAX_AWAITED + 100):
        key = parent.run_key(first + number * timedelta(minutes=1))
        world.runs.skip(Run.skipped(key, "late", utc(6, 0)))

    found = read_parents(world.jobs, world.runs, child, utc(6, 0))

    assert len(found) == MAX_AWAITED + 1
    assert [each for each in found if each.run is None] == [found[-1]]


def test_a_range_record_is_that_of_the_runs_it_covers_only() -> None:
    world = World("12:00")
    a = world.register("a", schedule="*/20 * * * *")
    b = world.register("b", **cron("0 * * * *", which="all"))
    first, last = at("12:20"), at("12:40")
    key = a.run_key(first)
    world.runs.skip(Run.skipped(key, "late", last, covered_to=last, covered=2))

    found = read_parents(world.jobs, world.runs, b, at("13:00"))

    skipped, waiting = ParentState.SKIPPED, ParentState.WAITING
    assert [each.state for each in found] == [skipped, skipped, waiting]


def test_a_range_that_covers_the_run_of_a_parent_stands_for_it() -> None:
    world = World("12:00")
    parent = world.register("a", schedule="0 * * * *")
    child = replace(job("b", **cron("0 * * * *")), created_at=MARCH, effective_from=MARCH)
    key = parent.run_key(utc(5, 6))
    row = Run.skipped(key, "late", utc(5, 9), covered_to=utc(5, 8), covered=3)
    world.runs.skip(row)

    found = [read_parents(world.jobs, world.runs, child, utc(5, hour)) for hour in (8, 9)]

    assert [[each.run for each in parents] for parents in found] == [[row], [None]]


def test_recent_occurrences_may_still_wait() -> None:
    child = job("b", joinTimeoutSec=7_200, **cron("0 * * * *", which="latest", withinSec=60))

    assert recent_occurrences(child, utc(5, 3), limit=9) == [utc(5, 2), utc(5, 3)]
    assert recent_occurrences(child, utc(5, 3), limit=1) == [utc(5, 3)]
    assert recent_occurrences(child, MARCH, limit=9) == []


def test_each_run_has_a_state_and_a_name() -> None:
    edge = Edge(job="a", which=Which.ALL)
    record = Run.skipped(run_key(job_id="a"), "late", MARCH)
    parents = [ParentRun(edge, utc(5, 1), record), ParentRun(edge, utc(5, 2), None)]

    assert states_of(parents) == {
        "a at 2026-03-05T01:00:00Z": ParentState.SKIPPED,
        "a at 2026-03-05T02:00:00Z": ParentState.WAITING,
    }


# What is rejected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (cron("0 * * * *", which="latest"), "`latest` needs withinSec"),
        (cron("0 * * * *", withinSec=60), "withinSec is only for `latest`"),
        ({"type": "MANUAL", "schedule": None, "after": [{"job": "a"}]}, "has no parents"),
        (
            {"type": "AFTER", "schedule": None, "after": [{"job": "a", "which": "all"}]},
            "`all` of a needs a schedule",
        ),
        (
            cron("0 * * * *", which="latest", withinSec=60) | {"triggerRule": "ANY_FAILED"},
            "ANY_FAILED never holds",
        ),
        (
            {"type": "CRON", "schedule": "0 * * * *"}
            | {"after": [{"job": f"p{number}"} for number in range(101)]},
            "at most 100 parents",
        ),
    ],
)
def test_edges_that_mean_nothing_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        a_definition(**fields)


@pytest.mark.parametrize(
    ("parent", "child", "message"),
    [
        ({"schedule": "0 * * * *"}, cron("30 * * * *"), "does not run at 2026-05-24T12:30:00Z"),
        ({"type": "MANUAL", "schedule": None}, cron("0 * * * *"), "does not run at"),
        (
            {"type": "MANUAL", "schedule": None},
            cron("0 * * * *", which="all"),
            "has no scheduled run until",
        ),
        (
            {"type": "INTERVAL", "schedule": "PT1S"},
            cron("0 * * * *", which="all"),
            "has more than 1,000 runs between",
        ),
        ({"schedule": "0 0 * * *"}, cron("0 0 1 */4 *", which="all"), "more than 80 days apart"),
        (
            {"schedule": "0 0 * * *"},
            {**cron("0 0 1 */2 *", which="all"), "joinTimeoutSec": 30 * 86_400},
            "more than 80 days apart, with joinTimeoutSec",
        ),
    ],
)
def test_schedules_that_cannot_meet_are_rejected(
    parent: dict[str, Any], child: dict[str, Any], message: str
) -> None:
    world = World("12:00")
    world.register("a", **parent)

    with pytest.raises(InvalidInputError, match=message):
        world.register("b", **child)


def test_a_change_that_makes_schedules_miss_each_other_is_rejected() -> None:
    world = World("12:00")
    a = world.register("a", schedule="0 * * * *")
    b = world.register("b", **cron("0 13 * * *"))

    with pytest.raises(InvalidInputError, match="does not run at"):
        world.change(b, schedule="30 13 * * *")
    with pytest.raises(InvalidInputError, match="does not run at"):
        world.register("c", **cron("30 13 * * *"))
    parent = world.jobs.get(a.key)
    assert parent is not None
    assert parent.children == ("b",), "a rejected job must not become a child"
    assert world.change(b, labels={"team": "data"}).revision == 2


def test_only_occurrences_that_max_runs_allows_are_compared() -> None:
    world = World("12:00")
    world.register("a", schedule="0 13 * * *", maxRuns=2)

    world.register("b", maxRuns=2, **cron("0 13 * * *"))
    world.register("once", maxRuns=1, **cron("0 0 1 */4 *", which="all"))
    with pytest.raises(InvalidInputError, match="does not run at 2026-05-26T13:00:00Z"):
        world.register("c", maxRuns=3, **cron("0 13 * * *"))


def test_runs_before_an_edge_was_added_count_for_max_runs() -> None:
    world = World("12:00")
    world.register("a", type="ONCE", schedule="2026-05-24T14:00:00Z")
    b = world.register("b", type="INTERVAL", schedule="PT1H", maxRuns=2)
    world.tick_at("13:00")

    assert world.change(b, after=[{"job": "a"}]).revision == 2


def test_an_edge_that_is_added_is_checked_in_the_phase_of_its_job() -> None:
    world = World("12:00")
    hourly = {"type": "INTERVAL", "schedule": "PT1H"}
    world.register("a", **hourly)
    b = world.register("b", **hourly)
    world.tick_at("12:10")
    c = world.register("c", **hourly)

    world.tick_at("12:30")
    assert world.change(b, after=[{"job": "a"}]).revision == 2
    world.tick_at("13:00")
    with pytest.raises(InvalidInputError, match="does not run at 2026-05-24T13:10:00Z"):
        world.change(c, after=[{"job": "a"}])


@pytest.mark.parametrize("edges", [{}, cron("0 0 * * *", which="latest", withinSec=60)])
def test_an_audit_takes_no_waiting_occurrence_for_missed(edges: dict[str, Any]) -> None:
    """It restores a lost FIRE entry. Those before it, for days without a record, may wait."""
    child = job("b", **{"schedule": "0 0 * * *", **edges})
    following = child.fire_entry(utc(9, 0), child.ordinal(utc(9, 0)))

    found = restored(child, Comparison(utc(8, 12)), following, utc(5, 0), queue_is_empty=True)

    assert isinstance(found, FireEntry)
    assert found.occurs_at == (utc(9, 0) if edges else utc(6, 0))
