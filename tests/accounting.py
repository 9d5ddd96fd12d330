"""Checks that every occurrence of a job is accounted for: by its own run or by one range record.

Occurrences are enumerated one by one from the schedules that the job had, without any of the
watcher's code.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import combinations, islice, takewhile
from typing import Protocol

from nextfire.domain.due import DispatchEntry, DueEntry, FireEntry
from nextfire.domain.errors import NotFoundError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.recurrence import occurrences
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.schedule import ScheduleType
from tests.evidence import CLOCKS_APART, Evidence, Stored, first_sent, reported_missed
from tests.judgement import Judge
from tests.world import World

_STEP = timedelta(seconds=1)
_CONCURRENT_WRITES = timedelta(seconds=15)
"""Maximum time between reading records and writing one."""
_MISSED = timedelta(seconds=60)


class Records(Protocol):
    """Run records, by their keys."""

    @property
    def all(self) -> Mapping[RunKey, Run]: ...


class SystemState(Protocol):
    """The state of a system at rest: of the `World` on fakes, or read from AWS."""

    @property
    def now(self) -> datetime: ...

    @property
    def runs(self) -> Records: ...

    @property
    def entries(self) -> Collection[DueEntry]: ...

    def job(self, key: JobKey) -> Job: ...


def owned(job: Job, until: datetime) -> Iterator[tuple[Job, Iterator[datetime]]]:
    """Yield each version of *job* that owns occurrences, as the job was then, with its occurrences
    up to *until*.
    """
    spans = [(job.as_of(past), past.until) for past in job.replaced]
    if job.state in (JobState.ACTIVE, JobState.COMPLETED):
        spans.append((job, until))
    for owner, end in spans:
        yield owner, _occurrences(owner, min(end, until))


def _occurrences(owner: Job, until: datetime) -> Iterator[datetime]:
    counted_from = owner.counted_from or owner.effective_from
    schedule = owner.definition.schedule_from(counted_from)
    for occurrence in islice(occurrences(schedule, counted_from), owner.definition.max_runs):
        if occurrence.at > until:
            return
        if occurrence.at > owner.effective_from:
            yield occurrence.at


def records(world: SystemState, job: Job) -> list[Run]:
    """The job's records, by scheduled instant."""
    found = [r for k, r in world.runs.all.items() if (k.job, k.uid) == (job.key, job.uid)]
    return sorted(found, key=lambda record: record.key.run_id)


def ranges(world: SystemState, job: Job) -> list[Run]:
    """Range records that a watcher wrote: for occurrences that never reached an executor."""
    found = [r for r in records(world, job) if r.state is RunState.SKIPPED and r.pool is None]
    return [r for r in found if not r.request]


def ran(world: SystemState, job: Job) -> list[str]:
    """Scheduled times of the runs that have an attempt, as ``12:00`` or ``12:00:30``."""
    return [format_time(r.key.scheduled_at) for r in records(world, job) if r.attempts]


def format_time(at: datetime) -> str:
    return f"{at:%H:%M:%S}".removesuffix(":00")


def covered(world: SystemState, job: Job) -> list[str]:
    """What the range records cover, as ``12:00-12:05 (6)``."""
    return [
        f"{format_time(r.key.scheduled_at)}-{format_time(r.covers_until)} ({r.covered})"
        for r in ranges(world, job)
    ]


def evidence_of(world: World, job: Job) -> Evidence:
    """The evidence of *job* in a world, where nothing takes time."""
    ever = [
        Stored(j.updated_at, j) for j in world.jobs.ever if (j.key, j.uid) == (job.key, job.uid)
    ]
    log = world.queue.log
    return Evidence(ever, first_sent(log), missed=reported_missed(log, job))


