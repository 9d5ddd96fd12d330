"""Cron expressions: which instants they match, and which expressions are rejected."""

from __future__ import annotations

import re
import tracemalloc
from datetime import date, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nextfire.domain.cron import MACROS, read_cron
from nextfire.domain.errors import InvalidInputError
from tests.crons import cases

EXAMPLE = re.compile(r"For example[^`]*`([^`]+)`")


def days(text: str, since: str, count: int) -> list[str]:
    """The first days of a cron that fires at midnight."""
    cron = read_cron(f"0 0 {text}")
    found: list[str] = []
    at = datetime.fromisoformat(since)
    for _ in range(count):
        wall = cron.next_wall(at)
        assert wall is not None
        found.append(wall.date().isoformat())
        at = wall + timedelta(minutes=1)
    return found


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("0 3 * * *", ["03:00"]),
        ("5-7 0 * * *", ["00:05", "00:06", "00:07"]),
        ("5/20 1 * * *", ["01:05", "01:25", "01:45"]),
        ("10-40/15 1 * * *", ["01:10", "01:25", "01:40"]),
        ("59/1,0 23 * * *", ["23:00", "23:59"]),
        ("30 7-7 * * *", ["07:30"]),
        ("0 0-23/12 * * *", ["00:00", "12:00"]),
        ("05 03 * * *", ["03:05"]),
        ("0\t3   *  * *", ["03:00"]),
        (" 0 3 * * * ", ["03:00"]),
    ],
)
def test_times_of_the_day(text: str, times: list[str]) -> None:
    found = [f"{minute // 60:02}:{minute % 60:02}" for minute in read_cron(text).times]

    assert found == times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L * *", ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30"]),
        ("L 2 *", ["2027-02-28", "2028-02-29", "2029-02-28"]),
        ("29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("31 * *", ["2027-01-31", "2027-03-31", "2027-05-31", "2027-07-31", "2027-08-31"]),
        ("15,L 2 *", ["2027-02-15", "2027-02-28", "2028-02-15", "2028-02-29"]),
        ("* * mon#1", ["2027-01-04", "2027-02-01", "2027-03-01", "2027-04-05"]),
        ("* * 1#5", ["2027-03-29", "2027-05-31", "2027-08-30"]),
        ("* * 5L", ["2027-01-29", "2027-02-26", "2027-03-26"]),
        ("* * friL", ["2027-01-29", "2027-02-26", "2027-03-26"]),
        ("* * L5", ["2027-01-29", "2027-02-26", "2027-03-26"]),
        ("* * 7", ["2027-01-03", "2027-01-10"]),
        ("* * 0", ["2027-01-03", "2027-01-10"]),
        ("* * 6-7", ["2027-01-02", "2027-01-03", "2027-01-09"]),
        ("* * MON-wed", ["2027-01-04", "2027-01-05", "2027-01-06", "2027-01-11"]),
        ("* * 3,5#2", ["2027-01-06", "2027-01-08", "2027-01-13"]),
        ("* FEB,mar 1#1", ["2027-02-01", "2027-03-01", "2028-02-07"]),
    ],
)
def test_days(text: str, expected: list[str]) -> None:
    assert days(text, "2027-01-01", len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Neither field begins with a star: a day matches if either field does.
        ("1 * 1", ["2027-01-01", "2027-01-04", "2027-01-11"]),
        ("1-31 * 1", ["2027-01-01", "2027-01-02", "2027-01-03"]),
        ("13 * 5#2", ["2027-01-08", "2027-01-13", "2027-02-12", "2027-02-13"]),
        ("L * 1#1", ["2027-01-04", "2027-01-31", "2027-02-01"]),
        ("31 2 1", ["2027-02-01", "2027-02-08"]),  # the 31st never comes, Mondays do
        # One field begins with a star: a day matches if both fields do.
        ("*/2 * 1", ["2027-01-11", "2027-01-25", "2027-02-01"]),
        ("13 * */5", ["2027-06-13", "2027-08-13", "2028-02-13"]),  # Sundays and Fridays
        ("* * 1", ["2027-01-04", "2027-01-11"]),
        ("*,7 * 1", ["2027-01-04", "2027-01-11"]),
        ("7,* * 1", ["2027-01-01", "2027-01-02"]),
    ],
)
def test_day_of_month_and_day_of_week(text: str, expected: list[str]) -> None:
    assert days(text, "2027-01-01", len(expected)) == expected


