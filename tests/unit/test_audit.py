"""The audit finds and repairs lost chains, records and messages, and repairs nothing in a healthy
system.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.audit import (
    GRACE,
    OVERTAKEN_AFTER,
    claimable_since,
    compare,
    is_done,
    owes_records,
    spans,
)
from nextfire.domain.audit_pass import LOOK_BACK_AT_MOST, Audit, next_audit
from nextfire.domain.audit_repairs import next_entry
from nextfire.domain.due import DispatchEntry, DueEntry, FireEntry, Slot
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.targets import AttemptResult, Hold
from nextfire.domain.retention import MIN_RETENTION
from nextfire.domain.run import Run, RunState
from nextfire.domain.target import TargetKind
from nextfire.domain.zones import release
from nextfire.usecases.audit import PAGE, RECHECK_AFTER, AuditJobs
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, covered, ran, records, settle
from tests.builders import (
    NOON,
    RUN_ALL,
    RUN_LATEST,
    SKIP,
    a_fire,
    a_job,
    a_message,
    at,
    job_key,
    run_key,
)
from tests.fakes import InlineExecutor, Killed
from tests.world import POOLS, World

BEGINNING = "11:59"

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


def audited_a_day_later(world: World) -> AuditReport:
    world.clock.advance(days=1)
    world.tick()
    return audit(world)


@dataclass
class HeldCalls:
    """A `TargetRunner` whose calls must wait."""

    hold: Hold

    def admit(self, *_: object, **__: object) -> Hold:
        return self.hold

    def release(self, *_: object) -> None:
        pass

    def attempt(self, *_: object) -> AttemptResult:
        raise AssertionError("a run that must wait was attempted")


def delete_due_entries(world: World, kind: type[DueEntry] = FireEntry) -> int:
    """Delete all due entries of *kind* and return their number."""
    slots = [s for s, e in world.due.items.items() if isinstance(e, kind)]
    world.due.delete(slots)
    return len(slots)


def run_counts(world: World) -> Counter[str]:
    return Counter(call.environment["NEXTFIRE_EXECUTION_ID"] for call in world.runner.calls)


def fire_times(world: World) -> list[str]:
    return [f"{e.occurs_at:%H:%M}" for e in world.entries if isinstance(e, FireEntry)]


# The chain


def test_a_lost_chain_continues_after_the_last_record(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    advance_until(world, "12:11")
    assert delete_due_entries(world) == 1
    advance_until(world, "12:31")
    assert fire_times(world) == []

    report = audit(world)

    assert (report.restored, report.repaired) == (1, 1)
    assert fire_times(world) == ["12:15"]
    settle(world)
    assert ran(world, job) == ["12:00", "12:05", "12:10", "12:30"]
    assert covered(world, job) == ["12:15-12:25 (3)"]
    assert_all_accounted_for(world, job)
    assert audit(world).repaired == 0


def test_a_restored_chain_knows_how_many_occurrences_there_were(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", maxRuns=6, misfire=RUN_ALL)
    advance_until(world, "12:11")
    delete_due_entries(world)
    world.tick_at("12:18")

    assert audit(world).restored == 1

    advance_until(world, "12:59")
    assert ran(world, job) == ["12:00", "12:05", "12:10", "12:15", "12:20", "12:25"]
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_chain_is_restored_while_runs_wait_but_nothing_is_taken_for_lost(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    for time in ("12:00", "12:05", "12:10"):
        world.tick_at(time)
    delete_due_entries(world)
    world.tick_at("12:31")

    report = audit(world)

    assert fire_times(world) == ["12:35"], "the audit cannot know which of 12:00 to 12:30 were sent"
    assert (report.restored, report.repaired) == (1, 1)
    assert report.waiting == 4, "12:00 to 12:15: occurrences of the last 15 minutes are not checked"
    advance_until(world, "12:51")
    report = audit(world)
    assert (report.covered, report.resent) == (3, 1)
    settle(world)
    assert ran(world, job) == [f"12:{m:02d}" for m in (0, 5, 10, 30, 35, 40, 45, 50)]
    assert_all_accounted_for(world, job)


def test_a_resumed_job_whose_entry_is_lost_owns_what_was_due_since_its_pause(world: World) -> None:
    job = world.register(schedule="*/10 * * * *")
    advance_until(world, "12:01")
    world.pause(job)
    world.at("12:32")
    job = world.resume(job)
    delete_due_entries(world)
    world.tick_at("12:45")

    assert audit(world).restored == 1

    settle(world)
    assert ran(world, job) == ["12:00", "12:40"]
    assert covered(world, job) == ["12:10-12:30 (3)"]
    assert_all_accounted_for(world, job)


def test_what_a_replaced_version_left_undone_is_found(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    advance_until(world, "12:06")
    world.at("12:18")
    delete_due_entries(world)
    job = world.change(job, schedule="50 * * * *")
    world.tick_at("12:40")

    report = audit(world)

    assert (report.restored, report.resent) == (0, 2)
    settle(world)
    assert ran(world, job) == ["12:00", "12:05", "12:10", "12:15"]
    assert_all_accounted_for(world, job)


def test_an_entry_of_a_replaced_version_does_not_count_as_a_chain(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    advance_until(world, "12:08")
    former = [*world.due.items]
    world.change(job, schedule="50 * * * *")
    world.due.delete([slot for slot in world.due.items if slot not in former])
    assert fire_times(world) == ["12:10"]

    report = audit(world)

    assert report.restored == 1
    assert fire_times(world) == ["12:10", "12:50"]
    assert any(note.startswith("acme/report: had no due entry") for note in report.notes)


def test_a_failed_chain_repair_is_not_counted(world: World) -> None:
    world.register()
    delete_due_entries(world)
    world.due.refuses = lambda _: True

    assert audit(world).restored == 0


def test_an_entry_that_does_not_decode_is_left_to_its_watcher(world: World) -> None:
    world.register(schedule="30 * * * *")
    [slot] = world.due.items
    world.due.spoil(slot, tenant="acme", job_id="report")

    assert audit(world).repaired == 0


def test_an_entry_that_is_due_and_does_not_decode_is_left_to_its_watcher(world: World) -> None:
    world.register()
    [slot] = world.due.items
    world.due.spoil(slot, tenant="acme", job_id="report")
    world.at("12:00:05")

    assert audit(world).repaired == 0

    world.tick()
    assert fire_times(world) == ["13:00"]


def test_a_paused_job_owes_nothing_for_its_pause(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    advance_until(world, "12:01")
    world.pause(job)
    world.tick_at("13:01")

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 0)


def test_nothing_is_owed_beyond_the_last_run_nor_of_a_deleted_job(world: World) -> None:
    world.register("few", schedule="*/5 * * * *", maxRuns=2)
    advance_until(world, "12:31")
    gone = world.register("gone", schedule="*/5 * * * *")
    world.tick_at("12:35")
    purge(world)
    world.delete(gone)
    world.tick_at("13:01")

    report = audit(world)

    assert (report.repaired, report.waiting) == (0, 0)


def test_an_entry_written_into_another_number_of_shards_is_found() -> None:
    world = World("11:59", shards=4)
    world.tick()
    jobs = [world.register(f"job{n}", uid=f"uid{n:05d}") for n in range(12)]
    world.due.items = {
        Slot(e.bucket(world.now, 2), e.sort_key): e
        for e in world.due.items.values()
        if isinstance(e, DueEntry)
    }
    assert {j.key.shard(2) for j in jobs} != {j.key.shard(4) for j in jobs}

    assert audit(world).repaired == 0


# Records


@pytest.mark.parametrize(
    ("misfire", "sent", "skipped"),
    [
        (RUN_ALL, ["12:00", "12:05", "12:10"], []),
        (RUN_LATEST, ["12:10"], ["12:00-12:05 (2)"]),
        (SKIP, [], ["12:00-12:10 (3)"]),
        (RUN_ALL | {"relevancyWindowSec": 1_800}, ["12:10"], ["12:00-12:05 (2)"]),
        (RUN_ALL | {"relevancyWindowSec": 300}, [], ["12:00-12:10 (3)"]),
    ],
    ids=["all", "latest", "none", "some in time", "none in time"],
)
def test_lost_messages_follow_the_misfire_policy(
    world: World, misfire: dict[str, Any], sent: list[str], skipped: list[str]
) -> None:
    job = world.register(schedule="*/5 12 * * *", endAt="2026-05-24T12:12:00Z", misfire=misfire)
    for time in ("12:00", "12:05", "12:10"):
        world.tick_at(time)
    purge(world)
    world.tick_at("12:36")

    report = audit(world)

    assert (report.resent, report.restored) == (len(sent), 0)
    assert report.covered == 3 - len(sent)
    settle(world)
    assert ran(world, job) == sent
    assert covered(world, job) == skipped
    reasons = [r.reason or "" for r in records(world, job) if r.covered_to or not r.attempts]
    assert all("lost, found by the audit" in reason for reason in reasons)
    assert_all_accounted_for(world, job)


def test_a_record_that_was_lost_is_made_again_by_its_run(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    advance_until(world, "12:31")
    forget(world, world.run(job, "12:10"))

    assert audit(world).resent == 1

    settle(world)
    again = {run: n for run, n in run_counts(world).items() if n > 1}
    assert again == {world.run(job, "12:10").key.execution_id: 2}
    assert_all_accounted_for(world, job)


def test_a_recent_entry_counts_as_in_flight(world: World) -> None:
    job = world.register()
    advance_until(world, "12:01")
    lost = world.run(job, "12:00")
    forget(world, lost)
    world.tick_at("12:40")
    world.due.freeze()
    entry = DispatchEntry(job.key, job.uid, at("12:40"), lost.key.run_id, 1, "default")
    world.due.put([entry], world.now)

    assert audit(world).repaired == 0


def test_a_job_unchanged_for_days_is_audited(world: World) -> None:
    world.clock.move_to(NOON - 5 * DAY)
    job = world.register(schedule="0 12 24 5 *")
    world.at("11:59")
    advance_until(world, "12:01")
    forget(world, world.run(job, "12:00"))
    world.tick_at("12:20")

    assert audit(world).resent == 1


def test_a_range_of_the_job_s_former_creation_covers_nothing_of_this_one(world: World) -> None:
    job = world.register()
    former = RunKey(job.key, run_id("former01", NOON - 5 * DAY))
    world.runs.skip(Run.skipped(former, "late", NOON, covered_to=at("13:00"), covered=121))
    world.tick_at("12:00")
    purge(world)
    world.tick_at("12:16")

    assert audit(world).resent == 1


def test_an_occurrence_recorded_during_the_audit_is_not_covered_again(world: World) -> None:
    job = world.register(misfire=SKIP)
    world.tick_at("12:00")
    purge(world)
    world.tick_at("12:16")
    there = Run.skipped(RunKey(job.key, run_id(job.uid, NOON)), "another was first", NOON)
    world.faults.call_before_next("runs.skip", lambda: world.runs.skip(there))

    report = audit(world)

    assert (report.covered, report.repaired, report.quarantined) == (0, 0, 0)
    assert records(world, job) == [there]


def test_a_range_that_began_before_the_look_back_covers_what_comes_after(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_LATEST)
    advance_until(world, "12:01")
    world.clock.advance(days=3)
    world.new_watcher()
    for _ in range(100):
        world.tick()
        world.advance(seconds=1)
    settle(world)
    world.clock.advance(minutes=20)
    settle(world)
    assert max(record.covered for record in records(world, job)) > 800
    world.change(job, misfire=RUN_ALL)

    assert audit(world).repaired == 0


def test_a_queue_overlap_job_whose_messages_are_all_lost_continues(world: World) -> None:
    """The chain waits for twenty runs that no longer exist."""
    job = world.register(type="INTERVAL", schedule="PT1M", overlap="QUEUE", misfire=RUN_ALL)
    for n in range(25):
        world.tick_at(f"12:{n:02d}")
    assert len(world.queued) == 20
    purge(world)
    world.tick_at("13:00")
    assert len(world.queued) == 0

    report = audit(world)

    assert (report.resent, report.repaired) == (20, 20)
    settle(world)
    assert_all_accounted_for(world, job)


def test_an_audit_resends_up_to_its_limit_and_reports_the_rest(world: World) -> None:
    end = "2026-05-24T12:20:00Z"
    job = world.register(type="INTERVAL", schedule="PT1S", misfire=RUN_ALL, endAt=end)
    world.at("12:21")
    settle(world)
    lost = records(world, job)
    for run in lost:
        forget(world, run)
    world.tick_at("12:37")

    report = audit(world)

    assert (len(lost), report.resent) == (1_260, 1_000)
    assert any("more is lost" in note for note in report.notes)
    settle(world)
    assert audit(world).resent == len(lost) - 1_000


# Runs without a message or a worker


def test_a_running_run_without_message_and_worker_is_taken_over(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.faults.kill_after(2)  # after it read the job and claimed the run
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.faults.clear()
    purge(world)
    world.tick_at("12:15:30")
    assert audit(world).repaired == 0, "the lease expired at 12:01; the grace period ends at 12:16"

    world.tick_at("12:17")
    report = audit(world)

    assert (report.revived, report.repaired) == (1, 1)
    settle(world)
    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.dispatch) == (RunState.SUCCEEDED, 2, 2)


def test_a_retry_whose_entry_was_lost_is_sent(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    assert delete_due_entries(world, DispatchEntry) == 1
    world.tick_at("12:16")

    assert audit(world).revived == 1

    settle(world)
    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.dispatch) == (RunState.SUCCEEDED, 2, 3)


def test_a_run_handed_back_whose_message_was_lost_is_sent(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.script(lasts=timedelta(seconds=30))
    stopping = iter([False, True, True, True])
    world.worker().work_one(stopping=lambda: next(stopping))
    assert world.run(job, "12:00").state is RunState.PENDING
    purge(world)
    world.tick_at("12:17")

    assert audit(world).revived == 1

    settle(world)
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_run_whose_message_may_be_in_the_queue_is_left_for_a_day(world: World) -> None:
    job = world.register(endAt="2026-05-24T12:00:00Z", retryPolicy={"maxAttempts": 2})
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:00:10")
    assert len(world.queued) == 1
    world.clock.advance(hours=23)
    world.tick()
    report = audit(world)
    assert (report.repaired, report.waiting) == (0, 1)

    world.clock.advance(hours=2)
    world.tick()
    assert audit(world).revived == 1

    settle(world)
    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_a_run_that_waits_for_its_endpoint_is_not_sent_again(world: World) -> None:
    """The dispatch that replaced its message is due in an hour; others are due within minutes."""
    hold = Hold(at("12:58"), "the endpoint is paused")
    world.call_targets[TargetKind.HTTP] = HeldCalls(hold)
    http = {"pool": "default", "http": {"url": "https://api.example.com/hooks"}}
    job = world.register(target=http, endAt="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.worker().work_one()
    assert [entry.at for entry in world.entries] == [hold.until]
    world.tick_at("12:17")

    report = audit(world)

    assert (report.revived, report.repaired) == (0, 0)
    assert [entry.uid for entry in world.entries] == [job.uid]


def test_a_retry_that_was_sent_late_is_not_overtaken_by_what_was_sent_before(world: World) -> None:
    """The watcher was down when the retry was due."""
    job = world.register(schedule="*/5 * * * *", misfire=SKIP)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.due.items, kept = {}, dict(world.due.items)
    for slot, entry in kept.items():
        if isinstance(entry, FireEntry):
            world.due.items[slot] = entry
    advance_until(world, "12:06")
    retry = [e for e in kept.values() if isinstance(e, DispatchEntry)]
    world.at("13:55")
    world.due.put(retry, world.now)
    world.tick()
    assert world.run(job, "12:00").state is RunState.PENDING

    assert audit(world).repaired == 0


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.PAUSED])
def test_a_job_that_is_over_leaves_no_run_behind(world: World, state: JobState) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    delete_due_entries(world, DispatchEntry)
    if state is JobState.CANCELLED:
        world.delete(job)
    elif state is JobState.PAUSED:
        world.pause(job)
    else:
        world.jobs.complete(job, world.now)
    world.tick_at("12:40")

    assert audit(world).revived == 1

    settle(world)
    expected = RunState.CANCELLED if state is JobState.CANCELLED else RunState.SUCCEEDED
    assert world.run(job, "12:00").state is expected


def test_a_job_whose_last_run_has_ended_is_completed(world: World) -> None:
    """The run was cancelled before it was due, and its FIRE entry, whose message would have
    completed the job, was deleted. The same holds if an auditor died after it wrote the record of
    the last occurrence.
    """
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    key = RunKey(job.key, run_id(job.uid, at("12:00")))
    world.runs.cancel(a_message(key), reason="enough", now=world.now)
    delete_due_entries(world, FireEntry)
    advance_until(world, "12:10")
    early = audit(world)
    advance_until(world, "12:40")

    report = audit(world)

    assert (early.repaired, report.repaired, report.completed) == (0, 1, 1)
    assert world.job(job.key).state is JobState.COMPLETED
    assert audit(world).repaired == 0


def test_a_job_whose_last_run_was_cancelled_in_the_queue_is_left_to_its_message(
    world: World,
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.at("12:10")
    world.manage_runs.cancel(RunKey(job.key, run_id(job.uid, at("12:00"))), "enough")
    world.tick_at("12:40")

    assert audit(world).repaired == 0
    assert world.job(job.key).state is JobState.ACTIVE
    world.worker().work()
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_job_whose_run_was_cancelled_days_early_is_left_to_its_message(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-27T12:00:00Z")
    key = RunKey(job.key, run_id(job.uid, at("12:00") + 3 * DAY))
    world.runs.cancel(a_message(key), reason="enough", now=world.now)
    world.advance(seconds=(3 * DAY + timedelta(minutes=1)).total_seconds())
    world.tick()
    world.advance(seconds=2_400)
    world.tick()

    assert audit(world).repaired == 0
    assert world.job(job.key).state is JobState.ACTIVE
    world.worker().work()
    assert world.job(job.key).state is JobState.COMPLETED


@pytest.mark.parametrize(("later", "completed"), [(DAY - GRACE, 0), (DAY + GRACE, 1)])
def test_the_message_that_completes_a_job_counts_as_lost_after_a_day(
    world: World, later: timedelta, completed: int
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.at("12:30")
    world.manage_runs.cancel(RunKey(job.key, run_id(job.uid, at("12:00"))), "enough")
    world.advance(seconds=later.total_seconds())
    world.tick()

    assert audit(world).completed == completed


@pytest.mark.parametrize("busy", [True, False])
def test_a_job_whose_last_run_was_cancelled_long_after_it_was_due_is_completed_at_last(
    world: World, *, busy: bool
) -> None:
    """When its message counts as lost, the record is older than the records that an audit reads."""
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    reports = [audited_a_day_later(world) for _ in range(3)]
    world.manage_runs.cancel(RunKey(job.key, run_id(job.uid, at("12:00"))), "enough")
    purge(world)
    if busy:
        world.queue.send([("default", a_message(run_key(at("13:00"))))])

    reports += [audited_a_day_later(world) for _ in range(2)]

    assert [report.completed for report in reports] == [0, 0, 0, 1, 0]
    assert world.job(job.key).state is JobState.COMPLETED


@pytest.mark.parametrize("lost", [False, True], ids=["in the queue", "without its message"])
def test_a_job_whose_last_run_has_not_ended_is_not_completed(world: World, *, lost: bool) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.runs.claim(
        a_message(RunKey(job.key, run_id(job.uid, at("12:00")))),
        token="t",
        worker="a",
        pool="default",
        job_revision=1,
        now=world.now,
        lease_until=at("13:00"),
    )
    if lost:
        purge(world)
    world.tick_at("12:40")

    assert audit(world).repaired == 0
    assert world.job(job.key).state is JobState.ACTIVE


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_jobs_that_ended_before_the_look_back_need_no_run_reads(
    world: World, state: JobState
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    advance_until(world, "12:01")
    if state is JobState.CANCELLED:
        world.delete(job)
    assert world.job(job.key).state is state
    world.clock.advance(days=3)
    world.faults.calls.clear()

    assert audit(world).jobs == 1

    assert not [call for call in world.faults.calls if call.startswith("runs.")]


def test_a_lost_run_of_a_pool_that_is_gone_is_sent_again_and_dies(world: World) -> None:
    job = world.register(target={"pool": "batch", "handler": "report"}, schedule="*/5 * * * *")
    world.tick_at("12:00")
    purge(world)
    world.remove_pool("batch")
    world.tick_at("12:16")

    [report] = auditor(world, pools={"default"}).continue_audit(world.now + DAY)

    assert report.resent > 0
    world.advance(days=1, minutes=1)
    world.tick()
    world.worker().work()
    ended = [run.state for run in world.runs.all.values() if run.key.job == job.key]
    assert ended.count(RunState.DEAD) == report.resent


# Health


def test_a_healthy_job_costs_a_slot_and_a_query(world: World) -> None:
    world.register(schedule="*/5 * * * *")
    advance_until(world, "12:31")
    world.faults.calls.clear()

    assert audit(world).repaired == 0

    assert world.faults.calls == [
        *("control.audit", "control.replace_audit", "jobs.scan", "due.occupied"),
        *("runs.between", "control.replace_audit"),
    ]


def test_an_idle_auditor_costs_one_read(world: World) -> None:
    world.register()
    audit(world)
    world.advance(hours=23)
    world.faults.calls.clear()

    report = audit(world, restart=False)

    assert (report.jobs, report.done) == (0, True)
    assert world.faults.calls == ["control.audit"]


def test_a_full_queue_is_no_loss() -> None:
    world = World("11:59")
    world.shares = Shares(backlogs={"default": 3})
    world.new_watcher()
    world.tick()
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    for minute in range(0, 60, 5):
        world.tick_at(f"12:{minute:02d}")
    assert len(world.queued) == 3

    report = audit(world)

    assert report.repaired == 0
    assert report.waiting == 3
    settle(world)
    assert_all_accounted_for(world, job)


def test_the_audit_waits_for_a_watcher_that_is_behind() -> None:
    world = World("11:59")
    world.tick()
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    world.at("14:02")

    report = audit(world)

    assert (report.repaired, report.behind) == (0, 1)
    settle(world)
    assert_all_accounted_for(world, job)


def test_catching_up_is_no_loss(world: World) -> None:
    job = world.register(schedule="* * * * *", misfire=RUN_ALL)
    world.at("14:02")
    world.watcher.poll(world.now)
    for _ in range(30):
        world.watcher.poll(world.now)
        world.watcher.release(world.now)
        report = audit(world)
        assert report.repaired == 0, report.notes
        world.worker().work_one() if world.queued else None
    settle(world)
    assert audit(world).repaired == 0
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("seconds", [0, 1, 2, 14, 59])
def test_the_second_in_which_everything_moves_is_no_loss(seconds: int) -> None:
    """The first check finds no entry in the expected place; the second one does."""
    world = World("11:59")
    world.tick()
    for n in range(4):
        world.register(f"job{n}", schedule="*/5 * * * *")
    world.register("often", type="INTERVAL", schedule="PT1S")
    world.register("jittered", schedule="* * * * *", jitterSec=600)
    world.clock.move_to(at("12:25") + timedelta(seconds=seconds))
    world.tick()
    world.worker().work()
    for call in ("due.occupied", "due.read", "control.cursors", "queue.backlog", "runs.between"):
        world.faults.call_before_next(call, world.tick)

    assert audit(world).repaired == 0


def test_what_comes_due_between_two_of_its_calls_is_no_loss(world: World) -> None:
    job = world.register(schedule="0 * * * *")
    world.tick_at("12:00")  # no worker takes the run, so the audit checks the job twice
    world.tick_at("12:59:54.900")

    def comes_due() -> None:
        if world.now == at("12:59:59.900"):
            world.tick_at("13:00:00.300")

    world.faults.call_before_each("control.cursors", comes_due)

    report = audit(world)

    assert world.now == at("13:00:00.300")
    assert (report.repaired, report.waiting) == (0, 1)
    assert fire_times(world) == ["14:00"]
    assert world.job(job.key).state is JobState.ACTIVE


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


def test_runs_put_off_to_the_next_minute_are_no_loss(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.worker().work()
    lost = world.run(job, "12:00")
    forget(world, lost)
    world.tick_at("12:40")
    entry = DispatchEntry(job.key, job.uid, at("12:00"), lost.key.run_id, 1, "default")
    world.due.put([entry], world.now + 2 * MINUTE)

    assert audit(world).repaired == 0


def test_entries_written_late_into_buckets_behind_the_cursor_are_no_loss(world: World) -> None:
    world.register(schedule="20 * * * *")
    world.tick_at("12:12")
    [(slot, entry)] = world.due.items.items()
    delete_due_entries(world)
    world.tick_at("12:24")
    world.due.items = {Slot("2026-05-24T12:20Z#000", slot.sort_key): entry}

    assert audit(world).repaired == 0


def test_a_retry_that_waits_for_room_is_no_loss() -> None:
    world = World("11:59")
    world.tick()
    job = world.register()
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.queue.refuses = lambda _: True
    world.tick_at("12:20")

    assert audit(world).repaired == 0

    world.queue.refuses = lambda _: False
    settle(world)
    assert world.run(job, "12:00").dispatch == 2


def test_what_the_queue_has_held_for_a_day_is_sent_once_more(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.clock.advance(hours=23)
    world.tick()
    assert audit(world).repaired == 0
    world.clock.advance(hours=2)
    world.tick()

    assert audit(world).resent == 1

    settle(world)
    assert run_counts(world) == {world.run(job, "12:00").key.execution_id: 1}


def test_a_run_overtaken_for_an_hour_is_lost_even_if_the_queue_is_not_empty(
    world: World,
) -> None:
    job = world.register(schedule="*/5 * * * *", overlap="QUEUE")
    world.register("other", schedule="*/5 * * * *", misfire=RUN_ALL)
    world.tick_at("12:00")
    queue = world.queue.queues["default"]
    queue._messages = [m for m in queue._messages if "other" in m.body]  # noqa: SLF001
    # The worker keeps one message of the other job.
    held = world.worker().receive()
    assert held is not None
    held.hide(timedelta(hours=9))
    world.tick_at("12:05")
    world.worker().work()
    world.tick_at("12:50")
    world.worker().work()
    assert audit(world).repaired == 0
    world.tick_at("13:07")

    report = audit(world)

    assert report.resent == 1, "in a healthy system, parallel runs overtake each other"
    world.tick()
    world.worker().work()
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_unreadable_items_are_counted_and_do_not_stop_the_audit(world: World) -> None:
    jobs = [world.register(f"job{n}", schedule="*/5 * * * *") for n in range(3)]
    advance_until(world, "12:31")
    world.jobs.spoil(jobs[0].key)
    world.runs.spoil(world.run(jobs[1], "12:10").key)
    delete_due_entries(world)

    report = audit(world)

    assert report.quarantined == 2
    assert report.restored == 2
    assert report.done


# Progress of an audit


def _begun(at: datetime, since: datetime | None = None) -> Audit:
    return Audit(at, since, zones=release())


def test_audits_know_since_when_they_have_their_release_of_the_zone_rules() -> None:
    older = Audit(NOON, zones="2025a", done=True)
    first = next_audit(older, NOON + DAY, DAY, restart=False)
    assert first is not None
    assert (first.zones, first.zones_since) == (release(), NOON + DAY)
    second = next_audit(first.moved(None), NOON + 2 * DAY, DAY, restart=False)
    assert second is not None
    assert (second.zones, second.zones_since) == (release(), NOON + DAY)
    continued = next_audit(replace(older, done=False), NOON + MINUTE, DAY, restart=False)
    assert continued is not None
    assert (continued.started_at, continued.zones_since) == (NOON, NOON + MINUTE)


def test_audits_follow_each_other_and_know_when_the_last_one_began() -> None:
    first = next_audit(None, NOON, DAY, restart=False)
    assert first == _begun(NOON)

    midway = first.moved(job_key())
    assert next_audit(midway, NOON + 2 * DAY, DAY, restart=False) == midway
    assert next_audit(midway, NOON + 2 * DAY, DAY, restart=True) == _begun(NOON + 2 * DAY)

    over = midway.moved(None)
    assert over.done
    assert next_audit(over, NOON + DAY - MINUTE, DAY, restart=False) is None
    assert next_audit(over, NOON + DAY, DAY, restart=False) == _begun(NOON + DAY, since=NOON)
    assert next_audit(over, NOON + MINUTE, DAY, restart=True) == _begun(NOON + MINUTE, since=NOON)
    assert next_audit(over, NOON - DAY, DAY, restart=False) == _begun(NOON - DAY, since=NOON - DAY)


def test_an_audit_goes_on_where_time_ran_out() -> None:
    world = World("11:59")
    for n in range(PAGE * 2 + 7):
        world.register(f"job{n:03d}")
    world.tick()

    jobs, invocations = 0, 0
    while True:
        reports = [*auditor(world).continue_audit(world.now)]
        assert len(reports) == 1
        jobs, invocations = jobs + reports[0].jobs, invocations + 1
        if reports[0].done:
            break

    assert jobs == PAGE * 2 + 7, "every invocation checks at least one job"
    assert invocations == PAGE * 2 + 7


def test_an_audit_resumes_after_a_store_was_unavailable(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    advance_until(world, "12:11")
    delete_due_entries(world)
    world.at("12:31")
    calls = ["jobs.scan", "due.occupied", "jobs.get", "control.cursors", "due.read"]
    calls += ["queue.backlog", "runs.between", "control.audit"]
    for call in calls:
        world.faults.refuse(call)
        report = audit(world, restart=False)
        assert (report.repaired, report.done) == (0, False), call
        assert any(call in note for note in report.notes), call
        world.tick()

    assert audit(world, restart=False).restored == 1
    settle(world)
    assert_all_accounted_for(world, job)


def dies_after(calls: int) -> bool:
    """Kill an auditor after *calls* calls and let another one continue. Return whether it died."""
    world = World("11:59")
    world.tick()
    broken = world.register("broken", schedule="*/5 * * * *")
    purged = world.register("purged", schedule="*/5 * * * *", misfire=RUN_ALL)
    latest = world.register("latest", schedule="*/5 * * * *", misfire=RUN_LATEST)
    tried = world.register("tried", schedule="*/5 * * * *", endAt="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    for run in world.queued:
        world.script(exit_code=int("tried" in run))
    world.worker().work()
    delete_due_entries(world, DispatchEntry)
    world.tick_at("12:05")
    world.tick_at("12:10")
    purge(world)
    world.due.delete([s for s, e in world.due.items.items() if "broken" in str(e)])
    world.tick_at("12:26")
    world.worker().work()
    once = run_counts(world)
    world.faults.kill_after(calls)
    try:
        audit(world)
    except Killed:
        died = True
    else:
        died = False
    world.faults.clear()
    world.tick()
    world.worker().work()
    audit(world, restart=False)
    settle(world)
    report = audit(world)

    assert report.repaired == 0, report.notes
    for job in (broken, purged, latest, tried):
        assert_all_accounted_for(world, job)
    runs_again = run_counts(world) - once
    assert not [run for run, n in runs_again.items() if n + once[run] > 1 and "tried" not in run]
    return died


def test_an_auditor_that_dies_anywhere_does_no_harm() -> None:
    calls = next(calls for calls in count() if not dies_after(calls))

    assert calls > 20


def test_two_auditors_at_once_do_no_harm(world: World) -> None:
    jobs = [world.register(f"job{n}", schedule="*/5 * * * *", misfire=RUN_ALL) for n in range(3)]
    world.tick_at("12:00")
    purge(world)
    world.tick_at("12:16")
    world.worker().work()
    both = []
    world.faults.call_before_next("due.put", lambda: both.append(audit(world)))

    report = audit(world)

    assert both[0].resent == 3
    assert "another auditor is running" in report.notes
    settle(world)
    assert set(run_counts(world).values()) == {1}
    for job in jobs:
        assert_all_accounted_for(world, job)


def test_of_two_auditors_that_begin_one_goes_on(world: World) -> None:
    world.register()
    both = []
    world.faults.call_before_next("control.replace_audit", lambda: both.append(audit(world)))

    report = audit(world)

    assert both[0].jobs == 1
    assert (report.jobs, report.notes) == (0, ["another auditor has begun this audit"])


# Pure functions


@given(
    schedule=st.sampled_from(["* * * * *", "*/7 * * * *", "3 */2 * * *", "30 2 * * *"]),
    width=st.sampled_from([0, 30, 400, 3_600]),
    most=st.sampled_from([None, 1, 5, 100]),
    minutes=st.integers(0, 60 * 30),
)
def test_the_next_entry_is_where_the_chain_comes_to(
    schedule: str, width: int, most: int | None, minutes: int
) -> None:
    bounds: dict[str, Any] = {"maxRuns": most} if most else {}
    job = a_job(schedule=schedule, jitterSec=width, **bounds)
    now = NOON + timedelta(minutes=minutes, seconds=13)
    entry = job.first()
    while entry is not None and entry.at <= now:
        entry = job.successor(entry)

    assert next_entry(job, now) == entry


def a_record(job: Job, occurrence: datetime, **fields: Any) -> Run:
    key = RunKey(job.key, run_id(job.uid, occurrence))
    return Run(key, RunState.SUCCEEDED, pool="default", **fields)


@given(st.data())
def test_missing_occurrences_are_those_without_a_record(data: st.DataObject) -> None:
    """Compared with a set-based model that looks at one occurrence at a time."""
    width = data.draw(st.sampled_from([0, 600]))
    job = a_job(schedule="*/5 * * * *", jitterSec=width)
    now = NOON + timedelta(minutes=data.draw(st.integers(0, 400)))
    if data.draw(st.booleans()):
        job = job.with_new_version(NOON + timedelta(minutes=data.draw(st.integers(1, 200))))
    every = [NOON + 5 * n * MINUTE for n in range(1, 90)]
    have = {o for o in every if data.draw(st.booleans())}
    reach = {o: o + 5 * data.draw(st.integers(0, 3)) * MINUTE for o in sorted(have)[::4]}
    runs = [
        a_record(job, o, covered_to=reach.get(o), covered=2 if o in reach else 1)
        for o in sorted(have)
    ]
    waits = {o for o in every if data.draw(st.integers(0, 9)) == 0}

    found = compare(
        job,
        spans(job, NOON, now - GRACE),
        runs,
        now=now,
        waiting={run_id(job.uid, o) for o in waits},
    )

    stood = {o for o in every if any(r.key.scheduled_at <= o <= r.covers_until for r in runs)}
    owed = {o for o in every if job.due_at(o) <= now - GRACE and o <= now - GRACE}
    missing = {o for m in found.missing for o in every if m.first <= o <= m.last}
    assert missing == owed - stood - waits
    assert sum(m.count for m in found.missing) == len(missing)


def test_what_is_of_another_creation_of_the_job_counts_for_nothing() -> None:
    job, former = a_job(schedule="0 * * * *"), a_job(schedule="0 * * * *", uid="former01")
    now = at("15:30")
    owed = spans(job, NOON, now, [a_fire(former, at("13:00"))])

    found = compare(job, owed, [a_record(former, at("13:00"))], now=now)

    assert [(m.first, m.last, m.count) for m in found.missing] == [(at("13:00"), at("15:00"), 3)]


def test_what_a_range_covers_is_owed_no_more_whatever_runs_within_it() -> None:
    job = a_job(schedule="0 * * * *")
    owed = spans(job, NOON, at("15:00"))
    covering = a_record(job, at("13:00"), covered_to=at("15:00"), covered=3)
    within = a_record(job, at("14:00"))

    assert not owes_records(job.uid, owed, [covering, within])
    assert owes_records(job.uid, owed, [within])


def test_a_run_older_than_the_read_range_does_not_wait_for_a_message() -> None:
    job = a_job(type="ONCE", schedule="2026-05-24T12:01:00Z")
    now = NOON + 3 * DAY

    found = compare(job, (), [a_record(job, NOON + MINUTE)], now=now)

    assert is_done(job, found, queue_is_empty=False)


def test_when_a_run_is_idle() -> None:
    key = run_key()
    assert claimable_since(Run(key, RunState.SUCCEEDED)) is None
    assert claimable_since(Run(key, RunState.RUNNING, lease_until=at("12:09"))) == at("12:09")
    assert claimable_since(Run(key, RunState.PENDING, not_before=at("12:08"))) == at("12:08")
    assert claimable_since(Run(key, RunState.PENDING)) == key.scheduled_at


def test_the_margins_keep_their_distances() -> None:
    assert timedelta(minutes=5) < GRACE < OVERTAKEN_AFTER
    assert RECHECK_AFTER < MINUTE


def test_an_occurrence_that_waits_for_its_parents_is_not_lost() -> None:
    world = World("11:58:30")
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 3_000_000})
    world.register("b", after=[{"job": "a"}])
    world.script(exit_code=1)
    advance_until(world, "12:40")

    assert audit(world) == AuditReport(jobs=2, done=True)


def test_the_lost_message_of_a_time_is_sent_again() -> None:
    world = World("11:58:30")
    world.register("a")
    b = world.register("b", after=[{"job": "a"}], joinTimeoutSec=60)
    world.tick_at("12:00")
    lost = [world.worker().receive() for _ in range(2)]
    for delivery in lost:
        assert delivery is not None
        if '"b"' in delivery.body:
            delivery.acknowledge()
        else:
            world.worker().handle(delivery)
    advance_until(world, "14:20")

    report = audit(world)

    assert (report.restored, report.resent, report.covered) == (0, 1, 0)
    world.tick()
    world.worker().work()
    assert world.run(b, "12:00").state is RunState.SUCCEEDED


def test_an_audit_that_was_away_does_not_look_for_records_that_may_have_expired() -> None:
    """The shortest retention is 15 days, and settings change."""
    assert LOOK_BACK_AT_MOST < MIN_RETENTION
    away = Audit(NOON, since=NOON - 100 * DAY)
    assert away.looks_back_to(NOON + DAY, a_job()) == NOON + DAY - LOOK_BACK_AT_MOST


def test_what_a_job_ran_before_it_had_parents_is_not_looked_for_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those records may have expired, and the job would run again."""
    world.register("parent", schedule="0 * * * *")
    after: Any = {"after": [{"job": "parent"}], "joinTimeoutSec": 20 * 86_400}
    child = world.register("child", schedule="0 * * * *", **after)
    seen: list[datetime] = []

    def spanned(_: Job, since: datetime, *__: Any) -> list[Any]:
        seen.append(since)
        return []

    monkeypatch.setattr("nextfire.usecases.audit_visit.spans", spanned)
    world.clock.advance(days=50)
    compare = auditor(world)._visits.compare  # noqa: SLF001 — the spans that it asks for
    compare(child, world.now, world.now - DAY, [])
    changed = world.change(child, payload={"n": 1})
    compare(changed, world.now, world.now - DAY, [])

    assert seen[0] < world.now - 20 * DAY
    assert seen[1] == world.now - LOOK_BACK_AT_MOST
