"""The states of endpoints, and how long runs wait for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.endpoints import (
    PROBE_AFTER,
    PROBE_AT_LEAST_EVERY,
    RETRY_AFTER_AT_MOST,
    Endpoint,
    EndpointKey,
    EndpointState,
    Outcome,
    admit,
    hold,
    parse_destination,
    paused,
    reported,
    resumed,
)
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ports.targets import Hold
from tests.builders import NOON, at

KEY = EndpointKey("calls", "acme", "api.example.com:443")
NEW = Endpoint(KEY)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RUNS = [f"run-{number}" for number in range(1000)]


def after(endpoint: Endpoint, *outcomes: Outcome) -> Endpoint:
    """*endpoint* after calls at noon with *outcomes*."""
    for outcome in outcomes:
        endpoint = reported(endpoint, outcome, NOON) or endpoint
    return endpoint


DOWN = after(NEW, "down", "down", "down", "down", "down")
PAUSED = paused(NEW, "maintenance", NOON)


def held(endpoint: Endpoint, since_noon: timedelta, run: str = "run") -> timedelta:
    """How long after the instant *since_noon* a run waits."""
    found = hold(endpoint, NOON + since_noon, run)
    assert isinstance(found, Hold)
    return found.until - NOON - since_noon


def test_five_consecutive_failures_open_an_endpoint() -> None:
    four = after(NEW, "down", "down", "down", "down")
    assert (four.state, four.failures) == (EndpointState.CLOSED, 4)
    assert admit(four, NOON, "run") is None

    assert DOWN.state is EndpointState.OPEN
    assert (DOWN.opened_at, DOWN.probe_at) == (NOON, NOON + PROBE_AFTER)
    assert (DOWN.version, DOWN.changed_at) == (5, NOON)


@pytest.mark.parametrize("outcome", ["ok", "throttled"])
def test_a_response_ends_the_count_of_failures(outcome: Outcome) -> None:
    again = after(NEW, "down", "down", "down", "down", outcome, "down")

    assert (again.state, again.failures, again.version) == (EndpointState.CLOSED, 1, 6)


def test_a_success_of_a_sound_endpoint_writes_nothing() -> None:
    assert reported(NEW, "ok", NOON) is None
    assert reported(NEW, "throttled", NOON) is None
    assert reported(resumed(PAUSED, NOON), "ok", NOON) is None


def test_a_failure_of_an_open_endpoint_writes_nothing() -> None:
    assert reported(DOWN, "down", NOON + MINUTE) is None


@pytest.mark.parametrize("outcome", ["ok", "throttled"])
def test_a_response_closes_an_open_endpoint(outcome: Outcome) -> None:
    closed = reported(DOWN, outcome, NOON + MINUTE)

    assert closed == Endpoint(KEY, changed_at=NOON + MINUTE, version=DOWN.version + 1)
    assert admit(closed, NOON + MINUTE, "run") is None


def test_an_open_endpoint_admits_one_probe_per_interval() -> None:
    assert isinstance(admit(DOWN, NOON + PROBE_AFTER - SECOND, "run"), Hold)

    taken = admit(DOWN, NOON + PROBE_AFTER, "run")
    assert isinstance(taken, Endpoint)
    assert taken.version == DOWN.version + 1
    assert isinstance(admit(taken, NOON + PROBE_AFTER, "another"), Hold)


def test_the_interval_of_probes_doubles_to_five_minutes() -> None:
    now, intervals, endpoint = NOON, [], DOWN
    for _ in range(6):
        assert endpoint.probe_at is not None
        intervals.append(endpoint.probe_at - now)
        now = endpoint.probe_at
        probed = admit(endpoint, now, "run")
        assert isinstance(probed, Endpoint)
        endpoint = probed

    assert intervals == [timedelta(seconds=s) for s in (30, 60, 120, 240, 300, 300)]
    assert endpoint.failed_probes == 6


def test_runs_that_wait_are_spread_over_a_minute_after_the_next_probe() -> None:
    waits = [held(DOWN, timedelta(), run) - PROBE_AFTER for run in RUNS]

    assert MINUTE <= min(waits) < 62 * SECOND
    assert 118 * SECOND < max(waits) < 120 * SECOND
    assert len(set(waits)) > 950


@pytest.mark.parametrize(
    ("age", "least", "most"),
    [
        (timedelta(minutes=4), timedelta(minutes=2), timedelta(minutes=4)),
        (timedelta(hours=2), timedelta(minutes=7.5), timedelta(minutes=15)),
        (timedelta(hours=4), timedelta(minutes=15), timedelta(minutes=30)),
        (timedelta(days=1), timedelta(minutes=22.5), timedelta(minutes=45)),
    ],
)
@pytest.mark.parametrize("endpoint", [DOWN, PAUSED], ids=["open", "paused"])
def test_the_spread_grows_with_the_outage(
    endpoint: Endpoint, age: timedelta, least: timedelta, most: timedelta
) -> None:
    waits = [held(endpoint, age, run) for run in RUNS]

    assert least <= min(waits) < least * 1.05
    assert most * 0.95 < max(waits) < most


@pytest.mark.parametrize("endpoint", [DOWN, PAUSED], ids=["open", "paused"])
def test_a_wait_depends_on_the_run_and_the_instant_alone(endpoint: Endpoint) -> None:
    day = timedelta(days=1)

    assert held(endpoint, day, "a") == held(endpoint, day, "a")
    assert held(endpoint, day, "a") != held(endpoint, day, "b")
    assert held(endpoint, day, "a") != held(endpoint, day + SECOND, "a")


def test_a_pause_holds_runs_and_has_no_probes() -> None:
    for hours in range(100):
        found = admit(PAUSED, NOON + timedelta(hours=hours), "run")
        assert isinstance(found, Hold)
        assert found.until - NOON - timedelta(hours=hours) >= MINUTE
        assert "maintenance" in found.reason


@pytest.mark.parametrize("outcome", ["ok", "throttled", "down"])
def test_no_result_ends_a_pause(outcome: Outcome) -> None:
    assert reported(PAUSED, outcome, NOON, NOON + MINUTE) is None


def test_a_pause_ends_an_outage_and_its_end_closes_the_endpoint() -> None:
    result = paused(DOWN, "moving", NOON)
    assert (result.state, result.opened_at, result.probe_at) == (EndpointState.PAUSED, None, None)

    closed = resumed(result, at("13:00"))

    assert closed == Endpoint(KEY, changed_at=at("13:00"), version=result.version + 1)


def test_a_repeated_pause_or_resume_changes_nothing() -> None:
    assert paused(PAUSED, "maintenance", at("13:00")) is PAUSED
    assert resumed(NEW, NOON) is NEW
    renamed = paused(PAUSED, "moving", at("13:00"))
    assert (renamed.pause_reason, renamed.paused_at) == ("moving", NOON)
    assert renamed.version == PAUSED.version + 1


@pytest.mark.parametrize(("asked", "within"), [(30, 10), (300, 60), (3600, 120)])
def test_runs_wait_for_the_end_of_a_retry_after(asked: int, within: int) -> None:
    """The more of them have gathered, the longer they take."""
    end = NOON + asked * SECOND
    throttled = reported(NEW, "throttled", NOON, end)
    assert throttled is not None

    waits = [held(throttled, timedelta(), run) for run in RUNS]
    assert min(waits) >= asked * SECOND
    assert (asked + within * 0.95) * SECOND < max(waits) < (asked + within) * SECOND
    assert admit(throttled, end, "run") is None


def test_responses_429_of_many_runs_write_once() -> None:
    throttled = reported(NEW, "throttled", NOON, NOON + 30 * SECOND)
    assert throttled is not None

    assert reported(throttled, "throttled", NOON + SECOND, NOON + 31 * SECOND) is None
    assert reported(throttled, "throttled", NOON, NOON + 10 * SECOND) is None
    later = reported(throttled, "throttled", NOON + SECOND, NOON + MINUTE)
    assert later is not None
    assert later.not_before == NOON + MINUTE


def test_a_long_retry_after_is_cut() -> None:
    throttled = reported(NEW, "throttled", NOON, NOON + timedelta(days=365))

    assert throttled is not None
    assert throttled.not_before == NOON + RETRY_AFTER_AT_MOST


def test_a_success_keeps_the_retry_after() -> None:
    throttled = reported(NEW, "throttled", NOON, NOON + 30 * SECOND)
    assert throttled is not None

    assert reported(throttled, "ok", NOON) is None
    failed = after(throttled, "down")
    closed = after(failed, "ok")
    assert closed.not_before == NOON + 30 * SECOND


BACK = NOON - timedelta(days=1)
"""The clock of an executor goes back by a day."""


def test_with_a_clock_that_went_back_an_endpoint_is_probed() -> None:
    probed = admit(DOWN, BACK, "run")

    assert isinstance(probed, Endpoint)
    assert probed.probe_at == BACK + 2 * PROBE_AFTER


@pytest.mark.parametrize("endpoint", [DOWN, PAUSED], ids=["open", "paused"])
def test_with_a_clock_that_went_back_runs_wait_no_longer(endpoint: Endpoint) -> None:
    found = hold(endpoint, BACK, "run")

    assert found is not None
    assert MINUTE <= found.until - BACK <= PROBE_AT_LEAST_EVERY + 2 * MINUTE


def test_with_a_clock_that_went_back_a_retry_after_is_ignored() -> None:
    throttled = replace(NEW, not_before=NOON)

    assert admit(throttled, BACK, "run") is None
    earlier = reported(throttled, "throttled", BACK, BACK + MINUTE)
    assert earlier is not None
    assert earlier.not_before == BACK + MINUTE


def test_a_clock_that_is_a_little_slow_neither_probes_nor_forgets_a_retry_after() -> None:
    slow = NOON - 2 * SECOND
    probed = replace(DOWN, probe_at=NOON + PROBE_AT_LEAST_EVERY, failed_probes=5)
    throttled = replace(NEW, not_before=NOON + RETRY_AFTER_AT_MOST)

    assert isinstance(admit(probed, slow, "run"), Hold)
    assert isinstance(admit(throttled, slow, "run"), Hold)
    assert reported(throttled, "throttled", slow, slow + RETRY_AFTER_AT_MOST) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("api.example.com", "api.example.com:443"),
        ("API.Example.com.", "api.example.com:443"),
        ("api.example.com.:80", "api.example.com:80"),
        ("api.example.com:08443", "api.example.com:8443"),
        ("10.0.0.7:80", "10.0.0.7:80"),
        ("[2001:DB8::1]", "[2001:db8::1]:443"),
        ("[2001:db8::1]:8443", "[2001:db8::1]:8443"),
    ],
)
def test_a_destination_is_a_host_and_a_port(text: str, found: str) -> None:
    assert parse_destination(text) == found


@pytest.mark.parametrize(
    "text",
    ["", ":443", "https://api.example.com", "api.example.com:", "a:0", "a:65536", "a b", "é.com",
     "a/b", "2001:db8::1", "a:443:443", "*", "-a", "a" * 300],
)  # fmt: skip
def test_anything_else_is_not_a_destination(text: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        parse_destination(text, "endpoint")

    assert refusal.value.field == "endpoint"
