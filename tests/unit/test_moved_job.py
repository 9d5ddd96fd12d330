"""A job that moves to another pool. Executors of the former pool cannot read its scripts and
secrets; executors of the new pool cannot read files that runs left in the former one.
"""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from pydantic import ValidationError

from functions.api.job_requests import JobRequest
from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import RunFolder
from nextfire.domain.job import Job
from nextfire.domain.places import run_place
from nextfire.domain.ports.targets import Hold
from nextfire.domain.remedies import remedy_for
from nextfire.domain.run import RunState
from nextfire.domain.script import locate
from nextfire.domain.target import Target, TargetKind
from nextfire.usecases import execute_run
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.read_logs import ReadLogs
from tests.builders import LEASE, at, run_key
from tests.dispatched import dispatched
from tests.unit.calling import Calls
from tests.world import BUCKET, World

LARGE = b'"' + b"x" * 10_000 + b'"'


def move(world: World, job: Job, pool: str = "batch") -> Job:
    return world.change(job, target={"handler": "report", "pool": pool})


def test_its_run_is_passed_on_to_the_new_pool(world: World) -> None:
    job = dispatched(world)
    move(world, job)

    handled = world.worker("a").work_one()
    world.tick()
    world.worker("b", pool="batch").work_one()

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert handled.reason == "its job has moved to pool batch"
    [call] = world.runner.calls
    assert call.source == b"# s3://scripts/pools/batch/acme/report.py\n"
    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.dispatch) == (RunState.SUCCEEDED, 1, 2)
    assert [(each.worker, each.pool) for each in run.attempts] == [("b", "batch")]


def test_a_run_that_was_passed_on_too_late_to_be_of_use_is_skipped(world: World) -> None:
    job = dispatched(world, misfire={"relevancyWindowSec": 60})
    move(world, job)
    world.worker("a").work_one()
    world.advance(minutes=45)
    world.tick()

    handled = world.worker("b", pool="batch").work_one()

    assert handled.skipped
    assert world.run(job, "12:00").state is RunState.SKIPPED
    assert "relevancyWindowSec is 60" in (world.run(job, "12:00").reason or "")
    assert world.runner.calls == []


def test_a_retry_is_not_skipped_however_late_it_is(world: World) -> None:
    job = dispatched(world, misfire={"relevancyWindowSec": 60}, retryPolicy={"maxAttempts": 2})
    world.script(exit_code=1)
    world.worker("a").work_one()
    world.advance(minutes=45)
    world.tick()
    world.runs.skip = lambda _: pytest.fail("only one read is needed")  # type: ignore[method-assign,assignment]

    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_passing_a_run_on_is_not_a_delay_of_the_watcher(world: World) -> None:
    move(world, dispatched(world))
    world.advance(minutes=10)

    world.worker("a").work_one()

    [dispatch] = [each for each in world.due.entries if isinstance(each, DispatchEntry)]
    assert dispatch.held


