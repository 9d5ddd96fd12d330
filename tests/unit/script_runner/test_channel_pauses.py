"""The pauses of the channel, in which the run is supervised."""

from __future__ import annotations

import json
import selectors
import socket
import threading

import pytest

from nextfire.adapters.scripts import script_channel, script_streams
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
    monkeypatch.setattr(script_streams, "time", core)
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


def test_a_large_request_waits_for_another_one_a_moment_at_a_time() -> None:
    script, executor = socket.socketpair()
    line = json.dumps({"op": "result", "value": "x" * 100_000}).encode() + b"\n"
    with script, executor:
        channel = Channel(executor, Watch(), Masker())
        sender = threading.Thread(target=script.sendall, args=[line])
        sender.start()
        with script_channel._large:  # noqa: SLF001 — another channel parses
            while channel.events() == selectors.EVENT_READ:
                step = threading.Thread(target=channel.ready, args=[0], daemon=True)
                step.start()
                step.join(timeout=5)
                assert not step.is_alive(), "no step waits until the other one is parsed"
            channel.ready(0)
            assert channel.result is None
        while channel.events() == selectors.EVENT_WRITE:
            channel.ready(0)
        sender.join()

    assert channel.result == json.dumps("x" * 100_000).encode()