def assert_all_accounted_for(
    world: SystemState,
    job: Job,
    *,
    allow_late_starts: bool = False,
    stray: Callable[[RunKey], bool] = lambda _: False,
    evidence: Evidence | None = None,
    purged: bool = False,
) -> None:
    """Check that every occurrence of *job* up to now is accounted for correctly.

    Exactly one record covers each occurrence; records cover nothing else and count correctly; all
    have ended, with a permitted outcome; and the chain of entries is intact. *job* may be a deleted
    job whose id belongs to a new job.

    The world must be at rest: see `settle`. *allow_late_starts*: a run that an executor began more
    than a minute after it was due may be in a range as well, see
    `test_what_was_sent_before_it_was_missed_does_not_run`; and two ranges that are written at the
    same time may overlap. *stray*: which runs may exist although
    no version owns them: those that were sent while a change of the job was being written, which
    takes effect at the instant of its request. *evidence*: what to judge by; default: that of the
    `World`. *purged*: a queue was purged, so the end of the last run may have gone unnoticed.
    """
    stored = _stored(world, job)
    former = stored is not None and stored.uid != job.uid
    without_schedule = former or stored is None
    job = job if stored is None or former else stored
    if evidence is None and isinstance(world, World):
        evidence = evidence_of(world, job)
    now = world.now
    due = [at for owner, ats in owned(job, now) for at in takewhile(_is_due(owner, now), ats)]
    every = {at: owner for owner, ats in owned(job, now + timedelta(hours=2)) for at in ats}
    ats, found = sorted(every), records(world, job)
    judge = Judge(every, found, evidence) if evidence is not None else None
    for record in (r for r in found if r.on_request):
        _assert_request_done(record, [*every])
    found = [r for r in found if r.trigger is not Trigger.MANUAL]
    covers: Counter[datetime] = Counter()
    for record in found:
        first, last = record.key.scheduled_at, record.covers_until
        if first not in every and record.covered == 1 and stray(record.key):
            continue
        if first not in every and record.trigger is Trigger.BACKFILL:
            continue  # a backfill of the current schedule in a range before that schedule
        on_request = record.skip_requested or _is_cancelled_on_request(record, evidence)
        if first not in every and on_request:
            continue  # removed by a change of the schedule
        if first not in every and former and record.state is RunState.CANCELLED:
            assert not record.attempts
            continue  # the deletion time is unknown by now
        assert first in every, f"{record.key.run_id} does not match an occurrence of the job"
        if record.covered_to is None:
            assert record.covered == 1
        version = every[first].schedule_version
        near = ats[bisect_left(ats, first) : bisect_right(ats, last)]
        instants = [at for at in near if every[at].schedule_version == version]
        assert len(instants) == record.covered, (
            f"{record.key.run_id} counts {record.covered}, but covers {len(instants)}"
        )
        covers.update(instants)
        assert record.state.ended, f"{record.key.run_id} is {record.state}"
        if record.covered > 1:
            assert (record.state, record.pool) == (RunState.SKIPPED, None)
        assert record.reason or record.state is RunState.SUCCEEDED
        if judge is not None:
            judge.judge(record, instants)
    missing = [
        format_time(at)
        for at in due
        if not covers[at] and not (without_schedule and _range_was_divided(at, covers, evidence))
    ]
    assert not missing, f"{len(missing)} occurrences without a record: {missing[:5]}"
    twice = {at for at, times in covers.items() if times > 1}
    if allow_late_starts:
        twice -= _picked_up_late(found) | _covered_at_once(found, twice)
    twice -= _cancelled_during_range_write(found, evidence)
    assert not twice, f"{len(twice)} occurrences accounted for more than once: {_first_few(twice)}"
    assert_chained(world, job, purged=purged)


def _stored(world: SystemState, job: Job) -> Job | None:
    """The job with the id of *job*; None if it was removed after its retention."""
    try:
        return world.job(job.key)
    except NotFoundError:
        assert job.state.ended, f"{job.key.job_id} was removed while it was {job.state}"
        return None


def _range_was_divided(at: datetime, covers: Counter[datetime], evidence: Evidence | None) -> bool:
    """Whether a missed range around *at* has a record in it. The range of a deleted or removed job
    cannot be divided there without the job's schedule, so the rest has no record: an open defect.
    """
    return evidence is not None and any(
        row.first <= at <= row.last
        and any(covers[each] for each in covers if row.first <= each <= row.last)
        for row, _ in evidence.missed
    )


def _is_cancelled_on_request(record: Run, evidence: Evidence | None) -> bool:
    """Whether a user cancelled the run before it began; it may have been redriven since."""
    asked = evidence is not None and evidence.asked_to_cancel(record.key)
    cancelled = record.state is RunState.CANCELLED and not record.attempts
    return asked and (cancelled or record.restarted)


def _assert_request_done(record: Run, occurrences: Collection[datetime]) -> None:
    """A requested run must have ended, and a manual run must not replace an occurrence."""
    name = f"{record.key.run_id} ({record.trigger})"
    assert record.state.ended, f"{name} is {record.state}"
    assert record.covered == 1, f"{name} is a range"
    if record.trigger is Trigger.MANUAL:
        at = record.key.scheduled_at
        assert at not in occurrences, f"{name} is an occurrence of its job"


