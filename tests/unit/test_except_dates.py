"""Schedules without occurrences on some dates: `exceptDates`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.excluded import Excluded
from nextfire.domain.instants import MOMENT, parse_instant
from nextfire.domain.recurrence import check, next_instant, occurrences
from nextfire.domain.schedule import Dst, Schedule, ScheduleType
from nextfire.domain.stretch import Stretch, stretch
from nextfire.domain.zones import zone
from tests.builders import NOON, a_job, at
from tests.crons import ZONES, cases
from tests.unit.schedules import AUTUMN, BERLIN, SPRING, local, schedule
from tests.world import World
from tests.zone_releases import EARLIER, LATER, MOVED, OLD, disagree

NIGHTLY = ("CRON", "0 3 * * *", BERLIN)
CHRISTMAS = ("2026-12-25", "2026-12-26")
INTERVAL: dict[str, Any] = {"type": "INTERVAL", "timezone": MOVED, "exceptDates": ["2026-05-24"]}


def test_nothing_occurs_on_the_dates() -> None:
    of = schedule(*NIGHTLY, except_dates=CHRISTMAS)

    assert local(of, "2026-12-23T12:00:00Z", 3) == [
        "2026-12-24T03:00:00+01:00",
        "2026-12-27T03:00:00+01:00",
        "2026-12-28T03:00:00+01:00",
    ]


def test_the_dates_are_those_of_the_time_zone() -> None:
    """In Berlin, the date begins an hour before it does in UTC."""
    of = schedule("INTERVAL", "PT30M", BERLIN, except_dates=("2026-12-25",))

    assert local(of, "2026-12-24T22:00:00Z", 2) == [
        "2026-12-24T23:30:00+01:00",
        "2026-12-26T00:00:00+01:00",
    ]


@pytest.mark.parametrize("kind", ["ONCE", "DATES"])
def test_dates_that_are_listed_can_be_excluded(kind: str) -> None:
    listed = "2026-12-25T10:00" if kind == "ONCE" else ["2026-12-25T10:00", "2026-12-28T10:00"]
    of = schedule(kind, listed, BERLIN, except_dates=CHRISTMAS)

    assert local(of, "2026-01-01T00:00:00Z", 2) == ["2026-12-28T10:00:00+01:00"][kind == "ONCE" :]


def test_a_time_that_the_clock_skips_is_on_the_date_of_the_change() -> None:
    of = schedule("CRON", "30 2 * * *", BERLIN, except_dates=("2026-03-29",))

    assert local(of, SPRING, 1) == ["2026-03-30T02:30:00+02:00"]


def test_a_date_has_both_passes_of_a_repeated_hour() -> None:
    of = schedule("CRON", "30 * * * *", BERLIN, except_dates=("2026-10-25",))

    assert local(of, AUTUMN, 11)[-2:] == ["2026-10-24T23:30:00+02:00", "2026-10-26T00:30:00+01:00"]


@pytest.mark.parametrize("seed", range(3))
def test_occurrences_are_all_but_those_on_the_dates(seed: int) -> None:
    random, passed_over = Random(seed), 0  # noqa: S311 — reproducible cases
    for cron, name, after in cases(seed, 60):
        kind, text = ScheduleType.CRON, cron.text
        if random.random() < 0.3:
            kind, text = ScheduleType.INTERVAL, f"PT{random.randint(5, 500)}M"
        days = [f"{after + timedelta(days=random.randint(-1, 4)):%Y-%m-%d}" for _ in range(3)]
        dst, until = random.choice([*Dst]), after + timedelta(days=5)
        whole = Schedule(kind, text, name, after, dst=dst)
        of = Schedule(kind, text, name, after, dst=dst, except_dates=tuple(days))
        every = takewhile(lambda each: each.at <= until, occurrences(whole, after))  # noqa: B023
        all_ = [*every]
        kept = [each for each in all_ if f"{each.local:%Y-%m-%d}" not in days]
        case = f"{kind} {text} in {name}, {dst}, from {after.isoformat()}, not on {days}"

        found = [*takewhile(lambda each: each.at <= until, occurrences(of, after))]  # noqa: B023

        assert found == kept, case
        passed_over += len(all_) - len(kept)
        begin = after
        for each in kept:
            begin = next_instant(of, begin) or begin
            assert begin == each.at, case
        if kept:
            at_most = random.choice([1, 2, len(kept), 10**9])
            ats = [each.at for each in kept][:at_most]
            before_last = ats[-2] if len(ats) > 1 else None
            counted = stretch(of, ats[0], until, at_most=at_most)
            assert counted == Stretch(ats[0], ats[-1], len(ats), before_last), case
    assert passed_over > 1_000, "these dates hardly exclude anything"


@pytest.mark.parametrize("name", ZONES)
def test_an_instant_is_excluded_if_the_clock_shows_the_date(name: str) -> None:
    """Also where the clock changes at midnight, and a date begins twice or never."""
    random = Random(name)  # noqa: S311 — reproducible cases
    for _, _, near in [case for case in cases(7, 400) if case[1] == name]:
        days = {(near + timedelta(days=n)).date() for n in random.sample(range(-2, 3), 2)}
        without = Excluded(tuple(map(str, days)), name)
        begin, end = near - timedelta(days=4), near + timedelta(days=4)
        parts = [*without.between(begin, end)]
        minutes = [begin + timedelta(minutes=n) for n in range(0, 8 * 1440, 30)]
        for each in minutes:
            excluded_until = without.end_at(each)
            is_excluded = each.astimezone(zone(name)).date() in days
            assert (excluded_until is not None) == is_excluded, (name, each, days)
            assert any(low <= each <= high for low, high in parts) != is_excluded
            if excluded_until is not None:
                assert without.end_at(excluded_until) is None
                assert without.end_at(excluded_until - MOMENT) == excluded_until


def test_a_century_of_seconds_is_counted_at_once() -> None:
    holidays = tuple(f"{year}-12-25" for year in range(2027, 2097))
    since = parse_instant("2026-12-31T00:00:00Z")
    of = Schedule(ScheduleType.INTERVAL, "PT1S", "UTC", since, except_dates=holidays)
    until = datetime(2097, 1, 1, tzinfo=UTC)

    counted = stretch(of, since + timedelta(seconds=1), until, at_most=10**12)

    assert counted.count == ((until - since).days - 70) * 86_400


def test_max_runs_does_not_count_the_dates() -> None:
    zoned: dict[str, Any] = {"timezone": "Etc/GMT-12", "exceptDates": ["2026-05-25"]}
    job = a_job(schedule="0 * * * *", since=at("11:30"), maxRuns=3, **zoned)

    assert NOON.astimezone(zone("Etc/GMT-12")).isoformat() == "2026-05-25T00:00:00+12:00"
    found = job.definition.next_occurrences(job.effective_from, job.effective_from, 9)
    assert [f"{each:%d %H:%M}" for each in found] == ["25 12:00", "25 13:00", "25 14:00"]
    assert job.ordinal(found[-1]) == 3
    assert job.is_last(found[-1])


def test_what_is_on_a_date_by_the_new_rules_of_its_zone_is_passed_over_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The date ends at 20:30 at first, then at 21:00."""
    releases = [OLD]
    disagree(monkeypatch, lambda: releases[-1])
    job = a_job(schedule="PT20M", since=at("11:20"), **INTERVAL)
    entry = job.first()
    assert entry is not None
    assert entry.occurs_at == at("20:40")

    releases.append(LATER)
    moved = job.moved(entry)

    assert moved is not None
    assert moved.to is not None
    assert moved.to.occurs_at == at("21:00")


