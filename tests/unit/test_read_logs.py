"""Reading logs in order, each line once, while they are written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.ids import RunFolder
from nextfire.domain.log import LogLine, Stream, encode_line, part_name
from nextfire.domain.run import Run, RunState
from nextfire.usecases import read_logs
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.read_logs import ReadLogs
from tests.builders import NOON, run_key
from tests.fakes import Clock, MemoryDueStore, MemoryJobStore, MemoryRunFiles, MemoryRunStore

KEY = run_key()
FOLDER = RunFolder(KEY, "default")
FAILED, LOST = AttemptOutcome.FAILED, AttemptOutcome.WORKER_LOST


class Harness:
    """A run's record and log files as workers write them, and their reader."""

    def __init__(self) -> None:
        self.runs = MemoryRunStore()
        self.files = MemoryRunFiles()
        find = FindRun(
            MemoryJobStore(MemoryDueStore()),
            self.runs,
            retention=timedelta(days=90),
            clock=Clock(NOON),
        )
        self.reader = ReadLogs(find, self.files)

    def record(self, *outcomes: tuple[AttemptOutcome | None, int], **fields: object) -> Run:
        """Store a record. *outcomes*: outcome and number of log parts of each attempt; a last
        outcome of None: the attempt is running.
        """
        number, attempts = 1, []
        for outcome, parts in outcomes:
            attempt = Attempt(number, "w", NOON, None, outcome, log_parts=parts)
            attempts.append(replace(attempt, pool=FOLDER.pool))
            number += outcome is not AttemptOutcome.HANDED_BACK
        last = outcomes[-1][0] if outcomes else None
        run = Run(
            KEY,
            RunState.RUNNING if last is None else RunState.DEAD,
            attempt=attempts[-1].number if attempts else 0,
            fence=len(attempts),
            attempts=tuple(attempts),
        )
        run = replace(run, **fields)  # type: ignore[arg-type]
        self.runs._store(run)  # noqa: SLF001 - as a worker would store it
        return run

    def part(self, fence: int, part: int, *texts: str, stream: Stream = "stdout") -> None:
        data = b"".join(encode_line(LogLine(NOON, stream, text)) for text in texts)
        self.files.put(FOLDER, part_name(fence, part), data)

    def read(
        self, cursor: str | None = None, *, limit: int = 100, attempt: int | None = None
    ) -> tuple[list[str], str | None]:
        page = self.reader.page(KEY, cursor=cursor, limit=limit, attempt=attempt)
        assert page.cursor is not None or page.ended
        return [f"{number} {line.text}" for number, line in page.lines], page.cursor

    def all(self, limit: int = 100, attempt: int | None = None) -> list[str]:
        """All lines of an ended run, read page by page."""
        lines, cursor = self.read(limit=limit, attempt=attempt)
        while cursor is not None:
            assert len(lines) < 1000
            more, cursor = self.read(cursor, limit=limit, attempt=attempt)
            assert len(more) <= limit
            lines += more
        return lines


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_attempts_in_order_and_parts_in_order(harness: Harness, limit: int) -> None:
    harness.record((FAILED, 2), (LOST, 0), (FAILED, 1))
    harness.part(1, 0, "a", "b")
    harness.part(1, 1, "c")
    harness.part(2, 0, "d")
    harness.part(2, 1, "e")
    harness.part(3, 0, "f")

    assert harness.all(limit) == ["1 a", "1 b", "1 c", "2 d", "2 e", "3 f"]


def test_a_log_is_followed_as_it_grows(harness: Harness) -> None:
    harness.record((None, 0))
    lines_read: list[str] = []
    cursor: str | None = None

    def read_more() -> None:
        nonlocal cursor
        lines, cursor = harness.read(cursor, limit=2)
        lines_read.extend(lines)

    read_more()
    harness.part(1, 0, "a")
    read_more()
    harness.part(1, 0, "a", "b", "c", "d")
    read_more()
    read_more()
    harness.part(1, 0, "a", "b", "c", "d", "e")
    harness.part(1, 1, "f")
    read_more()
    read_more()
    harness.record((FAILED, 2), (None, 0))
    read_more()
    harness.part(2, 0, "g")
    read_more()
    harness.record((FAILED, 2), (FAILED, 1))
    read_more()

    assert lines_read == ["1 a", "1 b", "1 c", "1 d", "1 e", "1 f", "2 g"]
    assert cursor is None


def test_a_part_that_grew_before_the_next_began_is_read_to_its_end(harness: Harness) -> None:
    harness.record((None, 0))
    harness.part(1, 0, "a")
    get = harness.files.get

    def grows_meanwhile(folder: RunFolder, name: str) -> bytes | None:
        found = get(folder, name)
        if name == part_name(1, 0):
            harness.part(1, 0, "a", "b")
            harness.part(1, 1, "c")
        return found

    harness.files.get = grows_meanwhile  # type: ignore[method-assign]
    lines, cursor = harness.read()
    more, _ = harness.read(cursor)

    assert [*lines, *more] == ["1 a", "1 b", "1 c"]