@pytest.mark.parametrize("text", MACROS)
def test_macros(text: str) -> None:
    assert read_cron(f" {text.upper()} ") == read_cron(MACROS[text])


def test_days_are_those_of_a_walk_over_the_calendar() -> None:
    for cron, _, _ in cases(5, 400):
        since = date(2027, 1, 1)
        every = (since + timedelta(days=n) for n in range(800))
        expected = list(islice((day for day in every if cron.matches_day(day)), 12))
        read, found = read_cron(cron.text), list[date]()
        at = datetime(2027, 1, 1)  # noqa: DTZ001 — wall clock
        while len(found) < len(expected):
            wall = read.next_wall(at)
            assert wall is not None, cron.text
            assert cron.matches(wall), (cron.text, wall)
            found.append(wall.date())
            at = datetime.combine(wall.date(), datetime.min.time()) + timedelta(days=1)
        assert found == expected, cron.text


def test_the_search_for_a_day_that_never_comes_ends() -> None:
    start = datetime(2027, 1, 1)  # noqa: DTZ001 — wall clock

    assert read_cron("0 0 29 2 */6").next_wall(start) == datetime(2032, 2, 29)  # noqa: DTZ001
    assert read_cron("0 0 */30 2 */2").next_wall(start) is not None  # the first of February
    assert read_cron("0 0 1,2 * *").next_wall(datetime(2099, 12, 3)) is None  # noqa: DTZ001
    assert read_cron("0 0 */30 4,6 1#5").next_wall(start) is None


def test_thousands_of_expressions_fit_into_the_memory_of_a_watcher() -> None:
    tracemalloc.start()
    try:
        kept = [read_cron(f"*,{each} * 1-{1 + each % 30} * *") for each in range(60)]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < len(kept) * 6_000  # of bytes, each with 1,440 times


