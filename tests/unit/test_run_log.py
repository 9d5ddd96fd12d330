"""Cutting output into lines, and storing them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, TypeVar

from nextfire.domain.ids import RunFolder
from nextfire.domain.log import decode_part, part_name
from nextfire.usecases.run_log import MAX_LINE, SHIP_AFTER, SHIP_EVERY, RunLog
from tests.builders import NOON, run_key
from tests.fakes import Clock, InlineExecutor, MemoryRunFiles

FOLDER = RunFolder(run_key(), "default")
T = TypeVar("T")


class WithoutThread(Executor):
    """Its first call fails, because no thread can be started."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("can't start new thread")
        return InlineExecutor().submit(fn, *args, **kwargs)


class Hanging(Executor):
    """Its first call ends, the next one does not."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.calls += 1
        return InlineExecutor().submit(fn, *args, **kwargs) if self.calls == 1 else Future()


def test_what_is_stored_is_counted_though_an_upload_hangs() -> None:
    """Readers look at as many parts as the record says: a hand-back waits for 2 s only."""
    files, clock = MemoryRunFiles(), Clock(NOON)
    log = RunLog(files, FOLDER, 1, clock=clock, background=Hanging(), cap=1000, inline_cap=0)
    log.feed("stdout", b"a\n")
    log.ship(NOON + SHIP_AFTER)
    log.feed("stdout", b"b\n")
    log.ship(NOON + SHIP_AFTER + SHIP_EVERY)

    parts = log.close(until=clock.now(), followed=True)

    assert parts == len(files.stored) == 1


def test_a_line_without_an_end_is_cut_into_pieces() -> None:
    files, clock = MemoryRunFiles(), Clock(NOON)
    log = RunLog(
        files,
        FOLDER,
        1,
        clock=clock,
        background=InlineExecutor(),
        cap=10 * MAX_LINE,
        inline_cap=0,
    )

    log.feed("stdout", b"x" * (4 * MAX_LINE + 1))
    log.close(until=clock.now(), followed=True)

    lines = decode_part(files.stored[FOLDER, part_name(1, 0)])
    assert [line.text for line in lines] == ["x" * MAX_LINE] * 4 + ["x"]


def test_output_is_stored_though_the_clock_was_set_back() -> None:
    files, clock = MemoryRunFiles(), Clock(NOON)
    log = RunLog(files, FOLDER, 1, clock=clock, background=InlineExecutor(), cap=1000, inline_cap=0)
    log.feed("stdout", b"x\n")

    log.ship(NOON - timedelta(hours=1))

    lines = decode_part(files.stored[FOLDER, part_name(1, 0)])
    assert [line.text for line in lines] == ["x"]


def test_output_is_stored_later_if_no_thread_can_be_started() -> None:
    files, clock, background = MemoryRunFiles(), Clock(NOON), WithoutThread()
    log = RunLog(
        files, FOLDER, 1, clock=clock, background=background, cap=10 * MAX_LINE, inline_cap=0
    )
    log.feed("stdout", b"x\n")

    log.ship(NOON + SHIP_AFTER)
    assert (files.stored, background.calls) == ({}, 1)
    log.ship(NOON + SHIP_AFTER + SHIP_EVERY)

    lines = decode_part(files.stored[FOLDER, part_name(1, 0)])
    assert [line.text for line in lines] == ["x"]
