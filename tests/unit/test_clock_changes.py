"""When jobs are due in the hour that a clock change skips or repeats."""

from __future__ import annotations

import pytest

from nextfire.domain.instants import parse_instant
from nextfire.domain.schedule import Dst, Schedule
from tests.unit.schedules import AUTUMN, BERLIN, SPRING, local, next_occurrences, schedule, utc


def notes(of: Schedule, after: str, count: int) -> list[str]:
    return [each.note for each in next_occurrences(of, parse_instant(after), count)]


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
