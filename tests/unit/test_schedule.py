"""When jobs are due: every type and rule, in spring and in autumn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nextfire.domain.definition import SCHEDULE_FIELDS
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.jitter import jitter
from nextfire.domain.occurrences import JobState
from nextfire.domain.preview import upcoming
from nextfire.domain.recurrence import check, next_instant, next_occurrences, occurrences
from nextfire.domain.schedule import Dst, Schedule, ScheduleType
from nextfire.domain.stretch import count_occurrences
from nextfire.domain.zones import HORIZON
from tests.builders import NOON, a_definition, a_job

BERLIN = "Europe/Berlin"
LONG_AGO = parse_instant("1990-01-01T00:00:00Z")


def schedule(
    kind: str,
    expression: str | Sequence[str] | None,
    timezone: str = "UTC",
    *,
    since: str = "",
    dst: str = "ONCE",
    **bounds: str,
) -> Schedule:
    if expression is not None and not isinstance(expression, str):
        expression = tuple(expression)
    effective_from = parse_instant(since) if since else LONG_AGO
    return Schedule(
        ScheduleType(kind), expression, timezone, effective_from, dst=Dst(dst), **bounds
    )


def local(of: Schedule, after: str, count: int) -> list[str]:
    found = next_occurrences(of, parse_instant(after), count)
    assert all(each.at == each.local for each in found)
    return [each.local.isoformat() for each in found]


def utc(of: Schedule, after: str, count: int) -> list[str]:
    return [isoformat(each.at) for each in next_occurrences(of, parse_instant(after), count)]


def notes(of: Schedule, after: str, count: int) -> list[str]:
    return [each.note for each in next_occurrences(of, parse_instant(after), count)]


SPRING, AUTUMN = "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"
"""In Berlin, 02:00 becomes 03:00 on 29 March, and 03:00 becomes 02:00 on 25 October."""


class TestClockChange:
    @pytest.mark.parametrize(
        ("cron", "dst", "spring", "autumn"),
        [
            (
                "30 2 * * *",
                "ONCE",
                ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
                ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
            ),
            (
                "30 2 * * *",
                "EACH",
                ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
                [
                    "2026-10-25T02:30:00+02:00",
                    "2026-10-25T02:30:00+01:00",
                    "2026-10-26T02:30:00+01:00",
                ],
            ),
            (
                "0,30 2,3 * * *",
                "ONCE",
                [
                    "2026-03-29T03:00:00+02:00",
                    "2026-03-29T03:30:00+02:00",
                    "2026-03-30T02:00:00+02:00",
                ],
                [
                    "2026-10-25T02:00:00+02:00",
                    "2026-10-25T02:30:00+02:00",
                    "2026-10-25T03:00:00+01:00",
                    "2026-10-25T03:30:00+01:00",
                ],
            ),
            (
                "0,30 2,3 * * *",
                "EACH",
                ["2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"],
                [
                    "2026-10-25T02:00:00+02:00",
                    "2026-10-25T02:30:00+02:00",
                    "2026-10-25T02:00:00+01:00",
                    "2026-10-25T02:30:00+01:00",
                    "2026-10-25T03:00:00+01:00",
                ],
            ),
            (
                "*/20 2 * * *",
                "ONCE",
                ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
                [
                    "2026-10-25T02:00:00+02:00",
                    "2026-10-25T02:20:00+02:00",
                    "2026-10-25T02:40:00+02:00",
                    "2026-10-26T02:00:00+01:00",
                ],
            ),
            (
                "30 0-23 * * 0",
                "ONCE",
                [
                    "2026-03-29T00:30:00+01:00",
                    "2026-03-29T01:30:00+01:00",
                    "2026-03-29T03:00:00+02:00",
                    "2026-03-29T03:30:00+02:00",
                ],
                [
                    "2026-10-25T00:30:00+02:00",
                    "2026-10-25T01:30:00+02:00",
                    "2026-10-25T02:30:00+02:00",
                    "2026-10-25T03:30:00+01:00",
                ],
            ),
            *(
                (
                    "30 */2 * * 0",
                    dst,
                    ["2026-03-29T00:30:00+01:00", "2026-03-29T04:30:00+02:00"],
                    [
                        "2026-10-25T00:30:00+02:00",
                        "2026-10-25T02:30:00+02:00",
                        "2026-10-25T02:30:00+01:00",
                        "2026-10-25T04:30:00+01:00",
                    ],
                )
                for dst in ("ONCE", "EACH")
            ),
            (
                "0 3 * * *",
                "ONCE",
                ["2026-03-29T03:00:00+02:00", "2026-03-30T03:00:00+02:00"],
                ["2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"],
            ),
        ],
    )
    def test_cron(self, cron: str, dst: str, spring: list[str], autumn: list[str]) -> None:
        of = schedule("CRON", cron, BERLIN, dst=dst)

        assert local(of, SPRING, len(spring)) == spring
        assert local(of, AUTUMN, len(autumn)) == autumn

    def test_interval_goes_by_elapsed_time(self) -> None:
        spring = schedule("INTERVAL", "PT45M", BERLIN, since="2026-03-29T00:00:00Z")
        autumn = schedule("INTERVAL", "PT45M", BERLIN, since="2026-10-25T00:00:00Z")

        assert local(spring, "2026-03-29T00:00:00Z", 3) == [
            "2026-03-29T01:45:00+01:00",
            "2026-03-29T03:30:00+02:00",
            "2026-03-29T04:15:00+02:00",
        ]
        assert local(autumn, "2026-10-25T00:00:00Z", 3) == [
            "2026-10-25T02:45:00+02:00",
            "2026-10-25T02:30:00+01:00",
            "2026-10-25T03:15:00+01:00",
        ]

    def test_once(self) -> None:
        for dst in Dst:
            spring = schedule("ONCE", "2026-03-29T02:30", BERLIN, dst=dst)
            autumn = schedule("ONCE", "2026-10-25T02:30", BERLIN, dst=dst)
            assert local(spring, SPRING, 9) == ["2026-03-29T03:00:00+02:00"]
            assert local(autumn, AUTUMN, 9) == ["2026-10-25T02:30:00+02:00"]
            assert local(autumn, "2026-10-25T00:30:00Z", 9) == []

    def test_dates(self) -> None:
        dates = ["2026-10-25T02:30", "2026-03-29T02:45", "2026-03-29T02:30", "2026-03-29T03:00"]

        assert local(schedule("DATES", dates, BERLIN), SPRING, 9) == [
            "2026-03-29T03:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
        ]
        assert local(schedule("DATES", dates, BERLIN, dst="EACH"), SPRING, 9) == [
            "2026-03-29T03:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:30:00+01:00",
        ]

    @pytest.mark.parametrize(
        ("cron", "dst", "after", "expected"),
        [
            (
                "30 2 * * *",
                "ONCE",
                SPRING,
                ["2026-03-29T02:30 is skipped by the clock: fires once, at the change", ""],
            ),
            (
                "15,45 1-2 * * *",
                "ONCE",
                "2026-03-29T00:50:00Z",
                [
                    (
                        "2026-03-29T02:15, 2026-03-29T02:45 are skipped by the clock: fires once,"
                        " at the change"
                    )
                ],
            ),
            (
                "*/5 2,3 * * *",
                "EACH",
                SPRING,
                [
                    (
                        "2026-03-29T02:00, …, 2026-03-29T02:55 (12 times) are skipped by the clock:"
                        " fires once, at the change, with 2026-03-29T03:00"
                    ),
                    "",
                ],
            ),
            (
                "30 2 * * *",
                "ONCE",
                AUTUMN,
                ["2026-10-25T02:30 occurs twice: fires the first time only", ""],
            ),
            (
                "30 2 * * *",
                "EACH",
                AUTUMN,
                [
                    "2026-10-25T02:30 occurs twice: the first time",
                    "2026-10-25T02:30 occurs twice: the second time",
                    "",
                ],
            ),
            ("30 * * * *", "ONCE", "2026-10-25T00:00:00Z", ["", "", ""]),
            ("0 3 * * *", "ONCE", SPRING, [""]),
        ],
    )
    def test_notes(self, cron: str, dst: str, after: str, expected: list[str]) -> None:
        assert notes(schedule("CRON", cron, BERLIN, dst=dst), after, len(expected)) == expected

    @pytest.mark.parametrize(
        ("name", "cron", "after", "expected"),
        [
            # Half an hour, by summer time and by a new standard time
            (
                "Australia/Lord_Howe",
                "15 2 * * *",
                "2026-10-03T00:00:00Z",
                ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
            ),
            (
                "Australia/Lord_Howe",
                "45 1 * * *",
                "2026-04-04T00:00:00Z",
                ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"],
            ),
            (
                "Australia/Lord_Howe",
                "45 * * * *",
                "2026-04-04T14:00:00Z",
                ["2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30"],
            ),
            (
                "America/Caracas",
                "45 2 * * *",
                "2016-04-30T12:00:00Z",
                ["2016-05-01T03:00:00-04:00", "2016-05-02T02:45:00-04:00"],
            ),
            (
                "Asia/Pyongyang",
                "45 23 * * *",
                "2015-08-14T00:00:00Z",
                ["2015-08-14T23:45:00+09:00", "2015-08-15T23:45:00+08:30"],
            ),
            (
                "Asia/Pyongyang",
                "45 23 * * *",
                "2018-05-04T00:00:00Z",
                ["2018-05-05T00:00:00+09:00", "2018-05-05T23:45:00+09:00"],
            ),
            # Changes by two hours
            (
                "Antarctica/Troll",
                "30 1,2 * * *",
                "2026-03-28T12:00:00Z",
                ["2026-03-29T03:00:00+02:00", "2026-03-30T01:30:00+02:00"],
            ),
            (
                "Antarctica/Troll",
                "30 1,2 * * *",
                "2026-10-24T12:00:00Z",
                ["2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00"],
            ),
            # Changes at midnight, forward and back
            (
                "Africa/Cairo",
                "0 0 * * *",
                "2026-04-23T12:00:00Z",
                ["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"],
            ),
            (
                "Africa/Cairo",
                "30 23 * * *",
                "2026-10-29T12:00:00Z",
                ["2026-10-29T23:30:00+03:00", "2026-10-30T23:30:00+02:00"],
            ),
            # A change one minute past midnight: the clock goes back into the day before
            (
                "America/St_Johns",
                "0 0 * * *",
                "2009-10-31T12:00:00Z",
                ["2009-11-01T00:00:00-02:30", "2009-11-02T00:00:00-03:30"],
            ),
            (
                "America/St_Johns",
                "30 23,0 * * *",
                "2009-10-31T12:00:00Z",
                ["2009-10-31T23:30:00-02:30", "2009-11-01T00:30:00-03:30"],
            ),
            (
                "America/St_Johns",
                "*/30 * * * *",
                "2009-11-01T01:45:00Z",
                [
                    "2009-10-31T23:30:00-02:30",
                    "2009-11-01T00:00:00-02:30",
                    "2009-10-31T23:30:00-03:30",
                    "2009-11-01T00:00:00-03:30",
                ],
            ),
            # A day that does not exist
            (
                "Pacific/Apia",
                "0 12 * * *",
                "2011-12-29T00:00:00Z",
                [
                    "2011-12-29T12:00:00-10:00",
                    "2011-12-31T00:00:00+14:00",
                    "2011-12-31T12:00:00+14:00",
                ],
            ),
            (
                "Pacific/Apia",
                "0 */12 * * *",
                "2011-12-29T21:00:00Z",
                [
                    "2011-12-29T12:00:00-10:00",
                    "2011-12-31T00:00:00+14:00",
                    "2011-12-31T12:00:00+14:00",
                ],
            ),
            # Winter time as "summer time" with a negative saving
            (
                "Europe/Dublin",
                "30 1 * * *",
                "2026-03-28T12:00:00Z",
                ["2026-03-29T02:00:00+01:00", "2026-03-30T01:30:00+01:00"],
            ),
            (
                "Europe/Dublin",
                "30 1 * * *",
                "2026-10-24T12:00:00Z",
                ["2026-10-25T01:30:00+01:00", "2026-10-26T01:30:00+00:00"],
            ),
            (
                "Africa/Casablanca",
                "30 2 * * *",
                "2026-02-14T12:00:00Z",
                ["2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00+00:00"],
            ),
            (
                "Africa/Casablanca",
                "30 2 * * *",
                "2026-03-21T12:00:00Z",
                ["2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"],
            ),
            # Summer time that became permanent
            (
                "Europe/Istanbul",
                "30 3 * * *",
                "2016-10-29T12:00:00Z",
                ["2016-10-30T03:30:00+03:00", "2016-10-31T03:30:00+03:00"],
            ),
        ],
    )
    def test_odd_zones(self, name: str, cron: str, after: str, expected: list[str]) -> None:
        assert local(schedule("CRON", cron, name), after, len(expected)) == expected

    def test_asked_in_the_second_round_the_first_is_over(self) -> None:
        of = schedule("CRON", "*/15 2 * * *", BERLIN)

        assert local(of, "2026-10-25T01:10:00Z", 1) == ["2026-10-26T02:00:00+01:00"]

    def test_asked_at_the_change_itself(self) -> None:
        spring = schedule("CRON", "30 2,3 * * *", BERLIN)

        assert utc(spring, "2026-03-29T00:59:59.999Z", 1) == ["2026-03-29T01:00:00Z"]
        assert utc(spring, "2026-03-29T01:00:00Z", 1) == ["2026-03-29T01:30:00Z"]


class TestTypes:
    def test_occurrences_are_strictly_after(self) -> None:
        of = schedule("CRON", "* * * * *")

        assert utc(of, "2026-05-24T12:00:00Z", 1) == ["2026-05-24T12:01:00Z"]
        assert utc(of, "2026-05-24T11:59:59.999Z", 1) == ["2026-05-24T12:00:00Z"]

    def test_occurrences_are_after_effective_from(self) -> None:
        of = schedule("CRON", "0 * * * *", since="2026-05-24T12:00:00Z")

        assert utc(of, "2026-05-24T00:00:00Z", 1) == ["2026-05-24T13:00:00Z"]

    def test_delay(self) -> None:
        of = schedule("DELAY", "P1DT0.5S", since="2026-05-24T12:00:00Z")

        assert utc(of, "2026-05-24T12:00:00Z", 9) == ["2026-05-25T12:00:00.500Z"]
        assert utc(of, "2026-05-25T12:00:00.500Z", 9) == []

    def test_interval_counts_from_effective_from(self) -> None:
        of = schedule("INTERVAL", "PT7M", since="2026-05-24T12:00:00.250Z")

        assert utc(of, "2026-05-24T12:00:00.250Z", 2) == [
            "2026-05-24T12:07:00.250Z",
            "2026-05-24T12:14:00.250Z",
        ]
        # The phase does not depend on the instant of the query.
        assert utc(of, "2027-01-01T00:00:00Z", 1) == ["2027-01-01T00:02:00.250Z"]
        assert utc(of, "2026-05-24T12:14:00.250Z", 1) == ["2026-05-24T12:21:00.250Z"]

    def test_interval_counts_from_start_at(self) -> None:
        later = schedule(
            "INTERVAL", "PT7M", since="2026-05-24T12:00:00Z", start_at="2026-05-24T13:00:00Z"
        )
        before = schedule(
            "INTERVAL", "PT7M", since="2026-05-24T12:00:00Z", start_at="2026-05-24T11:55:00Z"
        )

        assert utc(later, "2026-05-24T12:00:00Z", 2) == [
            "2026-05-24T13:00:00Z",
            "2026-05-24T13:07:00Z",
        ]
        assert utc(before, "2026-05-24T12:00:00Z", 1) == ["2026-05-24T12:02:00Z"]

    def test_dates_are_sorted_and_distinct(self) -> None:
        of = schedule(
            "DATES",
            [
                "2027-01-02",
                "2027-01-01T12:00:00Z",
                "2027-01-01T13:00+01:00",
                "2027-01-01T13:00",
                "2026-12-31T23:00:00.5Z",
            ],
            BERLIN,
        )

        assert utc(of, "2026-05-24T12:00:00Z", 9) == [
            "2026-12-31T23:00:00.500Z",
            "2027-01-01T12:00:00Z",
            "2027-01-01T23:00:00Z",
        ]
        assert utc(of, "2027-01-01T12:00:00Z", 9) == ["2027-01-01T23:00:00Z"]

    def test_manual_has_none(self) -> None:
        of = schedule("MANUAL", None)

        assert check(of) is None
        assert next_occurrences(of, NOON, 5) == []
        assert a_job(type="MANUAL", schedule=None).next_after(NOON) is None

    @pytest.mark.parametrize("kind", ["CRON", "DATES", "INTERVAL"])
    def test_bounds_are_included(self, kind: str) -> None:
        expression = {
            "CRON": "0 * * * *",
            "DATES": [f"2026-05-24T{hour}:00:00Z" for hour in range(10, 20)],
            "INTERVAL": "PT1H",
        }[kind]
        of = schedule(
            kind, expression, start_at="2026-05-24T13:00:00Z", end_at="2026-05-24T15:00:00Z"
        )

        assert utc(of, "2026-05-24T00:00:00Z", 9) == [
            "2026-05-24T13:00:00Z",
            "2026-05-24T14:00:00Z",
            "2026-05-24T15:00:00Z",
        ]
        assert next_instant(of, parse_instant("2026-05-24T15:00:00Z")) is None
        assert next_instant(of, parse_instant("2026-05-24T14:59:59.999Z")) is not None

    def test_bounds_of_the_wall_clock(self) -> None:
        of = schedule(
            "CRON",
            "*/30 * * * *",
            BERLIN,
            start_at="2026-10-25T02:00",
            end_at="2026-10-25T02:30",
        )

        assert local(of, AUTUMN, 9) == ["2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00"]

    def test_nothing_is_beyond_the_horizon(self) -> None:
        for kind, expression in (("CRON", "* * * * *"), ("INTERVAL", "PT1M")):
            of = schedule(kind, expression)
            assert utc(of, "2099-12-31T23:58:00Z", 9) == ["2099-12-31T23:59:00Z"]
            assert next_instant(of, HORIZON) is None
            assert next_instant(of, datetime.max.replace(tzinfo=UTC)) is None
            assert next_instant(of, datetime.min.replace(tzinfo=UTC)) is not None
        assert utc(schedule("CRON", "0 0 29 2 *", BERLIN), "2096-03-01T00:00:00Z", 9) == []


class TestCheck:
    @pytest.mark.parametrize(
        ("of", "field", "problem"),
        [
            (schedule("ONCE", "2026-05-24T11:00:00Z"), "schedule", "never fires"),
            (schedule("ONCE", "tomorrow"), "schedule", "ISO 8601"),
            (schedule("ONCE", "2026-W21-7"), "schedule", "ISO 8601"),
            (schedule("ONCE", "2027-02-30"), "schedule", "2027-02 has 28 days"),
            (schedule("ONCE", "2026-13-01T00:00"), "schedule", "does not exist"),
            (schedule("ONCE", "2026-05-24T10:00:00+99:99"), "schedule", "does not exist"),
            (schedule("ONCE", "٢٠٣٠-01-01"), "schedule", "ISO 8601"),
            (schedule("ONCE", "2100-01-01T00:00:00Z"), "schedule", "not between 1970-01-02"),
            (schedule("ONCE", "0001-01-01T00:00:00+14:00"), "schedule", "not between 1970-01-02"),
            (schedule("ONCE", "9999-12-31T23:59:59-12:00"), "schedule", "not between 1970-01-02"),
            (schedule("ONCE", None), "schedule", "not a string"),
            (schedule("DELAY", "P1M"), "schedule", "duration"),
            (schedule("DELAY", "PT\u0665S"), "schedule", "duration"),
            (schedule("INTERVAL", "PT0.5S"), "schedule", "shorter"),
            (schedule("INTERVAL", f"P{'9' * 400}D"), "schedule", "duration"),
            (schedule("DATES", ["2030-01-01", "x"]), "schedule.1", "ISO 8601"),
            (schedule("DATES", ["x"]), "schedule.0", "ISO 8601"),
            (schedule("DATES", []), "schedule", "list"),
            (schedule("DATES", "2030-01-01"), "schedule", "list"),
            (schedule("DATES", ["2026-05-24T10:00:00Z"]), "schedule", "never fires"),
            (schedule("CRON", "0 0 30 2 *"), "schedule", "never matches"),
            (schedule("CRON", "0 0 */30 4,6 1#5"), "schedule", "never fires"),
            (schedule("CRON", "0 0 * * *", "Mars/Olympus"), "timezone", "zone"),
            (schedule("MANUAL", None, "Mars/Olympus"), "timezone", "zone"),
            (schedule("MANUAL", None, end_at="x"), "endAt", "ISO 8601"),
            (schedule("CRON", "0 0 * * *", start_at="x"), "startAt", "ISO 8601"),
            (schedule("CRON", "0 0 * * *", end_at="2101-01-01"), "endAt", "not between 1970-01-02"),
            (
                schedule("CRON", "0 0 * * *", start_at="2030-01-02", end_at="2030-01-01"),
                "endAt",
                "before startAt",
            ),
            (schedule("CRON", "0 0 * * *", end_at="2026-05-24T12:00:00Z"), "endAt", "not after"),
            (schedule("CRON", "0 0 1 * *", end_at="2026-05-31T23:59"), "endAt", "before the first"),
            (schedule("INTERVAL", "P7D", end_at="2026-05-30"), "endAt", "before the first"),
            (
                schedule("ONCE", "2026-06-01", start_at="2026-06-02"),
                "schedule",
                "and at or after startAt",
            ),
        ],
        ids=lambda value: "" if isinstance(value, str) else str(value.expression)[:20],
    )
    def test_refused_with_an_example_that_works(
        self, of: Schedule, field: str, problem: str
    ) -> None:
        of = Schedule(of.type, of.expression, of.timezone, NOON, of.start_at, of.end_at, of.dst)

        with pytest.raises(InvalidInputError) as refused:
            check(of)

        error = refused.value
        assert error.field == field
        assert problem in error.problem
        [shown] = re.findall(r"For example `([^`]+)`\.$", error.remedy)
        assert check(_with_field(of, field, shown)) or of.type is ScheduleType.MANUAL

    def test_the_first_is_told(self) -> None:
        of = schedule("CRON", "0 13 * * *", since="2026-05-24T12:00:00Z")

        assert check(of) == parse_instant("2026-05-24T13:00:00Z")


def _with_field(of: Schedule, field: str, value: str) -> Schedule:
    parts: dict[str, Any] = {
        name: getattr(of, name) for name in ("expression", "timezone", "start_at", "end_at")
    }
    if field == "schedule.1":
        parts["expression"] = (of.expression[0], value) if of.expression else ()
    elif of.type is ScheduleType.DATES:
        parts["expression"] = (value.strip('[]"'),)
    else:
        names = {"schedule": "expression", "startAt": "start_at", "endAt": "end_at"}
        parts[names.get(field, field)] = value
    return Schedule(type=of.type, effective_from=of.effective_from, dst=of.dst, **parts)


class TestJitter:
    @given(st.text(max_size=20), st.datetimes(), st.integers(1, 3600))
    def test_it_is_a_hash_within_its_bounds(self, key: str, at: datetime, seconds: int) -> None:
        width, at = timedelta(seconds=seconds), at.replace(tzinfo=UTC)

        found = jitter(key, at, width)

        assert timedelta() <= found < width
        assert found % timedelta(milliseconds=1) == timedelta()
        assert jitter(key, at, width) == found

    def test_it_stays_the_same_for_ever(self) -> None:
        # Stored due entries depend on these values.
        assert jitter("uid00001", NOON, timedelta(seconds=60)) == timedelta(milliseconds=17818)

    def test_none_without_a_width(self) -> None:
        assert jitter("uid00001", NOON, timedelta()) == timedelta()

    def test_it_spreads_jobs_and_occurrences(self) -> None:
        width = timedelta(seconds=60)
        of_jobs = [jitter(f"uid{n:05}", NOON, width) for n in range(600)]
        of_one = [jitter("uid00001", NOON + timedelta(hours=n), width) for n in range(600)]

        for found in (of_jobs, of_one):
            slots = {each // timedelta(seconds=5) for each in found}
            assert slots == set(range(12))


class TestUpcoming:
    HOURLY = schedule("CRON", "0 * * * *", since="2026-05-24T12:00:00Z")

    def test_it_stops_at_max_runs(self) -> None:
        def ahead(after: str, count: int = 9) -> list[str]:
            found = upcoming(self.HOURLY, parse_instant(after), count, max_runs=3)
            return [isoformat(each.due_at) for each in found]

        whole = ["2026-05-24T13:00:00Z", "2026-05-24T14:00:00Z", "2026-05-24T15:00:00Z"]
        assert ahead("2026-05-24T12:00:00Z") == whole
        assert ahead("2026-05-24T12:00:00Z", 2) == whole[:2]
        assert ahead("2026-05-24T13:00:00Z") == whole[1:]
        assert ahead("2026-05-24T15:00:00Z") == []
        assert ahead("2030-05-24T15:00:00Z") == []

    def test_due_instants_have_their_jitter(self) -> None:
        width = timedelta(seconds=600)

        found = upcoming(self.HOURLY, NOON, 5, jitter_key="uid00001", jitter_width=width)

        assert [each.occurrence.at.hour for each in found] == [13, 14, 15, 16, 17]
        for each in found:
            assert each.due_at - each.occurrence.at == jitter("uid00001", each.occurrence.at, width)

    def test_what_jitter_has_put_off_is_still_to_come(self) -> None:
        width, at = timedelta(seconds=3600), NOON + timedelta(hours=1)
        delay = jitter("uid00001", at, width)

        def first(after: datetime, max_runs: int | None = None) -> list[datetime]:
            found = upcoming(
                self.HOURLY, after, 1, max_runs=max_runs, jitter_key="uid00001", jitter_width=width
            )
            return [each.occurrence.at for each in found]

        moment = timedelta(milliseconds=1)
        assert first(at + delay - moment) == [at]
        assert first(at + delay - moment, max_runs=1) == [at]
        assert first(at + delay) != [at]
        assert first(at + delay, max_runs=1) == []

    @pytest.mark.parametrize("at_most", [1, 5, 100, 2_000])
    def test_count(self, at_most: int) -> None:
        until = NOON + timedelta(hours=10)

        assert count_occurrences(self.HOURLY, until, at_most=at_most) == min(10, at_most)
        assert count_occurrences(self.HOURLY, NOON, at_most=at_most) == 0

    def test_only_an_active_job_has_any(self) -> None:
        assert len(a_job(maxRuns=2).upcoming(NOON, 9)) == 2
        for state in set(JobState) - {JobState.ACTIVE}:
            assert a_job(state=state).upcoming(NOON, 9) == []


INSTANTS = st.datetimes(datetime(1960, 1, 1), datetime(2110, 1, 1))  # noqa: DTZ001


@given(
    expression=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 29 2 *", "0 0,2 L * 1#1"]),
    name=st.sampled_from([BERLIN, "Australia/Lord_Howe", "America/St_Johns", "UTC"]),
    dst=st.sampled_from(Dst),
    after=INSTANTS,
)
def test_instants_ascend_and_do_not_depend_on_who_asked_before(
    expression: str, name: str, dst: Dst, after: datetime
) -> None:
    of = Schedule(ScheduleType.CRON, expression, name, LONG_AGO, dst=dst)
    found = [each.at for each in next_occurrences(of, after.replace(tzinfo=UTC), 8)]

    for one, two in pairwise(found):
        assert one < two
        assert next_instant(of, one) == two
        assert next_instant(of, two - timedelta(milliseconds=1)) == two


def test_schedule_fields_make_a_new_version() -> None:
    assert {
        "type",
        "schedule",
        "timezone",
        "start_at",
        "end_at",
        "dst",
        "max_runs",
        "jitter_sec",
    } == SCHEDULE_FIELDS


def test_a_definition_passes_all_schedule_fields() -> None:
    definition = a_definition(
        "PT1H", "INTERVAL", startAt="2026-06-01", endAt="2026-07-01", dst="EACH", timezone=BERLIN
    )

    assert definition.schedule_from(NOON) == Schedule(
        ScheduleType.INTERVAL, "PT1H", BERLIN, NOON, "2026-06-01", "2026-07-01", Dst.EACH
    )
    assert next(occurrences(definition.schedule_from(NOON), NOON)).local.isoformat() == (
        "2026-06-01T00:00:00+02:00"
    )


@pytest.mark.parametrize(
    ("kind", "expression"),
    [("CRON", None), ("CRON", ["@daily"]), ("DATES", "2030-01-01"), ("DATES", []), ("MANUAL", "")],
)
def test_a_schedule_has_the_form_of_its_type(kind: str, expression: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        a_definition(expression, kind)

    [fault] = refused.value.errors()
    assert fault["loc"] == ("schedule",)
    assert fault["ctx"]["remedy"]
