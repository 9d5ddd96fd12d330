"""The audit removes the ids of deleted children from their parents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from nextfire.usecases.forget_children import FEW_CHILDREN
from tests.unit.auditing import audit
from tests.unit.sequencing import after
from tests.world import World

BEGINNING = "11:58:30"
MANY = [f"c{number}" for number in range(FEW_CHILDREN + 1)]


def family(world: World, names: list[str]) -> tuple[Job, list[Job]]:
    parent = world.register("a", payload={"big": "one"})
    return parent, [world.register(name, **after("a")) for name in names]


def test_ids_of_deleted_children_are_removed(world: World) -> None:
    parent, children = family(world, MANY)
    world.delete(children[0])
    world.change(children[1], after=[], type="MANUAL")
    before = world.job(parent.key)

    world.advance(hours=2)
    report = audit(world)

    now = world.job(parent.key)
    assert now == replace(before, revision=before.revision + 1, children=tuple(MANY[2:]))
    assert (report.repaired, report.notes) == (0, [])


def test_a_parent_that_was_just_changed_keeps_its_children(world: World) -> None:
    """A request may be about to store a child that it lists already."""
    parent, children = family(world, MANY)
    world.delete(children[0])
    world.advance(minutes=59)

    audit(world)

    assert world.job(parent.key).children == tuple(MANY)


def test_few_children_are_not_read(world: World) -> None:
    parent, children = family(world, MANY[1:])
    world.delete(children[0])
    world.advance(hours=2)

    audit(world)

    assert world.job(parent.key).children == tuple(MANY[1:])


def test_a_child_that_a_stale_read_does_not_show_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, children = family(world, MANY)
    read = world.jobs.get_many

    def stale(keys: Collection[JobKey], *, consistent: bool = False) -> Mapping[JobKey, Any]:
        found = read(keys, consistent=consistent)
        return {key: job for key, job in found.items() if consistent or key != children[0].key}

    monkeypatch.setattr(world.jobs, "get_many", stale)
    world.advance(hours=2)

    audit(world)

    assert world.job(parent.key).children == tuple(MANY)


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "lost its edge"])
def test_a_child_that_is_stored_again_while_its_id_is_removed_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """The request reads that its parent lists it, and stores it after the audit."""
    parent, children = family(world, MANY)
    child = children[0]
    if deleted:
        world.delete(child)
    else:
        world.change(child, after=[], type="MANUAL")
    world.advance(hours=2)
    world.tick()
    world.tick()  # the watcher of the reused id is not behind
    store = "create" if deleted else "update"
    write = getattr(world.jobs, store)

    def later(job: Job, *given: Any, **named: Any) -> Any:
        if job.key == child.key:
            monkeypatch.setattr(world.jobs, store, write)
            audit(world)
        return write(job, *given, **named)

    monkeypatch.setattr(world.jobs, store, later)
    if deleted:
        world.register(child.key.job_id, **after("a"))
    else:
        world.change(child, **after("a"))
    world.tick_and_work("14:00")
    world.tick_and_work("14:00:01")

    assert set(MANY) == set(world.job(parent.key).children)
    assert world.run(world.job(child.key), "14:00").state is RunState.SUCCEEDED


def test_children_that_cannot_be_read_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, children = family(world, MANY)
    world.delete(children[0])
    world.advance(hours=2)
    get_many = world.jobs.get_many

    def throttled(keys: Any, **named: Any) -> Mapping[Any, Any]:
        return dict.fromkeys(get_many(keys, **named), ValueError("does not decode"))

    monkeypatch.setattr(world.jobs, "get_many", throttled)
    audit(world)

    assert world.job(parent.key).children == tuple(MANY)
