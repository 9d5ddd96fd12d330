"""Several auditors share an audit: each job is visited, whichever of them dies."""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.audit_pass import LOOK_BACK_AT_MOST, Audit
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.ports.pages import Scan
from nextfire.domain.zones import release
from nextfire.usecases import audit as use_case
from nextfire.usecases.audit_parts import up_to
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.audit_visit import JobVisits
from tests.builders import a_job
from tests.fakes import Killed
from tests.unit.auditing import DAY, auditor
from tests.world import World

SEGMENTS = 3
TENANTS = ("acme", "beta")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(use_case, "PAGE", 3)
    world = World("11:59")
    world.tick()
    for number in range(17):
        world.register(f"job{number}", tenant=TENANTS[number % 2], schedule="0 0 1 1 *")
    return world


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> Counter[JobKey]:
    """How often each job was visited."""
    counts: Counter[JobKey] = Counter()
    compare: Any = JobVisits.compare  # each visit calls it

    def counted(visits: JobVisits, job: Job, *given: Any, **named: Any) -> Any:
        counts[job.key] += 1
        return compare(visits, job, *given, **named)

    monkeypatch.setattr(JobVisits, "compare", counted)
    return counts


def wake(
    world: World, segment: int, *, segments: int = SEGMENTS, until: timedelta = DAY, **named: bool
) -> AuditReport:
    parts = auditor(world).in_segments(segments, part=4)
    total = AuditReport()
    restart = named.get("restart", False)
    for report in parts.continue_audit(world.now + until, segment=segment, restart=restart):
        total += report
    return total


def test_segments_share_the_jobs(world: World, visited: Counter[JobKey]) -> None:
    reports = [wake(world, n, until=timedelta()) for n in range(SEGMENTS)]
    assert [each.jobs for each in reports] == [0, 0, 0], "no time, no part"

    parts = auditor(world).in_segments(SEGMENTS, part=4)
    going = [
        parts.continue_audit(world.now + DAY, segment=n, restart=False) for n in range(SEGMENTS)
    ]
    jobs: Counter[int] = Counter()
    while going:
        for number, each in enumerate([*going]):
            report = next(each, None)
            if report is None:
                going.remove(each)
            else:
                jobs[number] += report.jobs

    assert [*visited.values()] == [1] * 17
    assert wake(world, 0).done
    assert sum(visited.values()) == 17, "the next audit is a day later"
    assert len(jobs) == SEGMENTS


def test_one_segment_does_the_work_of_others_that_are_not_woken(
    world: World, visited: Counter[JobKey]
) -> None:
    report = wake(world, 2)

    assert (report.jobs, report.done, report.repaired) == (17, True, 0)
    assert [*visited.values()] == [1] * 17


def test_a_part_is_continued_where_time_ran_out(world: World, visited: Counter[JobKey]) -> None:
    for _ in range(10):
        world.clock.advance(seconds=1)
        parts = auditor(world).in_segments(SEGMENTS, part=4)
        for report in parts.continue_audit(world.now + DAY, segment=1, restart=False):
            if report.jobs:
                break  # as if the invocation ended after a page
    assert [*visited.values()] == [1] * 17


def test_an_auditor_that_dies_anywhere_leaves_no_job_out(
    world: World, visited: Counter[JobKey]
) -> None:
    died = 0
    while True:
        visited.clear()
        world.clock.advance(seconds=1)
        assert world.control.replace_audit(world.control.audit(), Audit(world.now))
        world.faults.kill_after(died)
        finished = False
        with contextlib.suppress(Killed):
            wake(world, 0)
            finished = True
        world.faults.clear()
        # Another segment continues, then the one that died.
        wake(world, 1)
        wake(world, 0)
        assert len(visited) == 17, f"after {died} calls"
        if finished:
            break
        died += 1
    assert died > 20


def test_of_two_that_take_the_same_part_one_takes_the_next(
    world: World, visited: Counter[JobKey]
) -> None:
    other: list[AuditReport] = []
    # The first call stores the new audit, the second the part, the third takes it.
    calls = iter(range(1000))

    def meanwhile() -> None:
        if next(calls) == 2:
            other.append(wake(world, 1))

    world.faults.call_before_each("control.replace_audit", meanwhile)
    report = wake(world, 0)

    assert other[0].jobs + report.jobs == 17
    assert [*visited.values()] == [1] * 17


