"""The pauses in the output of a script that takes much CPU time of its executor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nextfire.adapters.scripts import script_streams
from nextfire.adapters.scripts.script_streams import OUTPUT_BURST, Pace, Stream
from tests.unit.script_runner.test_channel_pauses import SlowCore


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> SlowCore:
    core = SlowCore()
    monkeypatch.setattr(script_streams, "time", core)
    return core


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


def test_output_that_takes_long_waits_for_its_share(core: SlowCore, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    printed: list[bytes] = []
    stream = Stream(reader, printed.append, Pace(OUTPUT_BURST))
    for number in range(6):
        os.write(writer, b"x")
        while len(printed) == number:
            stream.ready(0)

    assert core.now == pytest.approx((5 * 0.5 - 2) / 0.02), "after a burst, 2 % of a core"
    assert core.longest <= 1, "the run is supervised meanwhile"


def test_the_output_of_a_program_that_has_ended_is_read_at_once(
    core: SlowCore, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    printed: list[bytes] = []
    stream = Stream(reader, printed.append, Pace(OUTPUT_BURST, over=lambda: True))
    for _ in range(6):
        os.write(writer, b"x")
        stream.ready(0)

    assert len(printed) == 6
    assert core.now == 0
