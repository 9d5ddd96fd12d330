"""The jobs above a job with a schedule and parents: reads of them are bounded."""

from __future__ import annotations

from collections import Counter

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey
from nextfire.usecases.read_parents import read_parents
from tests.builders import at
from tests.unit.timed import cron
from tests.world import World


def test_more_jobs_above_than_are_read_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("10:00")
    world.register("n0", schedule="0 * * * *")
    for number in range(1, 6):
        after = [{"job": f"n{number - 1}"}]
        world.register(f"n{number}", type="AFTER", schedule=None, after=after)
    monkeypatch.setattr("nextfire.usecases.read_parents.MAX_ABOVE", 5)
    child = {"type": "CRON", "schedule": "0 0 * * *"}

    with pytest.raises(InvalidInputError, match="need more than 5 jobs above"):
        world.register("b", **child, after=[{"job": "n5", "which": "all"}])
    world.register("b", **child, after=[{"job": "n4", "which": "all"}])


def joined_by_a(world: World) -> list[str]:
    """Register jobs with a schedule, and the job a after all of them."""
    names = [f"n{number}" for number in range(12)]
    for name in names:
        world.register(name, schedule="0 * * * *")
    world.register("a", type="AFTER", schedule=None, after=[{"job": name} for name in names])
    return names


def test_more_jobs_side_by_side_above_than_are_read_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("10:00")
    four = [{"job": name} for name in joined_by_a(world)[:4]]
    world.register("four", type="AFTER", schedule=None, after=four)
    monkeypatch.setattr("nextfire.usecases.read_parents.MAX_ABOVE", 5)

    with pytest.raises(InvalidInputError, match="need more than 5 jobs above"):
        world.register("b", **cron("0 0 * * *", which="all"))
    daily = {"type": "CRON", "schedule": "0 0 * * *"}
    world.register("b", **daily, after=[{"job": "four", "which": "all"}])


def test_the_jobs_above_are_read_in_batches_when_a_job_is_stored() -> None:
    world = World("10:00")
    joined_by_a(world)
    world.faults.calls.clear()

    world.register("b", **cron("0 0 * * *", which="all"))

    asked = Counter(world.faults.calls)
    assert asked["jobs.get"] == 1, "the parent, to note its child"
    assert asked["jobs.get_many"] == 4, "two levels of ancestors, and two of those with times"


@pytest.mark.parametrize("removed", [False, True])
def test_an_executor_reads_a_bounded_number_of_jobs_above(
    monkeypatch: pytest.MonkeyPatch,
    removed: bool,  # noqa: FBT001 — a parameter of the test
) -> None:
    world = World("10:00")
    names = joined_by_a(world)
    child = world.register("b", **cron("0 0 * * *", which="all"))
    if removed:  # they ended long ago
        for name in names:
            del world.jobs.items[JobKey(child.key.tenant, name)]
    monkeypatch.setattr("nextfire.usecases.read_parents.MAX_ABOVE", 5)
    jobs = world.faults.through(world.jobs, "jobs")
    world.faults.calls.clear()

    read_parents(jobs, world.runs, child, at("12:00"))

    assert world.faults.calls == ["jobs.get"] * 5