def test_a_run_that_has_ended_is_settled_and_not_passed_on(world: World) -> None:
    job = dispatched(world)
    worker = world.worker("a")
    first = worker.receive()
    assert first is not None
    worker.handle(first)
    move(world, job)

    handled = worker.handle(first)

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert "moved" not in handled.reason
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_executors_with_a_wrong_pool_do_not_pass_runs_around_forever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors on the queue `default` are configured for the pool `batch`."""
    monkeypatch.setattr(execute_run, "_MAX_MOVES", 20)
    dispatched(world)

    def handle() -> Handled:
        delivery = world.worker("a").receive()
        assert delivery is not None
        return world.worker("a", pool="batch").handle(delivery)

    for _ in range(20):
        assert handle().disposition is Disposition.ACKNOWLEDGE
        world.tick()

    for _ in range(2):
        handled = handle()

        assert (handled.disposition, handled.quarantined) == (Disposition.ACKNOWLEDGE, True)
        assert "NEXTFIRE_POOL=default" in handled.reason
        world.advance(seconds=59)
        world.tick()
        assert world.queued == []
        world.advance(seconds=2)
        world.tick()


def test_a_run_that_waited_for_long_before_its_job_moved_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute_run, "_MAX_MOVES", 20)
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    job, calls = world.register(**once), Calls()
    world.call_targets[TargetKind.SCRIPT] = calls
    world.tick_at("12:00")
    for _ in range(21):
        calls.hold = Hold(world.now + timedelta(seconds=30), "down")
        world.worker("a").work_one()
        world.advance(seconds=31)
        world.tick()
    del world.call_targets[TargetKind.SCRIPT]
    move(world, job)

    world.worker("a").work_one()
    world.advance(seconds=61)
    world.tick()
    world.worker("b", pool="batch").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_message_that_comes_twice_runs_it_once(world: World) -> None:
    job = dispatched(world)
    move(world, job)
    first = world.worker("a").receive()
    assert first is not None
    world.worker("a").handle(first)
    world.tick()
    world.worker("a").handle(first)
    world.tick()

    world.worker("b", pool="batch").work()

    assert len(world.runner.calls) == 1
    assert world.run(job, "12:00").attempt == 1


def test_the_message_stays_until_the_dispatch_is_stored(world: World) -> None:
    move(world, dispatched(world))
    world.due.put = lambda entries, now: set()  # type: ignore[method-assign] # noqa: ARG005

    with pytest.raises(UnavailableError):
        world.worker("a").work_one()

    assert world.queued == ["report 12:00"]


def retried_after_a_move(world: World, *, saves: bytes) -> Job:
    """A job that moved after an attempt that saved a checkpoint and failed."""
    job = dispatched(world, retryPolicy={"maxAttempts": 2})
    world.script(exit_code=1, saves=saves)
    world.worker("a").work_one()
    move(world, job)
    world.advance(seconds=30)
    world.tick()
    world.worker("a").work_one()
    world.tick()
    world.worker("b", pool="batch").work_one()
    return job


def test_its_retry_goes_to_the_new_pool(world: World) -> None:
    job = retried_after_a_move(world, saves=b"1")

    run = world.run(job, "12:00")
    assert run.state is RunState.SUCCEEDED
    assert [each.pool for each in run.attempts] == ["default", "batch"]
    assert world.runner.found == [None, b"1"]


def test_a_large_checkpoint_that_the_old_pool_has_is_not_silently_lost(world: World) -> None:
    job = retried_after_a_move(world, saves=LARGE)

    run = world.run(job, "12:00")
    assert run.checkpoint is not None
    assert run.checkpoint.file is not None
    assert (run.state, len(world.runner.calls)) == (RunState.DEAD, 1)
    missing = RunFolder(run.key, "batch")
    assert f"{run_place(missing)}{run.checkpoint.file}" in (run.reason or "")
    assert "then redrive the run" in (run.reason or "")

    content = world.files.get(RunFolder(run.key, "default"), run.checkpoint.file)
    assert content == LARGE
    world.files.put(missing, run.checkpoint.file, content)  # the remedy that the reason gives
    world.manage_runs.redrive(run.key, reason="copied")
    world.tick()
    world.worker("b", pool="batch").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED
    assert world.runner.found == [None, LARGE]


def test_logs_are_read_where_each_attempt_left_them(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 2})
    world.script(exit_code=1, stdout="first\n")
    world.worker("a").work_one()
    move(world, job)
    world.advance(seconds=30)
    world.tick()
    world.worker("a").work_one()
    world.tick()
    world.script(stdout="second\n" * 1000)
    world.worker("b", pool="batch").work_one()

    run = world.run(job, "12:00")
    page = ReadLogs(world.find_run, world.files).page(run.key, cursor=None, limit=2)

    assert [line.text for _, line in page.lines] == ["first", "second"]
    folders = {folder.pool for folder, _ in world.files.stored}
    assert folders == {"default", "batch"}


def test_a_run_whose_worker_vanished_is_taken_over_in_the_new_pool(world: World) -> None:
    job = dispatched(world)
    world.script(lasts=LEASE * 2, frozen=True)
    world.worker("a").work_one()
    move(world, job)
    world.worker("c").work_one()
    world.tick()

    world.worker("b", pool="batch").work_one()

    run = world.run(job, "12:00")
    assert run.state is RunState.SUCCEEDED
    assert [(each.worker, each.pool) for each in run.attempts] == [("a", "default"), ("b", "batch")]


@pytest.mark.parametrize(
    ("script", "key"),
    [
        ("pools/batch/acme/lib/x.py", "pools/batch/acme/lib/x.py"),
        ("acme/lib/x.py", "pools/batch/acme/lib/x.py"),
        ("acme/batch/report.py", "pools/batch/acme/report.py"),
    ],
)
def test_a_script_is_below_the_prefix_of_the_jobs_pool(script: str, key: str) -> None:
    target = Target(pool="batch", script=f"s3://{BUCKET}/{script}")

    assert locate(target, bucket=BUCKET, tenant="acme").url == f"s3://{BUCKET}/{key}"


@pytest.mark.parametrize(
    "script",
    [
        "pools/default/acme/x.py",
        "pools/batch/other/x.py",
        "pools/batch/acme/",
        "pools/batch/acme/../other/x.py",
        "pools/batch/acme/lib/",
        "pools/batch/acme/x.py\n",
        "pools/batch/acme/\0.py",
        "other/x.py",
    ],
)
def test_a_script_outside_the_pool_prefix_is_rejected(script: str) -> None:
    target = Target(pool="batch", script=f"s3://{BUCKET}/{script}")

    with pytest.raises(InvalidInputError, match="not a script of your tenant in the pool batch"):
        locate(target, bucket=BUCKET, tenant="acme")


def test_the_remedy_of_a_script_names_a_place_below_the_prefix_of_a_pool() -> None:
    with pytest.raises(ValidationError) as refused:
        JobRequest.model_validate({"type": "MANUAL", "target": {"script": "report.py"}})
    [fault] = refused.value.errors()
    [url] = re.findall("`(.+?)`", remedy_for(fault, JobRequest))
    target = Target(pool="POOL", script=url)

    assert locate(target, bucket="BUCKET", tenant="TENANT").url == url


def test_files_of_a_version_that_did_not_separate_pools_are_where_they_were() -> None:
    run = run_key(at("12:00"))

    assert run_place(RunFolder(run, None)) == f"acme/report/{run.run_id}/"
    assert run_place(RunFolder(run, "batch")) == f"pools/batch/acme/report/{run.run_id}/"
