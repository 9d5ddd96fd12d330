"""Audits follow each other, continue after trouble, and do no harm when they die or meet."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import count

import pytest

from nextfire.domain.audit_pass import Audit, next_audit
from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.zones import release
from nextfire.usecases.audit import PAGE
from nextfire.usecases.audit_report import AuditReport
from tests.accounting import assert_all_accounted_for, settle
from tests.builders import NOON, RUN_ALL, RUN_LATEST, job_key
from tests.crons import LONG
from tests.fakes import Killed
from tests.unit.auditing import (
    DAY,
    MINUTE,
    advance_until,
    audit,
    auditor,
    delete_due_entries,
    purge,
    run_counts,
)
from tests.world import World

BEGINNING = "11:59"

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


def test_an_audit_that_has_not_ended_when_the_next_one_is_due_is_overdue() -> None:
    world = World("11:59")
    for n in range(PAGE + 1):
        world.register(f"job{n:03d}")
    world.tick()

    def page() -> AuditReport:
        return next(iter(auditor(world).continue_audit(world.now)))

    def fails() -> None:
        raise UnavailableError("jobs.scan")

    assert not page().overdue
    world.advance(hours=24)
    world.faults.call_before_each("jobs.scan", fails)
    assert page().overdue
    world.faults.clear()
    ended = audit(world, restart=False)
    assert (ended.done, ended.overdue) == (True, False)


def test_an_audit_continues_where_time_ran_out() -> None:
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


def test_a_repair_is_counted_although_the_next_one_failed(world: World) -> None:
    world.register(schedule="*/5 * * * *")
    world.tick_at("12:00")
    world.faults.kill_after(2)  # after the worker read the job and claimed the run
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.faults.clear()
    purge(world)
    delete_due_entries(world)
    world.tick_at("12:40")
    puts = count()

    def second_put_fails() -> None:
        if next(puts) == 1:
            raise UnavailableError("due.put")

    world.faults.call_before_each("due.put", second_put_fails)
    report = audit(world)

    assert (report.restored, report.revived, report.jobs, report.done) == (1, 0, 0, False)
    assert any("had no due entry" in note for note in report.notes)
    world.faults.clear()
    report = audit(world, restart=False)
    assert (report.restored, report.revived, report.done) == (0, 1, True)


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
    world.tick_and_work("12:26")
    once = run_counts(world)
    died = world.dies(calls, lambda: audit(world))
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
    """Without NEXTFIRE_LONG, one call in three is the last."""
    calls = next(calls for calls in count(step=1 if LONG else 3) if not dies_after(calls))

    assert calls > 20


def test_two_auditors_at_once_do_no_harm(world: World) -> None:
    jobs = [world.register(f"job{n}", schedule="*/5 * * * *", misfire=RUN_ALL) for n in range(3)]
    world.tick_at("12:00")
    purge(world)
    world.tick_and_work("12:16")
    both = []
    world.faults.call_before_next("due.put", lambda: both.append(audit(world)))

    report = audit(world)

    assert both[0].resent == 3
    assert "another auditor is running" in report.notes
    settle(world)
    assert set(run_counts(world).values()) == {1}
    for job in jobs:
        assert_all_accounted_for(world, job)


def test_of_two_auditors_that_begin_one_continues(world: World) -> None:
    world.register()
    both = []
    world.faults.call_before_next("control.replace_audit", lambda: both.append(audit(world)))

    report = audit(world)

    assert both[0].jobs == 1
    assert (report.jobs, report.notes) == (0, ["another auditor has begun this audit"])
