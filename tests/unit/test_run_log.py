"""Cutting output into lines."""

from __future__ import annotations

from nextfire.domain.ids import RunFolder
from nextfire.domain.log import decode_part, part_name
from nextfire.usecases.run_log import MAX_LINE, RunLog
from tests.builders import NOON, run_key
from tests.fakes import Clock, InlineExecutor, MemoryRunFiles

FOLDER = RunFolder(run_key(), "default")


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