def test_the_old_rules_of_its_zone_pass_over_nothing_but_the_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The date ends at 20:00 by the new rules, at 20:30 by the old ones."""
    releases = [EARLIER]
    disagree(monkeypatch, lambda: releases[-1])
    job = a_job(schedule="PT10M", since=at("11:20"), **INTERVAL)
    entry = job.first()
    assert entry is not None
    assert entry.occurs_at == at("20:00")

    releases.append(OLD)
    successor = job.successor(entry)

    assert successor is not None
    assert successor.occurs_at == at("20:30")


def test_a_schedule_that_fires_on_these_dates_only_is_rejected() -> None:
    of = schedule("ONCE", "2026-12-25", since="2026-01-01T00:00:00Z", except_dates=CHRISTMAS)

    with pytest.raises(InvalidInputError) as error:
        check(of)

    assert error.value.field == "exceptDates"
    assert "Omit the date of an occurrence" in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-02-29", "this date does not exist"),
        ("2026-13-01", "this date does not exist"),
        ("1970-01-01", "not between 1970 and 2100"),
        ("2099-12-31", "not between 1970 and 2100"),
    ],
)
def test_a_date_that_cannot_be_is_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        check(schedule(*NIGHTLY, except_dates=("2026-12-25", text)))

    assert (error.value.field, error.value.problem) == ("exceptDates", problem)


@pytest.mark.parametrize("dates", [["25.12.2026"], ["2026-12-25T00:00"], "2026-12-25", [1], None])
def test_other_forms_are_rejected(dates: object) -> None:
    with pytest.raises(ValidationError):
        a_job(exceptDates=dates)


def test_the_same_dates_in_another_order_restart_nothing() -> None:
    world = World("12:00")
    job = world.register(type="INTERVAL", schedule="PT1H", exceptDates=[*CHRISTMAS])
    world.at("12:20")

    changed = world.change(job, exceptDates=[CHRISTMAS[1], *CHRISTMAS])

    assert changed.schedule_version == job.schedule_version
    assert changed.definition.except_dates == CHRISTMAS


def test_at_most_a_hundred_dates() -> None:
    days = [f"2027-{month:02d}-{day:02d}" for month in range(1, 13) for day in range(1, 10)]

    assert a_job(exceptDates=days[:100]).definition.except_dates == tuple(days[:100])
    with pytest.raises(ValidationError):
        a_job(exceptDates=days[:101])
