"""Each type of schedule: its occurrences and its bounds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nextfire.domain.instants import parse_instant
from nextfire.domain.recurrence import check, next_instant
from nextfire.domain.zones import HORIZON
from tests.builders import NOON, a_job
from tests.unit.schedules import AUTUMN, BERLIN, local, next_occurrences, schedule, utc


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
