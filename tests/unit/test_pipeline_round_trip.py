"""A pipeline that is written and read again is the same, in every field of a job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nextfire.client.pipelines.diff import changed_fields
from nextfire.client.pipelines.document import OWNER, Pipeline, compact, owned, read, split
from nextfire.domain.definition import JobDefinition
from nextfire_cli.job_fields import JOB_FIELDS
from nextfire_cli.yaml_text import read_yaml, write_yaml
from tests.crons import LONG
from tests.fuzz.items import SCHEDULES, payloads

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
"""Any text of JSON: control characters, line ends, words that YAML reads as something else."""
words = texts | st.sampled_from(
    [
        "no",
        "null",
        "1e3",
        "012",
        "12:30",
        "2027-03-01",
        "~",
        "<<",
        "=",
        "- a",
        "a: b",
        "#",
        " x ",
        "\x85",
        "\u2028",
    ]
)
JSON_VALUES = payloads | st.floats(allow_nan=False, allow_infinity=False) | words
WHEN = (
    *SCHEDULES,
    {"type": "AFTER", "after": [{"job": "extract"}, {"job": "clean", "delaySec": 5}]},
    {"type": "AFTER", "after": [{"job": "extract", "setup": True}, {"job": "clean"}]},
    {
        "type": "CRON",
        "schedule": "0 0 * * *",
        "after": [
            {"job": "extract", "which": "all"},
            {"job": "clean", "which": "latest", "withinSec": 60},
        ],
    },
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "startAt": st.just("2027-01-01"),
    "endAt": st.just("2098-01-01T00:00:00Z"),
    "timezone": st.sampled_from(["UTC", "Europe/Berlin"]),
    "dst": st.sampled_from(["ONCE", "EACH"]),
    "exceptDates": st.lists(st.sampled_from(["2027-12-24", "2027-12-25"]), max_size=2),
    "maxRuns": st.integers(1, 100_000),
    "jitterSec": st.integers(0, 3600),
    "name": words,
    "target.pool": words,
    "target.handler": st.sampled_from(["report", "report.zip"]),
    "target.script": st.just("s3://bucket/report.py"),
    "target.http": st.sampled_from(
        [
            {"url": "https://api.example.com/x"},
            {
                "url": "https://api.example.com/x",
                "method": "PUT",
                "headers": {"x-a": "no"},
                "body": {"a": "{{payload.id}}", "b": [1, 2.5, True]},
                "success": ["2xx", "409"],
                "sign": [{"secret": "hooks"}],
            },
        ]
    ),
    "target.aws": st.just({"service": "sqs", "action": "SendMessage", "input": {"A": ["1e3"]}}),
    "target.env": st.dictionaries(
        st.sampled_from(["A", "b_1"]),
        st.sampled_from(["no", "1", {"secret": "a/b", "key": "k"}, {"parameter": "p"}]),
    ),
    "payload": JSON_VALUES,
    "retryPolicy.maxAttempts": st.integers(1, 100),
    "retryPolicy.backoff": st.sampled_from(["FIXED", "LINEAR", "EXPONENTIAL"]),
    "retryPolicy.initialDelayMs": st.sampled_from([0, 10_000, 7_200_000]),
    "retryPolicy.maxDelayMs": st.sampled_from([1, 3_600_000, 7_200_000]),
    "retryPolicy.jitter": st.sampled_from(["NONE", "FULL"]),
    "retryPolicy.retryOn.states": st.sets(
        st.sampled_from(["FAILED", "TIMED_OUT", "WORKER_LOST"])
    ).map(sorted),
    "retryPolicy.retryOn.exitCodes": st.lists(st.integers(-64, 255), min_size=1, max_size=3),
    "timeoutSec": st.integers(1, 39_600),
    "priority": st.sampled_from(["HIGH", "NORMAL", "LOW"]),
    "misfire.policy": st.sampled_from(["RUN_ALL", "RUN_LATEST", "SKIP"]),
    "misfire.relevancyWindowSec": st.integers(1, 60),
    "overlap": st.sampled_from(["ALLOW", "QUEUE", "SKIP", "REPLACE"]),
    "triggerRule": st.sampled_from(["ALL_SUCCEEDED", "ANY_FAILED"]),
    "joinTimeoutSec": st.integers(1, 100_000),
    "deadlineSec": st.integers(1, 100_000),
    "maxParallel": st.integers(1, 100),
    "labels": st.dictionaries(words, words, max_size=4),
}
"""Values of each field, by path."""
_BY_TYPE = {"type", "schedule", "after"}
_KINDS = ("target.handler", "target.script", "target.http", "target.aws")


def test_the_property_covers_every_field() -> None:
    assert VALUES.keys() | _BY_TYPE == JOB_FIELDS.keys(), "add values of the new field to VALUES"


@st.composite
def definitions(draw: st.DrawFn) -> JobDefinition:
    """Valid definitions with values in any of their fields."""
    document = json.loads(json.dumps(draw(st.sampled_from(WHEN))))
    kind = draw(st.sampled_from(_KINDS))
    others = sorted(VALUES.keys() - {*_KINDS})
    chosen = draw(st.sets(st.sampled_from(others), max_size=8))
    if document["type"] != "AFTER":
        chosen -= {"triggerRule", "joinTimeoutSec", "deadlineSec"}
    if "after" in document:
        chosen -= {"maxParallel"}
    if kind in {"target.http", "target.aws"}:
        chosen -= {"target.env"}
    for path in sorted({kind, *chosen}):
        *parents, name = path.split(".")
        inner = document
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = draw(VALUES[path])
    if document.get("labels"):
        document["labels"].pop(OWNER, None)
    try:
        return JobDefinition.model_validate_json(json.dumps(document))
    except ValidationError as error:
        # Retries of years are the only combination that is invalid.
        if "delays add up" not in str(error):
            raise
        document["retryPolicy"] = {}
        return JobDefinition.model_validate_json(json.dumps(document))


@given(definitions(), st.sampled_from([None, "etl"]))
@settings(
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    max_examples=400 if LONG else 150,
)
def test_export_and_apply_change_nothing(definition: JobDefinition, owner: str | None) -> None:
    shown = {"jobId": "a", "state": "ACTIVE", **owned(definition, owner).document()}

    found, exported = split(shown)
    document = Pipeline(owner, {"a": exported}).document()
    for text in (write_yaml([document]), json.dumps(document)):
        [again] = read(read_yaml(text)[0] if text[0] != "{" else json.loads(text))
        assert (again.name, found) == (owner, owner)
        assert again.jobs["a"].document() == definition.document()
        assert owned(again.jobs["a"], owner).document() == owned(definition, owner).document()
        assert changed_fields(definition, again.jobs["a"]) == []


@given(definitions())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_compact_document_has_no_defaults(definition: JobDefinition) -> None:
    short = compact(definition)

    for name, value in short.items():
        field = JOB_FIELDS.get(name)
        assert field is None or field.is_required or value != field.default, name


@pytest.mark.parametrize("path", sorted(VALUES))
@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=20)
def test_a_changed_field_is_a_change(path: str, data: st.DataObject) -> None:
    base: dict[str, Any] = {"type": "MANUAL", "target": {"handler": "other"}}
    if path in {"triggerRule", "joinTimeoutSec", "deadlineSec"}:
        base = {"type": "AFTER", "after": [{"job": "a"}], "target": {"handler": "other"}}
    changed = json.loads(json.dumps(base))
    if path in _KINDS:
        del changed["target"]["handler"]
    *parents, name = path.split(".")
    inner = changed
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[name] = data.draw(VALUES[path])
    old, new = (JobDefinition.model_validate_json(json.dumps(each)) for each in (base, changed))

    fields = changed_fields(old, new)

    assert bool(fields) == (old.document() != new.document())
    for each in fields:
        assert each.path.startswith(path.split(".", maxsplit=1)[0])


def test_a_default_that_depends_on_another_field_is_written() -> None:
    """An absent `maxDelayMs` would be read as `initialDelayMs`, which is longer."""
    retries = {"initialDelayMs": 7_200_000, "maxDelayMs": 3_600_000}
    document = {"type": "MANUAL", "target": {"handler": "a"}, "retryPolicy": retries}
    definition = JobDefinition.model_validate(document)

    again = JobDefinition.model_validate(compact(definition))

    assert again.retry_policy.max_delay_ms == 3_600_000


@pytest.mark.parametrize(
    "text",
    [
        *("NO", "no", "yes", "on", "Off", "y"),  # Norway
        *("0123", "-012", "0o17", "0b11", "1_000", "1_0.5", "1e3", "="),
        *("12:30", "12:30:00", "190:20:30.15", "2027-03-01", "2027-03-01T12:00:00Z"),
    ],
)
def test_what_people_mean_as_text_is_read_as_text(text: str) -> None:
    assert read_yaml(f"a: {text}\n{text}: b") == [{"a": text, text: "b"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("False", False), ("null", None), ("~", None), ("", None)),
        *(("0", 0), ("-12", -12), ("+1", 1), ("0x1F", 31), ("120", 120)),
        *(("1.10", 1.1), ("-.5", -0.5), ("1.5e-3", 0.0015), ("0.0", 0.0)),
    ],
)
def test_booleans_and_numbers_need_no_quotes(text: str, value: object) -> None:
    [found] = read_yaml(f"a: {text}")

    assert found == {"a": value}
    assert type(found["a"]) is type(value)
