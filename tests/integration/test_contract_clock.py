"""What `Clock` promises, on the fake and on the machine's."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.adapters.aws import SystemClock
from nextfire.domain import ports
from tests.builders import NOON
from tests.fakes import Clock

CONTRACT_OF = (ports.Clock,)


@pytest.fixture(params=[Clock(NOON), SystemClock()], ids=["memory", "system"])
def clock(request: pytest.FixtureRequest) -> ports.Clock:
    there: ports.Clock = request.param
    return there


def test_now_is_in_utc(clock: ports.Clock) -> None:
    assert clock.now().utcoffset() == timedelta()


@pytest.mark.parametrize("duration", [timedelta(), timedelta(milliseconds=30)], ids=str)
def test_a_sleep_is_over_when_its_time_has_passed(clock: ports.Clock, duration: timedelta) -> None:
    began_at = clock.now()

    clock.sleep(duration)

    assert clock.now() - began_at >= duration
