"""Previews over HTTP: a schedule before it is stored."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nextfire.domain.instants import parse_instant
from nextfire.domain.zones import HORIZON
from tests.crons import LONG
from tests.integration.deployment import Answer, Deployment


def preview(system: Deployment, body: object = None, **document: Any) -> Answer:
    return system.call("POST", "/v1/schedules/preview", document if body is None else body)


class TestPreview:
    def test_of_a_clock_change(self, system: Deployment) -> None:
        answer = preview(
            system,
            type="CRON",
            schedule="30 2 * * *",
            timezone="Europe/Berlin",
            dst="EACH",
            after="2026-10-24T12:00:00Z",
            count=3,
        )

        assert (answer.status, answer.media_type) == (200, "application/json")
        assert answer.document == {
            "items": [
                {
                    "at": "2026-10-25T00:30:00Z",
                    "local": "2026-10-25T02:30:00",
                    "offset": "+02:00",
                    "note": "2026-10-25T02:30 occurs twice: the first time",
                },
                {
                    "at": "2026-10-25T01:30:00Z",
                    "local": "2026-10-25T02:30:00",
                    "offset": "+01:00",
                    "note": "2026-10-25T02:30 occurs twice: the second time",
                },
                {
                    "at": "2026-10-26T01:30:00Z",
                    "local": "2026-10-26T02:30:00",
                    "offset": "+01:00",
                },
            ]
        }

    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            (
                {"type": "ONCE", "schedule": "2030-01-01T00:00", "timezone": "Asia/Tokyo"},
                ["2029-12-31T15:00:00Z"],
            ),
            ({"type": "DELAY", "schedule": "PT90M"}, ["2027-01-01T01:30:00Z"]),
            (
                {
                    "type": "INTERVAL",
                    "schedule": "P1D",
                    "startAt": "2026-12-25T06:00",
                    "maxRuns": 2,
                },
                ["2027-01-01T06:00:00Z", "2027-01-02T06:00:00Z"],
            ),
            (
                {"type": "DATES", "schedule": ["2027-03-01", "2027-02-01"], "endAt": "2027-02-28"},
                ["2027-02-01T00:00:00Z"],
            ),
            ({"type": "MANUAL"}, []),
            ({"type": "MANUAL", "schedule": None}, []),
            ({"type": "AFTER"}, []),
        ],
    )
    def test_of_each_type(
        self, system: Deployment, document: dict[str, Any], expected: list[str]
    ) -> None:
        answer = preview(system, **document, after="2027-01-01T00:00:00Z")

        assert answer.status == 200, answer.document
        assert [each["at"] for each in answer.document["items"]] == expected

    def test_by_default_ten_from_now_on(self, system: Deployment) -> None:
        items = preview(system, type="CRON", schedule="* * * * *").document["items"]

        assert len(items) == 10
        assert all("dueAt" not in each and "note" not in each for each in items)
        assert (
            len(preview(system, type="CRON", schedule="@daily", count=100).document["items"]) == 100
        )

    def test_with_jitter(self, system: Deployment) -> None:
        document = {"type": "CRON", "schedule": "0 * * * *", "jitterSec": 600}

        items = preview(system, **document).document["items"]

        delays = [parse_instant(each["dueAt"]) - parse_instant(each["at"]) for each in items]
        assert all(timedelta() <= delay < timedelta(seconds=600) for delay in delays)
        assert len(set(delays)) > 5

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"schedule": "0 0 30 2 *"}, "schedule"),
            ({"schedule": "0 0 1 1 *", "endAt": "2027-06-01", "after": "2027-02-01"}, "endAt"),
            ({"schedule": None}, "schedule"),
            ({"schedule": ["0 3 * * *"]}, "schedule"),
            ({"schedule": {"cron": "0 3 * * *"}}, "schedule"),
            ({"schedule": "x" * 257}, "schedule"),
            ({"type": "MANUAL"}, "schedule"),
            ({"type": "DATES"}, "schedule"),
            ({"type": "DATES", "schedule": []}, "schedule"),
            ({"type": "DATES", "schedule": ["2030-01-01", 5]}, "schedule"),
            ({"type": "DATES", "schedule": ["2030-01-01"] * 1001}, "schedule"),
            ({"type": "DATES", "schedule": ["2030-01-01", "soon"]}, "schedule.1"),
            ({"type": "INTERVAL", "schedule": "PT0.2S"}, "schedule"),
            ({"type": "LATER"}, "type"),
            ({"timezone": "Mars/Olympus"}, "timezone"),
            ({"startAt": "soon"}, "startAt"),
            ({"endAt": 5}, "endAt"),
            ({"dst": "TWICE"}, "dst"),
            ({"maxRuns": 0}, "maxRuns"),
            ({"maxRuns": 100_001}, "maxRuns"),
            ({"jitterSec": 3601}, "jitterSec"),
            ({"jitterSec": -1}, "jitterSec"),
            ({"count": 0}, "count"),
            ({"count": 101}, "count"),
            ({"count": "5"}, "count"),
            ({"count": True}, "count"),
            ({"after": "now"}, "after"),
            ({"after": "2101-01-01"}, "after"),
            ({"target": {"handler": "hello"}}, "target"),
            ({"start_at": "2030-01-01"}, "start_at"),
        ],
        ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else value,
    )
    def test_refused(self, system: Deployment, change: dict[str, Any], field: str) -> None:
        answer = preview(system, {"type": "CRON", "schedule": "0 3 * * *"} | change)

        assert (answer.status, answer.media_type) == (422, "application/problem+json")
        assert answer.fault["field"] == field
        assert answer.fault["problem"]
        assert answer.fault["value"]
        if "schedule" in field and change.get("type") != "MANUAL":
            [shown] = re.findall(r"For example `([^`]+)`\.$", answer.fault["remedy"])
            expression = json.loads(shown) if shown.startswith("[") else shown
            repaired = {"type": "CRON"} | change | {"schedule": expression}
            if field == "schedule.1":
                repaired["schedule"] = [shown]
            assert preview(system, repaired).status == 200, repaired

    def test_nothing_is_stored(self, system: Deployment) -> None:
        preview(system, type="CRON", schedule="* * * * *")

        assert system.due_items() == []
        assert system.call("GET", "/v1/jobs").document == {"items": []}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"])
spells = st.sampled_from(
    ["2026-10-25T02:30", "2027-03-28T02:30", "2030-05-24T10:00:00Z", "1970-01-02", "2099-12-30"]
)
stamps = (
    spells
    | st.datetimes().map(lambda at: at.isoformat())
    | st.text("0123456789-:TZ+.", max_size=25)
)
fields = st.sampled_from(
    [
        "*",
        "*/2",
        "*/7",
        "0",
        "1",
        "2",
        "L",
        "31",
        "30",
        "1-5",
        "7",
        "5L",
        "1#5",
        "5-1",
        "R",
        "?",
        "60",
    ]
)
crons = st.lists(fields, min_size=4, max_size=6).map(" ".join) | st.text(
    "0123456789*/,-#LR ", max_size=30
)
spans = st.sampled_from(["PT1S", "PT0.001S", "P7D", "P1830D", "P1M", "PT1H30M"]) | st.text(
    "PTDHMS159.", max_size=9
)
documents = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ONCE", "DELAY", "CRON", "CRON", "INTERVAL", "DATES", "MANUAL"]),
        "schedule": crons | crons | spans | stamps | st.lists(stamps, max_size=5) | json_values,
    },
    optional={
        "timezone": zones | zones | json_values,
        "startAt": stamps,
        "endAt": stamps,
        "dst": st.sampled_from(["ONCE", "EACH"]),
        "maxRuns": st.integers(0, 100_001),
        "jitterSec": st.integers(-1, 3601),
        "count": st.integers(0, 101),
        "after": stamps,
    },
)


@settings(
    max_examples=20_000 if LONG else 200,
    deadline=timedelta(seconds=3),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(document=documents)
def test_any_document_is_answered(system: Deployment, document: dict[str, Any]) -> None:
    answer = preview(system, document)

    if answer.status == 200:
        instants = [parse_instant(each["at"]) for each in answer.document["items"]]
        assert all(one < two for one, two in pairwise(instants))
        assert not instants or (instants[0].year >= 1970 and instants[-1] < HORIZON)
        assert instants or document["type"] == "MANUAL"
        assert len(instants) <= document.get("count", 10)
    else:
        assert answer.status in {400, 422}, answer.document
        assert answer.document["detail"]
        if answer.status == 422:
            for fault in answer.document["errors"]:
                assert all(fault[name] for name in ("field", "value", "problem", "remedy"))