def test_parts_of_segments_that_are_gone_are_continued(
    world: World, visited: Counter[JobKey]
) -> None:
    parts = auditor(world).in_segments(5, part=4)
    next(parts.continue_audit(world.now + DAY, segment=4, restart=False))  # a page, and no more

    wake(world, 0, segments=2)
    wake(world, 1, segments=2)

    assert [*visited.values()] == [1] * 17


def test_the_next_audit_knows_when_the_last_one_began(world: World) -> None:
    began = world.now
    wake(world, 0)
    world.clock.advance(days=1)
    world.tick()
    wake(world, 0)

    assert world.control.audit() == Audit(world.now, began, done=True, zones=release())
    part = world.control.audit(0)
    assert part is not None
    assert (part.since, part.done) == (began, True)
    assert part.looks_back_to(world.now, a_job()) > world.now - LOOK_BACK_AT_MOST


def test_a_part_from_before_new_time_zone_rules_is_continued_by_the_new_ones(
    world: World, visited: Counter[JobKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    zoned = a_job(timezone="Europe/Berlin", type="CRON", schedule="0 3 * * *")
    parts = auditor(world).in_segments(1, part=20)
    next(parts.continue_audit(world.now + DAY, segment=0, restart=False))
    before = world.control.audit(0)
    assert before is not None
    assert not before.done
    assert before.looks_back_to(world.now, zoned) <= world.now

    monkeypatch.setattr("nextfire.domain.audit_pass.release", lambda: "2099z")
    wake(world, 0, segments=1)

    after = world.control.audit(0)
    assert after is not None
    assert (after.done, after.zones) == (True, "2099z")
    assert after.looks_back_to(world.now, zoned) > world.now, "not judged for a day"
    assert [*visited.values()] == [1] * 17


def test_a_part_that_another_auditor_continues_by_new_rules_is_left_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = auditor(world).in_segments(1, part=20)
    next(parts.continue_audit(world.now + DAY, segment=0, restart=False))
    monkeypatch.setattr("nextfire.domain.audit_pass.release", lambda: "2099z")
    monkeypatch.setattr(world.control, "replace_audit", lambda *_: False)

    report = wake(world, 0, segments=1)

    assert (report.jobs, report.notes) == (0, ["another auditor has segment 0"])


def test_a_segment_that_another_auditor_has_is_left_to_it(world: World) -> None:
    other: list[AuditReport] = []

    def meanwhile() -> None:
        if not other:
            other.append(AuditReport())
            other[0] = wake(world, 0)

    calls = iter(range(100))
    world.faults.call_before_each(
        "control.replace_audit", lambda: meanwhile() if next(calls) == 1 else None
    )
    report = wake(world, 0)

    assert other[0].jobs == 17
    assert report.jobs == 0
    assert "another auditor has segment 0" in report.notes


def test_a_part_ends_at_its_last_job_even_if_that_is_gone() -> None:
    jobs = [a_job(f"job{n}", uid=f"uid{n:05d}") for n in range(4)]
    scan = Scan(jobs, [], jobs[-1].key)
    assert up_to(None, scan) is scan
    assert up_to(JobKey("acme", "job9"), scan) is scan
    assert up_to(JobKey("other", "a"), scan) is scan
    assert up_to(jobs[1].key, scan) == Scan(jobs[:2], [], None)
    assert up_to(JobKey("acme", "job1a"), scan) == Scan(jobs[:2], [], None)
    unreadable = Scan(jobs[:1], [(jobs[1].key, "not a job")], jobs[1].key)
    assert up_to(jobs[1].key, unreadable) == Scan(jobs[:1], unreadable.unreadable, None)


def test_the_last_job_of_a_part_is_not_removed(world: World) -> None:
    """If its page is read again, the part would not end there."""
    for number in range(17):
        key = JobKey(TENANTS[number % 2], f"job{number}")
        world.delete(world.job(key))
    world.clock.advance(days=1)
    world.tick()
    parts = auditor(world, job_retention=timedelta(hours=1)).in_segments(1, part=4)

    removed = sum(
        report.removed for report in parts.continue_audit(world.now + DAY, segment=0, restart=True)
    )

    assert (removed, len(world.jobs.items)) == (13, 4)
