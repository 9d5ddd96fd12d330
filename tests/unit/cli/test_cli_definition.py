"""Job documents that the CLI builds from flags and files."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.definition import MAX_TIMEOUT_SEC, JobDefinition
from nextfire.domain.policies import Backoff, RetryJitter
from nextfire.domain.schedule import MAX_JITTER
from nextfire_cli.definition import definition
from nextfire_cli.durations import iso_duration, moment, whole_seconds
from tests.builders import NOON


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", "PT5S"),
        ("1.5s", "PT1.5S"),
        ("90m", "PT90M"),
        ("1h30m", "PT1H30M"),
        ("2d", "P2D"),
        ("1w2d3h", "P1W2DT3H"),
        ("PT5S", "PT5S"),
        ("pt5s", "PT5S"),
    ],
)
def test_durations_are_sent_in_iso_8601(text: str, expected: str) -> None:
    assert iso_duration(text, "--in") == expected


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "0s", "5s1m", "P1M", "tomorrow"])
def test_an_invalid_duration_is_rejected_with_its_flag(text: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        iso_duration(text, "--in")
    assert refused.value.param_hint == "--in"


def test_flags_make_a_document_and_leave_out_what_they_do_not_name() -> None:
    assert definition(
        cron="*/5 * * * *",
        timezone="Europe/Berlin",
        handler="hello",
        pool="batch",
        payload='{"n": 1}',
        name="five",
        timeout="10m",
        max_attempts=2,
        label=["team=a", "query=a=b"],
    ) == {
        "name": "five",
        "type": "CRON",
        "schedule": "*/5 * * * *",
        "timezone": "Europe/Berlin",
        "target": {"handler": "hello", "pool": "batch"},
        "payload": {"n": 1},
        "timeoutSec": 600,
        "retryPolicy": {"maxAttempts": 2},
        "labels": {"team": "a", "query": "a=b"},
    }
    assert definition(in_="5s") == {"type": "DELAY", "schedule": "PT5S"}
    assert definition(at="2026-05-24T10:00") == {"type": "ONCE", "schedule": "2026-05-24T10:00"}
    assert definition(timeout="30") == {"timeoutSec": 30}


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        ({"cron": "* * * * *", "in_": "5s"}, "--cron, --at, --in, --every, --date"),
        ({"payload": "{not json"}, "--payload"),
        ({"payload": "@/no/such/file"}, "--payload"),
        ({"label": ["team"]}, "--label"),
        ({"label": ["=a"]}, "--label"),
        ({"label": ["a=b", "a=c"]}, "--label"),
        ({"timeout": "soon"}, "--timeout"),
        ({"timeout": "1.5s"}, "--timeout"),
        ({"timeout": "0"}, "--timeout"),
        ({"timeout": "9" * 5000}, "--timeout"),
        ({"jitter": "61m"}, "--jitter"),
        ({"relevancy_window": "31d"}, "--relevancy-window"),
        ({"file": "/no/such/file"}, "--file"),
        ({"retry_delay": "soon"}, "--retry-delay"),
        ({"retry_delay": "1831d"}, "--retry-delay"),
        ({"max_retry_delay": "9" * 5000}, "--max-retry-delay"),
        ({"env": ["A"]}, "--env"),
        ({"env": ["=a"]}, "--env"),
        ({"secret": ["A"]}, "--secret"),
        ({"parameter": ["x"]}, "--parameter"),
        ({"env": ["A=1"], "secret": ["A=s"]}, "--secret"),
    ],
)
def test_a_flag_that_cannot_be_read_is_named(flags: dict[str, Any], hint: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        definition(**flags)
    assert refused.value.param_hint == hint


@pytest.mark.parametrize("text", ["Soon", "0s", "30d1s", "1.5s", "-1"])
def test_an_invalid_window_is_shown_as_typed_with_the_allowed_range(text: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        definition(relevancy_window=text)
    assert f"'{text}' is not a duration" in refused.value.message
    assert "from 1 s to 30 days" in refused.value.message


def test_a_duration_is_shown_as_typed() -> None:
    with pytest.raises(typer.BadParameter, match="'Soon' is not a duration"):
        iso_duration("Soon", "--in")


@pytest.mark.parametrize("text", ["none", "NONE"])
def test_a_window_is_taken_away_with_a_null(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("misfire: {policy: SKIP, relevancyWindowSec: 5}")

    assert definition(relevancy_window=text) == {"misfire": {"relevancyWindowSec": None}}
    assert definition(file=str(file), relevancy_window=text) == {
        "misfire": {"policy": "SKIP", "relevancyWindowSec": None}
    }


def test_bounds_are_those_of_a_job() -> None:
    for flag, field, most in (
        ("--timeout", "timeoutSec", MAX_TIMEOUT_SEC),
        ("--jitter", "jitterSec", MAX_JITTER // timedelta(seconds=1)),
    ):
        job = {"type": "MANUAL", "target": {"handler": "hello"}}
        JobDefinition.model_validate(job | {field: whole_seconds(str(most), flag, 0, most)})
        with pytest.raises(ValidationError):
            JobDefinition.model_validate(job | {field: most + 1})


@pytest.mark.parametrize("text", ["0", "0s", "0m", "0h0m", "0d", "PT0S", "P0DT0.0S"])
def test_a_duration_of_zero_is_valid(text: str) -> None:
    assert whole_seconds(text, "--overlap", 0, 60) == 0
    assert definition(in_="5s", handler="hello", retry_delay=text)["retryPolicy"] == {
        "initialDelayMs": 0
    }
    with pytest.raises(typer.BadParameter, match="from 1 s to"):
        whole_seconds(text, "--timeout", 1, 60)


@pytest.mark.parametrize("text", ["", "P", "PT", "P0", "P0DT", "s"])
def test_a_duration_without_a_number_is_invalid(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        whole_seconds(text, "--overlap", 0, 60)


def test_flags_are_put_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(
        json.dumps(
            {
                "name": "old",
                "type": "CRON",
                "schedule": "0 3 * * *",
                "target": {"pool": "batch", "handler": "report"},
                "priority": "HIGH",
            },
            indent="\t",  # YAML rejects tabs, JSON allows them
        )
    )

    assert definition(file=str(file), name="new", in_="5s", handler="hello") == {
        "name": "new",
        "type": "DELAY",
        "schedule": "PT5S",
        "target": {"pool": "batch", "handler": "hello"},
        "priority": "HIGH",
    }


def test_an_unquoted_instant_in_yaml_stays_an_instant(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("type: ONCE\nschedule: 2026-05-24T10:00:00+02:00\n")

    assert definition(file=str(file)) == {
        "type": "ONCE",
        "schedule": "2026-05-24T10:00:00+02:00",
    }


@pytest.mark.parametrize("text", ["", "- a\n- b", '{"a": ', "a: [", "just words"])
def test_a_file_that_is_not_an_object_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job"
    file.write_text(text)

    with pytest.raises(typer.BadParameter):
        definition(file=str(file))


def test_retries_and_variables() -> None:
    assert definition(
        handler="h",
        backoff=Backoff.LINEAR,
        retry_delay="0.5s",
        max_retry_delay="2d",
        retry_jitter=RetryJitter.FULL,
        retry_on=[AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT],
        retry_exit_code=[75, -9],
        env=["LEVEL=a=b", "EMPTY="],
        secret=["KEY=billing/key#api", "ALL=billing/key"],
        parameter=["URL=billing/url"],
    ) == {
        "target": {
            "handler": "h",
            "env": {
                "LEVEL": "a=b",
                "EMPTY": "",
                "KEY": {"secret": "billing/key", "key": "api"},
                "ALL": {"secret": "billing/key"},
                "URL": {"parameter": "billing/url"},
            },
        },
        "retryPolicy": {
            "backoff": "LINEAR",
            "initialDelayMs": 500,
            "maxDelayMs": 172_800_000,
            "jitter": "FULL",
            "retryOn": {"states": ["FAILED", "TIMED_OUT"], "exitCodes": [75, -9]},
        },
    }
    assert definition(retry_delay="0") == {"retryPolicy": {"initialDelayMs": 0}}
    assert definition(retry_delay="30") == {"retryPolicy": {"initialDelayMs": 30_000}}


def test_variables_and_retries_are_put_over_the_files_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "target: {handler: h, env: {A: old, B: {secret: s}, C: kept}}\n"
        "retryPolicy: {maxAttempts: 5, retryOn: {exitCodes: [1], states: [FAILED]}}\n"
    )

    merged = definition(
        file=str(file), env=["A=new"], parameter=["B=p"], retry_exit_code=[75], max_attempts=2
    )

    assert merged == {
        "target": {"handler": "h", "env": {"A": "new", "B": {"parameter": "p"}, "C": "kept"}},
        "retryPolicy": {"maxAttempts": 2, "retryOn": {"exitCodes": [75], "states": ["FAILED"]}},
    }


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("12h", "2026-05-24T00:00:00Z"),
        ("1d12h", "2026-05-23T00:00:00Z"),
        ("PT30M", "2026-05-24T11:30:00Z"),
        ("2026-05-24", "2026-05-24"),
        ("2026-05-24T10:00:00+02:00", "2026-05-24T10:00:00+02:00"),
    ],
)
def test_a_moment_is_an_instant_or_a_duration_before_now(text: str, instant: str) -> None:
    assert moment(text, "--from", NOON) == instant


@pytest.mark.parametrize("text", ["Peter", "99999999999d", "PT", "yesterday", "5x"])
def test_an_invalid_moment_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        moment(text, "--from", NOON)
