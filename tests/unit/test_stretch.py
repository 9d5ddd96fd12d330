"""Counting the occurrences in a stretch of time, compared with iterating over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nextfire.domain import recurrence
from nextfire.domain import stretch as module
from nextfire.domain.instants import MINUTE, isoformat
from nextfire.domain.recurrence import occurrences
from nextfire.domain.schedule import Dst, Occurrence, Schedule, ScheduleType
from nextfire.domain.stretch import Stretch, count_occurrences, stretch
from tests.builders import NOON, a_job, at
from tests.crons import LONG

SPRING = datetime.fromisoformat("2026-03-28T20:00:00+00:00")
AUTUMN = datetime.fromisoformat("2026-10-24T20:00:00+00:00")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
SECONDS = st.integers(0, 3 * 86_400)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Schedules of every type, also around clock changes."""
    since = draw(st.sampled_from([SPRING, AUTUMN, NOON])) + timedelta(seconds=draw(SECONDS))
    zone = draw(
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
    )
    dst = draw(st.sampled_from(Dst))
    end_at = draw(st.none() | st.integers(1, 200_000))
    end = None if end_at is None else isoformat(since + timedelta(seconds=end_at))
    kind = draw(st.sampled_from([t for t in ScheduleType if t is not ScheduleType.MANUAL]))
    expression: str | tuple[str, ...]
    match kind:
        case ScheduleType.CRON:
            expression = draw(
                st.sampled_from(
                    ["*/7 * * * *", "0 * * * *", "30 2 * * *", "15 1,2,3 * * *", "0 0 * * 1"]
                )
            )
        case ScheduleType.INTERVAL:
            seconds = draw(st.integers(61, 50_000)) + draw(st.sampled_from([0, 0.5, 0.001]))
            expression = f"PT{seconds}S"
        case ScheduleType.DELAY:
            expression = f"PT{draw(st.integers(1, 90_000))}S"
        case ScheduleType.ONCE:
            expression = isoformat(since + timedelta(seconds=draw(st.integers(1, 90_000))))
        case _:
            offsets = draw(st.lists(st.integers(1, 200_000), min_size=1, max_size=12))
            local = [f"{since + timedelta(seconds=s):%Y-%m-%dT%H:%M:%S}" for s in offsets]
            expression = tuple(local)
    start = draw(st.none() | st.integers(0, 50_000))
    start_at = None if start is None else isoformat(since + timedelta(seconds=start))
    return Schedule(kind, expression, zone, since, start_at=start_at, end_at=end, dst=dst)


@settings(max_examples=3_000 if LONG else 250, deadline=None)
@given(schedules(), st.integers(0, 9), st.integers(-4_000, 250_000), st.integers(1, 400))
def test_a_stretch_is_what_a_walk_finds(
    schedule: Schedule, skip: int, seconds: int, at_most: int
) -> None:
    found = occurrences(schedule, schedule.effective_from)
    first = None
    for _ in range(skip + 1):
        first = next(found, first)
    assume(first is not None)
    assert first is not None
    until = first.at + timedelta(seconds=seconds)

    counted = stretch(schedule, first.at, until, at_most=at_most)

    walk = [first.at]
    for each in occurrences(schedule, first.at):
        if each.at > until or len(walk) == at_most:
            break
        walk.append(each.at)
    before_last = walk[-2] if len(walk) > 1 else None
    assert counted == Stretch(first.at, walk[-1], len(walk), before_last)


@settings(max_examples=3_000 if LONG else 250, deadline=None)
@given(schedules(), st.integers(-4_000, 250_000), st.integers(1_001, 5_000))
def test_counting_many_finds_as_many_as_a_walk(
    schedule: Schedule, seconds: int, at_most: int
) -> None:
    until = schedule.effective_from + timedelta(seconds=seconds)
    walk = takewhile(lambda o: o.at <= until, occurrences(schedule, schedule.effective_from))

    counted = count_occurrences(schedule, until, at_most=at_most)

    assert counted == min(len([*walk]), at_most)


