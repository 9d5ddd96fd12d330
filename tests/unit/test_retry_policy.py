"""Retry policies: which outcomes are retried, how often, and after which delay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.endings import decide_ending
from nextfire.domain.policies import MAX_RETRY_DELAY_MS, Backoff, RetryJitter, RetryOn, RetryPolicy
from nextfire.domain.run import RunState
from nextfire.domain.schedule import MAX_DELAY
from nextfire.domain.target import Target
from tests.builders import NOON, a_job
from tests.callbacks import a_running_run


def policy(**fields: object) -> RetryPolicy:
    """A policy from the fields of its document."""
    return RetryPolicy.model_validate(fields, by_alias=True, by_name=False)


def delays(found: RetryPolicy, count: int) -> list[int]:
    return [found.delay(n) // timedelta(milliseconds=1) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff.FIXED, [1000, 1000, 1000, 1000]),
        (Backoff.LINEAR, [1000, 2000, 3000, 3500]),
        (Backoff.EXPONENTIAL, [1000, 2000, 3500, 3500]),
    ],
)
def test_delays_grow_up_to_the_longest(backoff: Backoff, expected: list[int]) -> None:
    found = policy(backoff=backoff, initialDelayMs=1000, maxDelayMs=3500)

    assert delays(found, 4) == expected


def test_a_long_first_delay_is_not_cut_by_a_default() -> None:
    day = 86_400_000

    assert delays(policy(initialDelayMs=day), 3) == [day, day, day]
    assert delays(policy(initialDelayMs=day, maxDelayMs=1000), 1) == [1000]
    again = RetryPolicy.model_validate_json(policy(initialDelayMs=day).model_dump_json())
    assert delays(again, 1) == [day], "the delay survives storage"


@given(st.integers(1, 99), st.text(max_size=20), st.integers(0, 10**7))
def test_jitter_takes_away_and_is_the_same_for_the_same_run(n: int, seed: str, first: int) -> None:
    found = policy(jitter="FULL", initialDelayMs=first, backoff="FIXED")
    delay = found.delay(n, seed)

    assert timedelta() <= delay <= timedelta(milliseconds=min(first, found.max_delay_ms))
    assert delay == found.delay(n, seed)


def test_jitter_spreads_runs_and_attempts() -> None:
    found = policy(jitter=RetryJitter.FULL, initialDelayMs=60_000, backoff="FIXED")
    spread = [found.delay(1, f"run{n}").total_seconds() for n in range(400)]

    assert len({found.delay(n, "run") for n in range(1, 20)}) == 19
    for quarter in range(4):
        within = [s for s in spread if 15 * quarter <= s < 15 * (quarter + 1)]
        assert 60 < len(within) < 140, "about 100 of them"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"maxAttempts": 0}, "maxAttempts"),
        ({"maxAttempts": -1}, "maxAttempts"),
        ({"maxAttempts": None}, "maxAttempts"),
        ({"maxAttempts": "unlimited"}, "maxAttempts"),
        ({"maxAttempts": 101}, "maxAttempts"),
        ({"maxAttempts": True}, "maxAttempts"),
        ({"initialDelayMs": -1}, "initialDelayMs"),
        ({"initialDelayMs": MAX_RETRY_DELAY_MS + 1}, "initialDelayMs"),
        ({"maxDelayMs": MAX_RETRY_DELAY_MS + 1}, "maxDelayMs"),
        ({"jitter": 0.5}, "jitter"),
        ({"retryOn": {"states": ["SUCCEEDED"]}}, "retryOn"),
        ({"retryOn": {"states": ["CANCELLED"]}}, "retryOn"),
        ({"retryOn": {"exitCodes": []}}, "retryOn"),
        ({"retryOn": {"exitCodes": [256]}}, "retryOn"),
    ],
)
def test_values_out_of_bounds_are_rejected_by_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        policy(**fields)

    assert {error["loc"][0] for error in refused.value.errors()} == {field}


def test_a_policy_that_continues_for_longer_than_any_schedule_is_refused() -> None:
    most = MAX_DELAY // timedelta(milliseconds=1) // 4

    assert policy(maxAttempts=5, backoff="FIXED", initialDelayMs=most).max_attempts == 5
    with pytest.raises(ValidationError, match="add up to"):
        policy(maxAttempts=6, backoff="FIXED", initialDelayMs=most)


def test_a_stored_call_is_retried_whatever_exit_codes_its_policy_names() -> None:
    only_75 = policy(retryOn={"exitCodes": [75]})
    failed = Result(AttemptOutcome.FAILED, "500")
    run = a_running_run()
    target = {"pool": "calls", "http": {"url": "https://api.example.com"}}

    call = decide_ending(a_job(target=target, retry_policy=only_75), run, failed, NOON)
    script = decide_ending(a_job(retry_policy=only_75), run, replace(failed, exit_code=1), NOON)

    assert (call.state, script.state) == (RunState.PENDING, RunState.DEAD)


def test_by_default_every_failure_is_tried_again() -> None:
    outcomes = {o for o in AttemptOutcome if RetryOn().covers(Result(o, "", exit_code=1))}

    assert outcomes == {
        AttemptOutcome.FAILED,
        AttemptOutcome.TIMED_OUT,
        AttemptOutcome.WORKER_LOST,
    }


@pytest.mark.parametrize(
    "env",
    [
        {"NEXTFIRE_ATTEMPT": "1"},
        {"HOME": "/"},
        {"AWS_CONTAINER_AUTHORIZATION_TOKEN": "x"},
        {"PYTHONPATH": "/"},
        {"A B": "x"},
        {"1A": "x"},
        {"A": "x\x00y"},
        {"A": 1},
        {"A": "x" * 4097},
        {f"A{n}": "x" * 4096 for n in range(5)},
        {f"A{n}": "" for n in range(65)},
        {"A": {"secret": "../other/db"}},
        {"A": {"secret": "/other/db"}},
        {"A": {"secret": "a//b"}},
        {"A": {"secret": ".."}},
        {"A": {"parameter": "a/../b"}},
        {"A": {"secret": "db", "version": 1}},
        {"A": {"secret": "db", "parameter": "db"}},
        {"A": {}},
    ],
)
def test_an_environment_that_cannot_be_given_is_refused(env: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Target.model_validate({"handler": "report", "env": env}, by_alias=True)


def test_an_environment_of_literals_and_references() -> None:
    env = {
        "LOG_LEVEL": "debug",
        "PASSWORD": {"secret": "prod/db", "key": "password"},
        "REGION": {"parameter": "prod/region"},
    }
    target = Target.model_validate({"handler": "report", "env": env})

    assert target.model_dump(mode="json", by_alias=True, exclude_none=True)["env"] == env