def _first_few(ats: Collection[datetime]) -> list[str]:
    return [format_time(at) for at in sorted(ats)[:5]]


def _picked_up_late(found: list[Run]) -> set[datetime]:
    """The occurrences that an executor began more than a minute after they were due."""
    return {
        r.key.scheduled_at
        for r in found
        if r.attempts and r.attempts[0].started_at > r.key.scheduled_at + _MISSED
    }


def _covered_at_once(found: list[Run], every: Collection[datetime]) -> set[datetime]:
    """The occurrences in two ranges that were written at the same time: each writer had read the
    records before the other wrote.
    """
    ranges = [(r, r.finished_at) for r in found if r.covered > 1 and r.finished_at is not None]
    overlaps = [
        (
            max(one.key.scheduled_at, other.key.scheduled_at),
            min(one.covers_until, other.covers_until),
        )
        for (one, at), (other, its_at) in combinations(ranges, 2)
        if abs(at - its_at) <= 2 * CLOCKS_APART
    ]
    return {at for at in every if any(first <= at <= last for first, last in overlaps)}


def _cancelled_during_range_write(found: list[Run], evidence: Evidence | None) -> set[datetime]:
    """The occurrences that were cancelled by request while a range that covers them was being
    written: the request had found no record.
    """
    ranges = [(r, r.finished_at) for r in found if r.covered > 1 and r.finished_at is not None]
    return {
        r.key.scheduled_at
        for r in found
        if _is_cancelled_on_request(r, evidence) and r.finished_at is not None
        for covering, at in ranges
        if covering.key.scheduled_at <= r.key.scheduled_at <= covering.covers_until
        and (r.restarted or abs(at - r.finished_at) <= _CONCURRENT_WRITES)
    }


def _is_due(owner: Job, now: datetime) -> Callable[[datetime], bool]:
    """A chain proceeds from one occurrence to the next, so it waits for one that jitter delays."""
    return lambda at: owner.due_at(at) <= now


def assert_chained(world: SystemState, job: Job, *, purged: bool = False) -> None:
    """Check that an ACTIVE job has exactly one entry, for its next occurrence, and that there is a
    next occurrence. A job in another state must not have an entry of the current version. *purged*:
    see `assert_all_accounted_for`.
    """
    now = world.now
    fires = [
        e
        for e in world.entries
        if isinstance(e, FireEntry) and (e.job, e.uid) == (job.key, job.uid)
    ]
    current = {e for e in fires if e.version == job.schedule_version}
    if job.state is not JobState.ACTIVE:
        assert not current, f"a {job.state} job has an entry"
        return
    left = next(
        ([at] for at in _occurrences(job, now + timedelta(days=400)) if job.due_at(at) > now), []
    )
    assert len(current) == len(left), f"{len(current)} entries, next is {left}"
    over = not left and job.definition.type is not ScheduleType.MANUAL
    assert not over or purged, f"{job.key.job_id} is ACTIVE, and no occurrence is left"
    for entry in current:
        assert [entry.occurs_at] == left, f"{entry.sort_key} is not the next"
        assert entry.at == job.due_at(entry.occurs_at)


def settle(world: World, *, step: timedelta = _STEP, at_most: int = 20_000) -> int:
    """Advance time, with watchers and workers running, until nothing is due or queued. Return the
    largest number of messages that one poll sent.
    """
    most, still = 0, 0
    for _ in range(at_most):
        before = len(world.queue.log)
        world.watcher.poll(world.now)
        while world.watcher.next_at is not None and world.watcher.next_at <= world.now:
            world.watcher.release(world.now)
        most = max(most, len(world.queue.log) - before)
        world.worker().work()
        world.worker(pool="batch").work()
        still = 0 if _busy(world) else still + 1
        if still > 1:
            return most
        world.advance(seconds=step.total_seconds())
    raise AssertionError(f"not at rest at {world.now}: {world.entries[:3]}, {world.queued[:3]}")


def _busy(world: World) -> bool:
    now = world.now
    return (
        any(e.at <= now or isinstance(e, DispatchEntry) for e in world.entries)
        or any(len(queue) for queue in world.queue.queues.values())
        or any(not run.state.ended for run in world.runs.items.values())
    )