def test_small_output_is_read_from_the_record(harness: Harness) -> None:
    harness.record((FAILED, 1), (FAILED, 0), stdout="b\nc\n", stderr="d")
    harness.part(1, 0, "a")

    assert harness.all() == ["1 a", "2 b", "2 c", "2 d"]
    assert harness.all(1) == ["1 a", "2 b", "2 c", "2 d"]


def test_output_on_the_record_has_the_lines_that_a_log_has(harness: Harness) -> None:
    """A line of JSON may hold a separator of lines of Unicode."""
    harness.record((AttemptOutcome.SUCCEEDED, 0), stdout="a\u2028b\x0cc\x85\rd\r\n\ne", stderr="\n")
    assert harness.all() == ["1 a\u2028b\x0cc\x85\rd", "1 ", "1 e", "1 "]


def test_the_records_output_is_its_own_attempts(harness: Harness) -> None:
    harness.record((FAILED, 0), (AttemptOutcome.HANDED_BACK, 0), stdout="a", state=RunState.PENDING)

    lines, cursor = harness.read()

    assert lines == ["1 a"]
    assert cursor is not None


@pytest.mark.parametrize("parts", [0, 1])
def test_an_attempt_that_is_over_is_not_read_again_while_the_next_is_waited_for(
    harness: Harness, parts: int
) -> None:
    harness.record((FAILED, parts), stdout="a", state=RunState.PENDING)
    for part in range(parts):
        harness.part(1, part, "a")

    lines, cursor = harness.read()

    assert lines == ["1 a"]
    assert harness.read(cursor)[0] == []


@pytest.mark.parametrize(
    "broken", [b'["half a li', b"[" * 100_000, b"[1" + b"0" * 300 + b', "stdout", "a"]']
)
def test_parts_that_are_missing_or_broken_hide_nothing_else(
    harness: Harness, broken: bytes
) -> None:
    harness.record((FAILED, 4), (None, 0))
    harness.part(1, 0, "a")
    harness.files.put(FOLDER, part_name(1, 2), broken)
    harness.part(1, 3, "b")
    harness.part(2, 1, "c")

    lines, _ = harness.read()

    assert [lines[0], *lines[2:]] == ["1 a", "1 b", "2 c"]
    assert "part 2 of this log is unreadable" in lines[1]


def test_one_attempt(harness: Harness) -> None:
    harness.record((FAILED, 1), (AttemptOutcome.HANDED_BACK, 1), (FAILED, 1), (None, 0))
    for fence in (1, 2, 3, 4):
        harness.part(fence, 0, f"by {fence}")

    assert harness.all(attempt=1) == ["1 by 1"]
    assert harness.all(attempt=2) == ["2 by 2", "2 by 3"]
    lines, cursor = harness.read(attempt=3)
    assert (lines, cursor is None) == (["3 by 4"], False)
    assert harness.read(attempt=4)[0] == []


def test_a_missing_attempt_is_not_found(harness: Harness) -> None:
    harness.record((FAILED, 1))

    with pytest.raises(NotFoundError) as refused:
        harness.read(attempt=2)

    assert "Its latest is 1." in str(refused.value)


def test_attempts_of_a_long_history_map_to_the_latest_fences(harness: Harness) -> None:
    harness.record((FAILED, 1), (FAILED, 1), fence=70)
    harness.part(69, 0, "a")
    harness.part(70, 0, "b")

    assert harness.all(1) == ["1 a", "2 b"]
    assert harness.read("3-5-7")[0] == ["1 a", "2 b"]


def test_a_page_ends_at_its_bytes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_logs, "MAX_PAGE_BYTES", 30)
    harness.record((FAILED, 1))
    harness.part(1, 0, "x" * 20, "y" * 20, "\x01" * 20, "z")

    lines, cursor = harness.read()

    assert lines == ["1 " + "x" * 20, "1 " + "y" * 20]
    assert harness.read(cursor)[0] == ["1 " + "\x01" * 20]
    assert len(harness.all()) == 4


def test_a_page_asks_for_a_bounded_number_of_parts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_logs, "MAX_READS", 3)
    harness.record((FAILED, 10))
    harness.part(1, 9, "a")

    lines, cursor = harness.read()

    assert (lines, cursor) == ([], "1-3-0")
    assert harness.all() == ["1 a"]


def test_no_record_has_no_lines_yet() -> None:
    with pytest.raises(NotFoundError):
        Harness().read()


@pytest.mark.parametrize(
    "cursor", ["", "1", "1-1", "a-b-c", "1-1-1-1", "-1-0-0", "1-1-1\n", "\u0661-1-1"]
)
def test_cursors_of_other_runs_are_rejected(harness: Harness, cursor: str) -> None:
    harness.record((FAILED, 1))

    with pytest.raises(InvalidInputError):
        harness.read(cursor)
