"""Sequences with dead runs, and their redrive."""

from __future__ import annotations

from typing import Any

from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.redrive_plan import RedriveAction, RedriveStep
from nextfire.domain.run import RunState
from tests.builders import at
from tests.unit.sequencing import ONE_ATTEMPT, after, chain, states
from tests.world import World

RUN, FOLLOW, KEEP = RedriveAction.RUN, RedriveAction.FOLLOW, RedriveAction.KEEP
DEAD, SKIPPED, SUCCEEDED = RunState.DEAD, RunState.SKIPPED, RunState.SUCCEEDED


def work(world: World, *, seconds: int = 30) -> None:
    world.advance_and_work(seconds=seconds)


def redrive(
    world: World, job: Job, link: str, *, downstream: bool = False, **more: Any
) -> dict[str, tuple[RedriveAction, str]]:
    key = world.run(job, "12:00").key
    return plan_of(
        world.sequences.redrive(key, link, downstream=downstream, reason="fixed", **more)
    )


def plan_of(steps: list[RedriveStep]) -> dict[str, tuple[RedriveAction, str]]:
    return {step.node.key.job.job_id: (step.action, step.reason) for step in steps}


def failed_middle(world: World) -> list[Job]:
    """Of four links the second dies; the others below it are skipped."""
    jobs = chain(world, "a", "b", "c", "d", **ONE_ATTEMPT)
    world.script()
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, *jobs) == [SUCCEEDED, DEAD, SKIPPED, SKIPPED]
    return jobs


def cleanup_after_failure(world: World) -> list[Job]:
    """A link dies, and so does its clean-up, which runs in any case; its report is skipped."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"), **ONE_ATTEMPT)
    cleanup = world.register("cleanup", **after("b", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    report = world.register("report", **after("cleanup"))
    world.script()
    world.script(exit_code=1)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, cleanup, report) == [SUCCEEDED, DEAD, DEAD, SKIPPED]
    return [a, b, cleanup, report]


def run_key(job: Job) -> RunKey:
    return job.run_key(at("12:00"))
