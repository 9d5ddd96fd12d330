"""The contract of `Clock`, on the fake and on the machine's clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.ports import clocks
from tests.builders import NOON
from tests.fakes import Clock

CONTRACT_OF = (clocks.Clock,)


@pytest.fixture(params=[Clock(NOON), SystemClock()], ids=["memory", "system"])
def clock(request: pytest.FixtureRequest) -> clocks.Clock:
    tested: clocks.Clock = request.param
    return tested


def test_now_is_in_utc(clock: clocks.Clock) -> None:
    assert clock.now().utcoffset() == timedelta()


@pytest.mark.parametrize("duration", [timedelta(), timedelta(milliseconds=30)], ids=str)
def test_a_sleep_is_over_when_its_time_has_passed(clock: clocks.Clock, duration: timedelta) -> None:
    began_at = clock.now()

    clock.sleep(duration)

    assert clock.now() - began_at >= duration
