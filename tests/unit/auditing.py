"""Audits of a system on fakes, and what is lost in it before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from nextfire.domain.due import DueEntry, FireEntry
from nextfire.domain.run import Run
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.audit_report import AuditReport
from tests.builders import at
from tests.fakes import InlineExecutor
from tests.world import POOLS, World

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def auditor(
    world: World,
    *,
    every: timedelta = DAY,
    pools: Collection[str] = POOLS,
    job_retention: timedelta | None = None,
) -> AuditJobs:
    return AuditJobs(
        jobs=world.faults.through(world.jobs, "jobs"),
        due=world.faults.through(world.due, "due"),
        runs=world.faults.through(world.runs, "runs"),
        queue=world.faults.through(world.queue, "queue"),
        control=world.faults.through(world.control, "control"),
        joins=world.faults.through(world.joins, "joins"),
        clock=world.clock,
        executor=InlineExecutor(),
        pools=set(pools),
        write_shards=world.shards,
        read_shards=world.shards,
        every=every,
        job_retention=job_retention,
    )


def audit(world: World, *, restart: bool = True) -> AuditReport:
    """Run a whole audit; with *restart* from its beginning."""
    total = AuditReport()
    for report in auditor(world).continue_audit(world.now + DAY, restart=restart):
        total += report
    return total


def advance_until(world: World, until: str) -> None:
    """Advance to *until* minute by minute with one watcher and one worker."""
    while world.now < at(until):
        world.tick()
        world.worker().work()
        world.clock.move_to(min(at(until), world.now.replace(second=0, microsecond=0) + MINUTE))
    world.tick()
    world.worker().work()


def purge(world: World) -> None:
    for queue in world.queue.queues.values():
        queue._messages.clear()  # noqa: SLF001 — the system does not notice


def forget(world: World, run: Run) -> None:
    world.runs.forget(run.key)


def delete_due_entries(world: World, kind: type[DueEntry] = FireEntry) -> int:
    """Delete all due entries of *kind* and return their number."""
    slots = [s for s, e in world.due.items.items() if isinstance(e, kind)]
    world.due.delete(slots)
    return len(slots)


def run_counts(world: World) -> Counter[str]:
    return Counter(call.environment["NEXTFIRE_EXECUTION_ID"] for call in world.runner.calls)


def fire_times(world: World) -> list[str]:
    return [f"{e.occurs_at:%H:%M}" for e in world.entries if isinstance(e, FireEntry)]
