"""The audit of jobs that moved to another pool."""

from __future__ import annotations

from nextfire.domain.run import Run, RunState
from tests.builders import RUN_ALL
from tests.unit.auditing import audit, purge
from tests.world import World

BEGINNING = "11:59"


def test_a_job_that_has_left_a_pool_may_have_left_runs_in_its_queue(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    world.tick_at("12:00")
    world.change(job, target={"pool": "batch", "handler": "report"})
    world.tick_at("12:16")
    world.worker(pool="batch").work()
    assert world.queued == ["report 12:00"]

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 1)


BATCH = {"pool": "batch", "handler": "report"}


def redriven_in_another_pool(world: World) -> Run:
    """A run that died in the pool default and was redriven after its job moved to batch. At 12:40
    its message is in the queue of batch.
    """
    job = world.register(schedule="0 12 * * *", retryPolicy={"maxAttempts": 1})
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.at("12:10")
    world.change(job, target=BATCH)
    run = world.manage_runs.redrive(world.run(job, "12:00").key, None)
    world.tick()
    world.tick_at("12:40")
    assert len(world.queue.queues["batch"]) == 1
    return run


def test_a_redriven_run_waits_where_its_job_is_now(world: World) -> None:
    run = redriven_in_another_pool(world)

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 1)
    world.worker(pool="batch").work()
    assert world.runs.all[run.key].state is RunState.SUCCEEDED


def test_a_redriven_run_that_was_lost_is_sent_where_its_job_is_now(world: World) -> None:
    run = redriven_in_another_pool(world)
    purge(world)

    assert audit(world).revived == 1

    world.tick()
    world.worker(pool="batch").work()
    assert world.runs.all[run.key].state is RunState.SUCCEEDED


def test_a_run_on_request_may_wait_where_its_job_was(world: World) -> None:
    job = world.register(schedule="0 12 * * *")
    world.request_runs.run_now(job.key, payload=None, reason=None, request="r", asked_at=world.now)
    world.tick()
    world.change(job, target=BATCH)
    world.tick_at("12:20")
    world.worker(pool="batch").work()

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 1)


def test_what_was_taken_in_another_pool_has_overtaken_nothing(world: World) -> None:
    job = world.register(schedule="*/10 * * * *", overlap="QUEUE")
    world.tick_at("12:00")
    world.tick_at("12:10")
    world.at("12:15")
    world.change(job, target=BATCH)
    for time in ("12:20", "12:30", "12:40", "14:00"):
        world.tick_at(time)
        world.worker(pool="batch").work()
    assert len(world.queued) == 2

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 2)


def test_messages_of_another_pool_do_not_hide_a_lost_run(
    world: World,
) -> None:
    world.register()
    world.register("other", target={"pool": "batch", "handler": "report"})
    world.tick_at("12:00")
    world.queue.queues["default"]._messages.clear()  # noqa: SLF001 — the system does not notice
    world.tick_at("12:16")

    report = audit(world)

    assert (report.resent, report.waiting) == (1, 1)
