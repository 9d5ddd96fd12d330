"""The pauses of the channel after requests that take much of a core."""

from __future__ import annotations

import selectors
import socket

import pytest

from nextfire.adapters.scripts import script_channel
from nextfire.adapters.scripts.script_channel import Channel
from nextfire.domain.masking import Masker
from tests.supervisors import Watch


class SlowCore:
    """The clocks of an executor in which each request takes half a second of CPU time."""

    def __init__(self) -> None:
        self.now = self.spent = self.longest = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        self.spent += 0.5
        return self.spent

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.longest = max(self.longest, seconds)


def test_a_request_that_takes_long_waits_for_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SlowCore()
    monkeypatch.setattr(script_channel, "time", core)
    script, executor = socket.socketpair()
    with script, executor:
        script.setblocking(False)
        script.sendall(b'{"op": "result", "value": 1}\n')
        channel = Channel(executor, Watch(), Masker())
        channel.ready(0)
        while channel.events() == selectors.EVENT_WRITE:  # until the response is sent
            channel.ready(0)

    assert core.now == pytest.approx((0.5 - 0.25) / 0.02), "after a burst, 2 % of a core"
    assert core.longest <= 1, "the run is supervised meanwhile"
