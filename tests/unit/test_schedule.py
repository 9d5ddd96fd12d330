"""Schedules: what is rejected, jitter, previews, and which fields make a new version."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.jitter import jitter
from nextfire.domain.occurrences import JobState
from nextfire.domain.preview import upcoming
from nextfire.domain.recurrence import check, next_instant, occurrences
from nextfire.domain.schedule import Dst, Schedule, ScheduleType
from nextfire.domain.stretch import count_occurrences
from nextfire.domain.upcoming_runs import upcoming_runs
from nextfire.domain.wall_clock import at_wall_times
from nextfire.domain.when import SCHEDULE_FIELDS
from tests.builders import NOON, a_definition, a_job
from tests.unit.schedules import BERLIN, LONG_AGO, next_occurrences, schedule
from tests.world import World


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
            (
                schedule("DATES", ["2026-06-01", "2026-06-03"], start_at="2026-06-04"),
                "schedule",
                "and at or after startAt",
            ),
            (schedule("DELAY", "PT1H", start_at="2026-06-02"), "startAt", "after the occurrence"),
            (schedule("DELAY", "PT1H", start_at="2090-01-01"), "startAt", "after the occurrence"),
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

    def test_a_cron_whose_days_never_meet_is_not_one_in_the_past(self) -> None:
        with pytest.raises(InvalidInputError, match="a day must match both"):
            check(schedule("CRON", "0 0 */30 * 1#2"))

    def test_the_first_is_reported(self) -> None:
        of = schedule("CRON", "0 13 * * *", since="2026-05-24T12:00:00Z")

        assert check(of) == parse_instant("2026-05-24T13:00:00Z")


@pytest.mark.parametrize("dst", [None, *Dst])
def test_the_end_of_a_schedule_is_not_looked_for_after_each_clock_change(dst: Dst | None) -> None:
    asked: list[datetime] = []

    def never(at: datetime) -> None:
        asked.append(at)

    assert list(at_wall_times(never, BERLIN, dst, NOON)) == []
    assert len(asked) == 1  # croniter takes 20 ms for each if no day ever matches


def _with_field(of: Schedule, field: str, value: str) -> Schedule:
    parts: dict[str, Any] = {
        name: getattr(of, name) for name in ("expression", "timezone", "start_at", "end_at")
    }
    if field == "schedule.1":
        parts["expression"] = (of.expression[0], value) if of.expression else ()
    elif of.type is ScheduleType.DATES and field.startswith("schedule"):
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

    def test_it_stays_the_same_forever(self) -> None:
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

    def test_an_occurrence_waits_for_the_delay_of_the_one_before_it(self, world: World) -> None:
        """With a jitter that is longer than the period."""
        job = world.register(type="INTERVAL", schedule="PT1M", jitterSec=300, maxRuns=20)
        due_at = {each.occurrence.at: each.due_at for each in upcoming_runs(job, world.now, 20)}
        assert due_at != {at: job.due_at(at) for at in due_at}, "none waits"

        started = dict[datetime, datetime]()
        while len(started) < len(due_at):
            left = [each.occurrence.at for each in upcoming_runs(job, world.now, 20)]
            assert left == [at for at, due in due_at.items() if due > world.now]
            world.advance(seconds=1)
            world.tick_and_work(f"{world.now:%H:%M:%S}")
            for run in world.runs.items.values():
                started.setdefault(run.key.scheduled_at, world.now)

        for at, due in due_at.items():
            assert timedelta() <= started[at] - due < timedelta(seconds=10), at

    def test_what_jitter_has_delayed_is_still_to_come(self) -> None:
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
        assert len(upcoming_runs(a_job(maxRuns=2), NOON, 9)) == 2
        for state in set(JobState) - {JobState.ACTIVE}:
            assert upcoming_runs(a_job(state=state), NOON, 9) == []


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
        "except_dates",
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
