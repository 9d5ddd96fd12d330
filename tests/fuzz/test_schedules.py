"""Job documents and preview requests: refused with a message, or with increasing instants."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.schedule import ScheduleType
from tests.fuzz import items
from tests.fuzz.cases import fuzzed
from tests.fuzz.checks import check_schedule
from tests.fuzz.damage import odd_texts

TYPES = [*(each.value for each in ScheduleType), ""]
cron_fields = st.one_of(
    st.sampled_from(["*", "*/5", "1-5", "5-1", "L", "W", "#2", "?", "R", "0", "59", "60", "31"]),
    st.text("0123456789*/,-LW#?ABCMONFEB ", max_size=8),
)
crons = st.lists(cron_fields, min_size=4, max_size=7).map(" ".join)
durations = st.one_of(
    st.text("PT0123456789YMWDHS.,-", max_size=12),
    st.builds("P{}DT{}H{}M{}S".format, *[st.integers(0, 10**6)] * 4),
)
instant_texts = st.one_of(
    st.datetimes().map(lambda at: at.isoformat()),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.datetimes().map(lambda at: f"{at.isoformat()}+14:00"),
    st.sampled_from(["2026-W21-7", "20260524T120000Z", "2026-05-24T24:00:00Z", "12:00", "now"]),
    odd_texts,
)
zones = st.sampled_from(
    [
        *("UTC", "Europe/Berlin", "Pacific/Apia", "Africa/Casablanca", "Australia/Lord_Howe"),
        *("EST5EDT", "posixrules", "../etc/passwd", "/etc/localtime", "utc", "Europe", "\x00", ""),
    ]
)


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    expression = crons | durations | instant_texts | st.lists(instant_texts, max_size=4)
    document: dict[str, Any] = {
        "target": {"handler": "hello"},
        "type": draw(st.sampled_from(TYPES)),
    }
    fields: dict[str, st.SearchStrategy[Any]] = {
        "schedule": expression | items.payloads,
        "timezone": zones | odd_texts,
        "startAt": instant_texts,
        "endAt": instant_texts,
        "dst": st.sampled_from(["ONCE", "EACH", "NEVER", None]),
        "exceptDates": st.lists(instant_texts | st.dates().map(str), max_size=3),
        "maxRuns": st.integers(-1, 100_001),
        "jitterSec": st.integers(-1, 3601),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(fields)), max_size=4)) | {"schedule"}
    return document | {name: draw(fields[name]) for name in sorted(chosen)}


@fuzzed()
@given(schedules())
def test_any_schedule_is_refused_or_has_instants_in_order(document: dict[str, Any]) -> None:
    check_schedule(document)


@fuzzed()
@given(st.sampled_from(items.SCHEDULES), crons, zones, st.sampled_from([None, 1, 2, 100]))
def test_any_schedule_near_a_sound_one_is_refused_or_has_instants_in_order(
    document: dict[str, Any], cron: str, zone: str, most: int | None
) -> None:
    changed = document | {"target": {"handler": "hello"}, "timezone": zone}
    if document["type"] == "CRON":
        changed["schedule"] = cron
    check_schedule(changed if most is None else changed | {"maxRuns": most})
