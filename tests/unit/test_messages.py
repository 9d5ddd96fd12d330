"""Messages that new users met, as they are now. The earlier text is in the comment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from pydantic import ValidationError

from nextfire.client.errors import Fault
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.invalid_fields import invalid_fields
from nextfire.domain.recurrence import check
from nextfire_cli.durations import whole_seconds
from tests.unit.test_cli_runs import Api, Call, api, call  # noqa: F401 — fixtures

NOW = datetime(2026, 5, 24, 12, tzinfo=UTC)
JOB: dict[str, Any] = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "a"}}


def refusal(**changes: Any) -> str:
    """What is wrong with the job, with *changes* (None: without the field)."""
    document = {name: value for name, value in (JOB | changes).items() if value is not None}
    try:
        check(JobDefinition.model_validate(document).schedule_from(NOW))
    except ValidationError as error:
        [found] = invalid_fields(error.errors(include_url=False), JobDefinition)
        return str(found)
    except InvalidInputError as error:
        return str(error)
    raise AssertionError("valid")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # type: Field required (got absent). Add this field.
        (
            {"type": None},
            (
                "type: required field is missing. Add one of ONCE, DELAY, CRON, INTERVAL, DATES, "
                "MANUAL, AFTER. For example `CRON`."
            ),
        ),
        # target: Field required (got absent). Add this field.
        ({"target": None}, "target: required field is missing. Add this field."),
        # timeuotSec: Extra inputs are not permitted (got 5). Did you mean `timeoutSec`?
        ({"timeuotSec": 5}, "timeuotSec: unknown field (got 5). Did you mean `timeoutSec`?"),
        # schedule: 'mond' in the day of week field (got '0 3 * * mond').
        ({"schedule": "0 3 * * mond"}, "schedule: 'mond' is not valid in the day of week field"),
        # schedule: not an ISO 8601 instant (got '2027-02-30T00:00:00Z').
        (
            {"type": "ONCE", "schedule": "2027-02-30T00:00:00Z"},
            (
                "schedule: not an ISO 8601 instant: no such date or time (got "
                "'2027-02-30T00:00:00Z')."
            ),
        ),
        (
            {"type": "ONCE", "schedule": "tomorrow"},
            "schedule: not an ISO 8601 instant (got 'tomorrow').",
        ),
        # timezone: no such time zone (got 'Europe/Berln'). Use an IANA name.
        (
            {"timezone": "Europe/Berln"},
            "timezone: time zone not found (got 'Europe/Berln'). Did you mean `Europe/Berlin`?",
        ),
        (
            {"timezone": "new york"},
            "timezone: time zone not found (got 'new york')",
        ),
        # ….states: List should have at least 1 item after validation, not 0
        (
            {"retryPolicy": {"retryOn": {"exitCodes": []}}},
            "retryPolicy.retryOn.exitCodes: an empty list (got []).",
        ),
    ],
)
def test_a_job(changes: dict[str, Any], message: str) -> None:
    assert refusal(**changes).startswith(message)


def test_the_examples_of_a_duration_are_in_its_range() -> None:
    # '20h' is not a duration …. Write 30, 30s, 10m, 30d or PT10M.
    with pytest.raises(typer.BadParameter, match=r"to 11 hours\. Write 30, 30s, 10m, 2h or PT10M"):
        whole_seconds("20h", "--timeout", 1, 39_600)
    with pytest.raises(typer.BadParameter, match="Write 30, 30s, 10m, 2h, 30d or PT10M"):
        whole_seconds("31d", "--relevancy-window", 1, 30 * 86_400)


@pytest.mark.parametrize("command", [("runs", "list")])
def test_a_flag_is_named_as_it_was_typed(
    call: Call,  # noqa: F811
    api: Api,  # noqa: F811
    command: tuple[str, ...],
) -> None:
    # Invalid value for --from
    result = call(*command, "--since", "yesterday")

    assert result.exit_code == 2
    assert "Invalid value for --since (--from)" in result.stderr
    assert not api.requests


def test_a_missing_value_is_not_shown_twice() -> None:
    assert str(Fault("a", "absent", "required field is missing", "Add it.")) == (
        "a: required field is missing. Add it."
    )
