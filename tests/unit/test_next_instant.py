"""The next instant of a schedule, with the changes of the clock in spring and autumn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.recurrence import check, next_instant
from nextfire.domain.schedule import Dst, Schedule, ScheduleType
from tests.builders import NOON

LONG_AGO = parse_instant("2020-01-01T00:00:00Z")


def schedule(
    type: str, expression: str, timezone: str = "UTC", *, since: datetime = LONG_AGO
) -> Schedule:
    return Schedule(ScheduleType(type), expression, timezone, since)


def instants(of: Schedule, after: str) -> Iterator[str]:
    """Iterate like the watcher: each instant follows from the previous one."""
    at = next_instant(of, parse_instant(after))
    while at is not None:
        yield isoformat(at)
        at = next_instant(of, at)


def fires(expression: str, timezone: str, after: str, expected: list[str]) -> None:
    of = schedule("CRON", expression, timezone)
    assert list(islice(instants(of, after), len(expected))) == expected


# Daily times across both clock changes


@pytest.mark.parametrize(
    ("timezone", "expression", "after", "expected"),
    [
        (
            "Europe/Berlin",
            "30 2 * * *",
            "2026-03-27T12:00:00Z",
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "Europe/Berlin",
            "30 2 * * *",
            "2026-10-23T12:00:00Z",
            ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        (
            "Europe/Berlin",
            "30 3 * * *",
            "2026-03-27T12:00:00Z",
            ["2026-03-28T02:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T01:30:00Z"],
        ),
        (
            "Europe/Berlin",
            "30 3 * * *",
            "2026-10-23T12:00:00Z",
            ["2026-10-24T01:30:00Z", "2026-10-25T02:30:00Z", "2026-10-26T02:30:00Z"],
        ),
        (
            "America/New_York",
            "30 2 * * *",
            "2026-03-06T12:00:00Z",
            ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            "America/New_York",
            "30 1 * * *",
            "2026-10-30T12:00:00Z",
            ["2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        (
            "America/New_York",
            "30 3 * * *",
            "2026-03-06T12:00:00Z",
            ["2026-03-07T08:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T07:30:00Z"],
        ),
        (
            "America/New_York",
            "30 3 * * *",
            "2026-10-30T12:00:00Z",
            ["2026-10-31T07:30:00Z", "2026-11-01T08:30:00Z", "2026-11-02T08:30:00Z"],
        ),
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2026-10-02T12:00:00Z",
            ["2026-10-02T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
        ),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2026-04-03T12:00:00Z",
            ["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
        ),
        (
            "UTC",
            "30 2 * * *",
            "2026-03-27T12:00:00Z",
            ["2026-03-28T02:30:00Z", "2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"],
        ),
    ],
)
def test_a_daily_time_fires_once_a_day(
    timezone: str, expression: str, after: str, expected: list[str]
) -> None:
    fires(expression, timezone, after, expected)


# Wildcard hours across both clock changes


@pytest.mark.parametrize(
    ("timezone", "expression", "after", "expected"),
    [
        (
            "Europe/Berlin",
            "30 * * * *",
            "2026-03-29T00:00:00Z",
            ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"],
        ),
        (
            "Europe/Berlin",
            "30 * * * *",
            "2026-10-25T00:00:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
        ),
        (
            "Europe/Berlin",
            "0 */2 * * *",
            "2026-03-28T22:00:00Z",
            ["2026-03-28T23:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T04:00:00Z"],
        ),
        (
            "Europe/Berlin",
            "0 */2 * * *",
            "2026-10-24T23:00:00Z",
            ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"],
        ),
        (
            "Australia/Lord_Howe",
            "15 * * * *",
            "2026-10-03T14:00:00Z",
            ["2026-10-03T14:45:00Z", "2026-10-03T16:15:00Z", "2026-10-03T17:15:00Z"],
        ),
        (
            "Australia/Lord_Howe",
            "45 * * * *",
            "2026-04-04T14:00:00Z",
            ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"],
        ),
    ],
)
def test_wildcard_hours_go_by_elapsed_time(
    timezone: str, expression: str, after: str, expected: list[str]
) -> None:
    fires(expression, timezone, after, expected)


def test_several_skipped_times_are_one_occurrence() -> None:
    fires(
        "0,30 2,3 * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z"],
    )


def test_dst_each_fires_in_both_repeated_hours() -> None:
    each = Schedule(ScheduleType.CRON, "30 2 * * *", "Europe/Berlin", LONG_AGO, dst=Dst.EACH)

    assert list(islice(instants(each, "2026-10-24T12:00:00Z"), 3)) == [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-26T01:30:00Z",
    ]


@pytest.mark.parametrize("start", ["2026-03-29T01:00:00Z", "2026-10-25T00:30:00Z"])
def test_an_occurrence_at_a_change_does_not_follow_itself(start: str) -> None:
    of = schedule("CRON", "30 2 * * *", "Europe/Berlin")
    following = next_instant(of, parse_instant(start))

    assert following is not None
    assert following - parse_instant(start) > timedelta(hours=20)


# Cron


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["2026-05-24T12:20:00Z", "2026-05-24T12:40:00Z", "2026-05-24T13:00:00Z"]),
        ("0 3 * * 1-5", ["2026-05-25T03:00:00Z", "2026-05-26T03:00:00Z"]),
        ("0 3 * * MON,wed", ["2026-05-25T03:00:00Z", "2026-05-27T03:00:00Z"]),
        ("0 0 1 JAN *", ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        ("0 0 13 * 5", ["2026-05-29T00:00:00Z", "2026-06-05T00:00:00Z", "2026-06-12T00:00:00Z"]),
        ("@hourly", ["2026-05-24T13:00:00Z"]),
        ("@daily", ["2026-05-25T00:00:00Z"]),
        (" 0  3 * *\t* ", ["2026-05-25T03:00:00Z"]),
    ],
)
def test_what_an_expression_means(expression: str, expected: list[str]) -> None:
    fires(expression, "UTC", "2026-05-24T12:00:00Z", expected)


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "5-1 * * * *",
        "0 0 * * fri-mon",
        "0 0 * dec-jan *",
        "* * * * * *",
        "0 0 1 1 * 2027",
        "* * * *",
        "R * * * *",
        "R(0-5) * * * *",
        "H * * * *",
        "@reboot",
        "@every 5m",
        "0 0 * * someday",
        "0 0 * foo *",
        "60 * * * *",
        "* 24 * * *",
        "*/0 * * * *",
        "-1 * * * *",
        "1,,2 * * * *",
        "? * * * *",
        "\u0665 * * * *",
        "",
        "x",
    ],
)
def test_expressions_that_only_croniter_accepts_are_rejected(expression: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check(schedule("CRON", expression, since=NOON))

    assert refused.value.field == "schedule"
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../UTC", "/etc/localtime", "Europe", "\x00"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check(schedule("CRON", "* * * * *", name, since=NOON))

    assert refused.value.field == "timezone"


# Once and delay


@pytest.mark.parametrize(
    ("expression", "timezone", "expected"),
    [
        ("2026-07-01T10:00:00Z", "Europe/Berlin", "2026-07-01T10:00:00Z"),
        ("2026-07-01T10:00:00+02:00", "America/New_York", "2026-07-01T08:00:00Z"),
        ("2026-07-01T10:00:00", "Europe/Berlin", "2026-07-01T08:00:00Z"),
        ("2026-07-01T10:00", "UTC", "2026-07-01T10:00:00Z"),
        ("2026-07-01T10:00:00.1239Z", "UTC", "2026-07-01T10:00:00.123Z"),
        ("2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:00:00Z"),
        ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00Z"),
        ("2026-10-25T02:30:00+01:00", "Europe/Berlin", "2026-10-25T01:30:00Z"),
    ],
)
def test_once_is_an_instant_or_a_time_of_the_zone(
    expression: str, timezone: str, expected: str
) -> None:
    of = schedule("ONCE", expression, timezone, since=NOON)

    assert list(instants(of, isoformat(NOON))) == [expected]


@pytest.mark.parametrize(
    "expression",
    ["tomorrow", "", "2026-13-01T00:00:00Z", "2026-07-01T25:00:00Z", "0001-01-01T00:00:00+14:00"],
)
def test_invalid_once_schedules_are_rejected(expression: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check(schedule("ONCE", expression, since=NOON))

    assert refused.value.field == "schedule"


@pytest.mark.parametrize("expression", ["2026-05-24T12:00:00Z", "2026-05-24T11:00:00Z"])
def test_once_must_be_ahead(expression: str) -> None:
    with pytest.raises(InvalidInputError, match="never fires after 2026-05-24T12:00:00Z"):
        check(schedule("ONCE", expression, since=NOON))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("PT5S", "2026-05-24T12:00:05Z"),
        ("PT0.5S", "2026-05-24T12:00:00.500Z"),
        ("PT90M", "2026-05-24T13:30:00Z"),
        ("PT1H30M", "2026-05-24T13:30:00Z"),
        ("P1DT12H", "2026-05-26T00:00:00Z"),
        ("P2W", "2026-06-07T12:00:00Z"),
    ],
)
def test_a_delay_counts_from_its_change(expression: str, expected: str) -> None:
    of = schedule("DELAY", expression, since=NOON)

    assert list(instants(of, "2020-01-01T00:00:00Z")) == [expected]


@pytest.mark.parametrize(
    "expression",
    [
        *("", "P", "PT", "P1DT", "PT0S", "P1Y", "P1M", "-PT5S", "PT-5S", "5S", "pt5s"),
        *("PT1S1M", "PT0.0001S", "P99999D", "PT" + "9" * 200 + "S"),
    ],
)
def test_a_delay_is_a_duration_of_fixed_length(expression: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check(schedule("DELAY", expression, since=NOON))

    assert refused.value.field == "schedule"


def test_schedules_fire_only_after_their_change() -> None:
    of = schedule("CRON", "0 * * * *", since=NOON)

    assert next_instant(of, LONG_AGO) == parse_instant("2026-05-24T13:00:00Z")
