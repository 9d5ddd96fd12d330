"""The audit repairs lost messages and records of occurrences that were due."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from nextfire.domain.audit_pass import LOOK_BACK_AT_MOST, Audit
from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.retention import MIN_RETENTION
from nextfire.domain.run import Run, RunState
from nextfire.usecases.audit_report import AuditReport
from tests.accounting import assert_all_accounted_for, covered, ran, records, settle
from tests.builders import NOON, RUN_ALL, RUN_LATEST, SKIP, a_job, at
from tests.unit.auditing import DAY, advance_until, audit, auditor, forget, purge, run_counts
from tests.world import World

BEGINNING = "11:59"

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


def test_an_audit_visits_a_job_again_whose_runs_are_not_all_sent_again(world: World) -> None:
    """DynamoDB throttles the entry of one of them at each attempt."""
    job = world.register(schedule="*/5 12 * * *", endAt="2026-05-24T12:12:00Z", misfire=RUN_ALL)
    for time in ("12:00", "12:05", "12:10"):
        world.tick_at(time)
    purge(world)
    world.tick_at("12:36")
    world.due.refuses = lambda entry: "T1205" in getattr(entry, "run_id", "")

    report = audit(world)

    assert (report.done, report.jobs, report.resent) == (False, 0, 2)
    world.due.refuses = lambda _: False
    report = audit(world, restart=False)
    assert (report.done, report.jobs, report.resent) == (True, 1, 1)
    settle(world)
    assert ran(world, job) == ["12:00", "12:05", "12:10"]
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
    recorded = Run.skipped(job.run_key(NOON), "another was first", NOON)
    world.faults.call_before_next("runs.skip", lambda: world.runs.skip(recorded))

    report = audit(world)

    assert (report.covered, report.repaired, report.quarantined) == (0, 0, 0)
    assert records(world, job) == [recorded]


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
    world.tick_at("13:00")

    report = audit(world)

    assert (len(lost), report.resent) == (1_260, 1_000)
    assert any("more is lost" in note for note in report.notes)
    settle(world)
    assert audit(world).resent == len(lost) - 1_000


def test_an_occurrence_that_waits_for_its_parents_is_not_lost() -> None:
    world = World("11:58:30")
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 3_000_000})
    world.register("b", after=[{"job": "a"}])
    world.script(exit_code=1)
    advance_until(world, "12:40")

    assert audit(world) == AuditReport(jobs=2, done=True)


def test_an_occurrence_whose_time_was_received_late_waits_as_long_as_any_other() -> None:
    world = World("11:58:30")
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 10_000_000})
    world.register("b", after=[{"job": "a"}], joinTimeoutSec=3_600)
    world.script(exit_code=1)
    for time in ("12:00", "13:00", "13:30"):
        world.tick_at(time)
    advance_until(world, "14:20")

    assert audit(world).resent == 0


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