def recording(walked: list[Occurrence]) -> Callable[[Schedule, datetime], Iterator[Occurrence]]:
    """The occurrences of a cron, which are added to *walked*."""
    walk = recurrence.cron_occurrences

    def watched(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
        for each in walk(schedule, after):
            walked.append(each)
            yield each

    return watched


def test_counting_many_walks_over_few(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Occurrence] = []
    watched = recording(walked)
    monkeypatch.setattr(recurrence, "cron_occurrences", watched)
    monkeypatch.setitem(recurrence._SOURCES, ScheduleType.CRON, watched)  # noqa: SLF001
    schedule = Schedule(ScheduleType.CRON, "* * * * *", "UTC", NOON)
    until = NOON + timedelta(minutes=200_001)  # used by no other test, because results are cached

    assert count_occurrences(schedule, until, at_most=100_000) == 100_000
    assert len(walked) < 100


def test_counting_decades_walks_only_over_what_clock_changes_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked: list[Occurrence] = []
    monkeypatch.setattr(module, "cron_occurrences", recording(walked))
    since = datetime.fromisoformat("1971-01-01T00:00:00+00:00")
    schedule = Schedule(ScheduleType.CRON, "* * * * *", "America/New_York", since)

    counted = stretch(schedule, since + MINUTE, NOON, at_most=10**12)

    assert counted.count == (NOON - since) // MINUTE
    assert len(walked) < 10_000  # 110 changes of an hour


@pytest.mark.parametrize("dst", Dst)
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Antarctica/Casey", "2010-03-04"),  # set back by three hours
        ("Antarctica/Troll", "2026-10-25"),  # set back by two hours
        ("Australia/Lord_Howe", "2026-04-04"),  # set back by half an hour
        ("Pacific/Apia", "2011-12-30"),  # a day is skipped
    ],
)
def test_a_count_over_a_large_clock_change_is_that_of_a_walk(zone: str, day: str, dst: Dst) -> None:
    midnight = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    until = midnight + timedelta(hours=40)
    for hours in range(-30, 31, 3):
        since = midnight + timedelta(hours=hours)
        schedule = Schedule(ScheduleType.CRON, "15,45 1-23 * * *", zone, since, dst=dst)
        walk = [*takewhile(lambda o: o.at <= until, occurrences(schedule, since))]

        assert stretch(schedule, walk[0].at, until, at_most=10**12).count == len(walk)


def test_an_interval_of_years_is_counted_at_once() -> None:
    schedule = Schedule(ScheduleType.INTERVAL, "PT1S", "UTC", NOON)
    later = NOON + timedelta(days=3_650)

    counted = stretch(schedule, at("12:00:01"), later, at_most=10**12)

    assert (counted.count, counted.last) == (3_650 * 86_400, later)


@pytest.mark.parametrize("zone", ZONES if LONG else ZONES[:2])
@pytest.mark.parametrize(
    ("expression", "since", "days"),
    [
        # 20 days reach over a change of the clocks.
        ("* * * * *", NOON if LONG else NOON + timedelta(days=145), 365 if LONG else 20),
        ("*/5 9-17 * * 1-5", NOON, 365),
        ("30 2 * * *", NOON, 365),
    ],
)
def test_a_year_of_a_cron_is_counted_as_a_walk_counts_it(
    zone: str, expression: str, since: datetime, days: int
) -> None:
    schedule = Schedule(ScheduleType.CRON, expression, zone, since)
    until = since + timedelta(days=days)
    walk = [o.at for o in takewhile(lambda o: o.at <= until, occurrences(schedule, since))]

    counted = stretch(schedule, walk[0], until, at_most=10**12)

    assert counted == Stretch(walk[0], walk[-1], len(walk), walk[-2])


@pytest.mark.parametrize(
    ("ordinal", "count", "last"), [(1, 5, "16:00"), (4, 2, "13:00"), (5, 1, "12:00")]
)
def test_a_job_s_stretch_ends_with_its_last_run(ordinal: int, count: int, last: str) -> None:
    job = a_job(since=at("11:30"), maxRuns=5)

    found = job.stretch(job.fire_entry(NOON, ordinal), at("20:00"))

    assert (found.count, found.last) == (count, at(last))


@pytest.mark.parametrize(("until", "last"), [("17:59", None), ("18:00", "18:00")])
def test_the_last_occurrence_that_max_runs_allows(until: str, last: str | None) -> None:
    job = a_job(maxRuns=6)

    assert job.last_allowed(at(until)) == (last and at(last))


def test_the_last_run_of_many_is_not_looked_for_in_the_future(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked: list[Occurrence] = []
    watched = recording(walked)
    monkeypatch.setattr(recurrence, "cron_occurrences", watched)
    monkeypatch.setitem(recurrence._SOURCES, ScheduleType.CRON, watched)  # noqa: SLF001

    assert a_job(schedule="*/2 * * * *", maxRuns=100_000).last_allowed(at("18:00")) is None
    assert len(walked) < 100


def test_a_stretch_holds_its_first_whatever_the_end() -> None:
    job = a_job(since=at("11:30"))

    assert job.stretch(job.fire_entry(NOON, 1), at("09:00")) == Stretch(NOON, NOON, 1)


def test_a_count_in_a_zone_whose_offset_has_seconds_is_that_of_a_walk() -> None:
    """Until 1972 Monrovia was 44 minutes and 30 seconds behind."""
    since = datetime.fromisoformat("1970-01-04T03:44:00+00:00")
    schedule = Schedule(ScheduleType.CRON, "* 3 * * *", "Africa/Monrovia", since)
    first, last = since + timedelta(seconds=30), since + timedelta(seconds=810)

    assert stretch(schedule, first, last, at_most=100) == Stretch(first, last, 14, last - MINUTE)