@pytest.mark.parametrize(
    ("text", "problem", "works"),
    [
        ("R * * * *", "uses H or R", ""),
        ("0 R(2-4) * * *", "uses H or R", ""),
        ("H H * * *", "uses H or R", ""),
        ("0 0 ? * 1", "?", ""),
        ("0 0 15W * *", "W", ""),
        ("0 0 LW * *", "W", ""),
        ("5-1 * * * *", "backward", "5-59,0-1 * * * *"),
        ("0 22-2 * * *", "backward", "0 22-23,0-2 * * *"),
        ("0 23-0 * * *", "backward", "0 23,0 * * *"),
        ("0 0 28-3 * *", "backward", "0 0 28-31,1-3 * *"),
        ("0 0 * nov-feb *", "backward", "0 0 * 11-12,1-2 *"),
        ("0 0 * * fri-mon", "backward", "0 0 * * 5-6,0-1"),
        ("0 0 * * sat-sun", "backward", "0 0 * * 6,0"),
        ("0 0 * * 7-2", "backward", "0 0 * * 7,0-2"),
        ("* * * * * *", "6 fields", ""),
        ("0 0 * * * * 2027", "7 fields", ""),
        ("0 3 * * * 2027", "6 fields", ""),
        ("0 0 3 * * 1", "6 fields", "0 3 * * 1"),
        ("cron(0 3 * * ? *)", "6 fields", "0 3 * * *"),
        ("cron(0 10 ? * 2-6 *)", "6 fields", "0 10 * * mon-fri"),
        ("0 18 ? * 1,6L 2027", "6 fields", "0 18 * * sun,fril"),
        ("0 30 9 ? * mon-fri", "6 fields", "30 9 * * mon-fri"),
        ("0 0 8 ? * 2#1", "6 fields", "0 8 * * mon#1"),
        ("0 0 3 * * ? 2027", "7 fields", "0 3 * * *"),
        ("0 0 1W * ? *", "6 fields", ""),
        ("*/5 * * * * /usr/bin/backup --all", "7 fields", "*/5 * * * *"),
        ("0 3 * * * monitor", "6 fields", "0 3 * * *"),
        ("CRON_TZ=Europe/Berlin 0 3 * * *", "6 fields", "0 3 * * *"),
        ("cron()", "1 field", ""),
        ("* * * *", "4 fields", ""),
        ("", "0 fields", ""),
        ("@reboot", "not supported", "0 * * * *"),
        ("0 0 30 2 *", "never matches", "0 0 L 2 *"),
        ("0 0 31 2,4 *", "never matches", "0 0 L 2,4 *"),
        ("0 0 31 2 */2", "never matches", "0 0 L 2 */2"),
        ("0 0 30-31 feb *", "never matches", "0 0 L feb *"),
        ("*/90 * * * *", "nothing to step to", "0 * * * *"),
        ("*/0 * * * *", "nothing to step to", "0 * * * *"),
        ("5-9/7 * * * *", "nothing to step to", "5 * * * *"),
        ("59/15 * * * *", "nothing to step to", "59 * * * *"),
        ("0 0 * * 1/2", "differ", "0 0 * * 1-6/2"),
        ("0 0 * * L", "the weekday is missing", "0 0 * * 5L"),
        ("0 0 * * 1#6", "that many", "0 0 * * 1#1"),
        ("0 0 * * 1#0", "that many", "0 0 * * 1#1"),
        ("60 * * * *", "not in 0 to 59", "0 * * * *"),
        ("0 24 * * *", "not in 0 to 23", "0 0 * * *"),
        ("0 0 0 * *", "not in 1 to 31", "0 0 1 * *"),
        ("0 0 * 13 *", "not in 1 to 12", "0 0 * 1 *"),
        ("0 0 * * 8", "not in 0 to 7", "0 0 * * 0"),
        ("0 0 L-3 * *", "day of month", ""),
        ("0 0 1#2 * *", "day of month", ""),
        ("mon * * * *", "minute", ""),
        ("0 0 * mon *", "month", ""),
        ("0 0 * * 1-5#2", "day of week", ""),
        ("0, * * * *", "minute", ""),
        ("-1 * * * *", "minute", ""),
        ("*-5 * * * *", "minute", ""),
        ("1.5 * * * *", "minute", ""),
        ("٣ * * * *", "not a cron", ""),
        ("0\u00a03 * * *", "not a cron", ""),
        ("0 3 * * wee\u212a", "not a cron", ""),
    ],
)
def test_refused_with_the_reason_and_an_example_that_works(
    text: str, problem: str, works: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_cron(text)

    error = refused.value
    assert (error.field, error.value) == ("schedule", repr(text))
    assert problem in error.problem
    [shown] = EXAMPLE.findall(error.remedy)
    assert shown == (works or "0 3 * * 1-5")
    assert read_cron(shown).times


@given(st.text(alphabet="0123456789*/,-#LWRH?@ monfeb", max_size=40) | st.text(max_size=20))
@example("1," * 127 + "1 * * * *")
@example("9999999999999999999999 * * * *")
@example("TZ=" * 85)
@example("tz= " * 64)
@example("*/99999 * * * *")
@example("0 0 * * 1#99999999999999999999999999")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cron = read_cron(text)
    except InvalidInputError as error:
        [shown] = EXAMPLE.findall(error.remedy)
        # Those are of other types of schedule.
        assert shown in {"PT5M", "2030-05-24T10:00:00Z"} or read_cron(shown).times
    else:
        assert cron.times
        cron.next_wall(datetime(2027, 1, 1))  # noqa: DTZ001 — wall clock
