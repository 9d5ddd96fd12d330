"""Read what a run's attempts printed, in order, a page at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from nextfire.domain.errors import InvalidInputError, NotFoundError, UndecodableError
from nextfire.domain.ids import RunKey
from nextfire.domain.log import LogLine, decode_part, part_name, text_lines
from nextfire.domain.ports import RunFiles
from nextfire.domain.run import Attempt, AttemptOutcome, Run
from nextfire.usecases.manage_runs import ManageRuns, Waiting

MAX_PAGE_BYTES = 1024 * 1024
"""Of the lines of one page as JSON; the line with which they pass it is the last one."""
MAX_READS = 40
"""Parts that one page asks for."""
_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})")
_MAY_HAVE_PARTS = {None, AttemptOutcome.WORKER_LOST}
_GOES_ON = {None, AttemptOutcome.HANDED_BACK}
_LEAVES_OUTPUT = {
    AttemptOutcome.SUCCEEDED,
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMED_OUT,
    AttemptOutcome.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines, each with its attempt's number. `cursor`: where to go on; None: that was all, for the
    run has ended. `ended`: no line is still to be printed.
    """

    lines: Sequence[tuple[int, LogLine]]
    cursor: str | None
    ended: bool


def has_parts(attempt: Attempt) -> bool:
    """Whether the log of *attempt* has, or may have, parts in `RunFiles`: nobody counted those of
    an attempt that is under way, or whose worker vanished.
    """
    return attempt.log_parts > 0 or attempt.outcome in _MAY_HAVE_PARTS


class ReadLogs:
    """The logs of runs, as far as they are stored."""

    def __init__(self, runs: ManageRuns, files: RunFiles) -> None:
        self._runs = runs
        self._files = files

    def page(
        self, key: RunKey, *, cursor: str | None, limit: int, attempt: int | None = None
    ) -> LogPage:
        """The next lines of the run, at most *limit* (≥ 1), from *cursor* on; of *attempt* only, if
        one is named.

        A line that is given once is not given again, and those of one attempt before those of the
        next. A part that is not there is left out; of one that does not decode a line tells.

        Raises:
            NotFoundError: There is no such run; or it has ended, without such an attempt.
            InvalidInputError: *cursor* is none of ours.
            UndecodableError: The record does not decode.
        """
        place = _place(cursor)
        run = self._runs.find(key)
        if isinstance(run, Waiting):
            return LogPage([], _told(place), ended=False)
        chosen = [each for each in run.attempts if attempt in {None, each.number}]
        over = run.state.ended or (attempt is not None and _is_over(run, attempt))
        if over and attempt is not None and not chosen:
            remedy = f"Its latest is {run.attempt}." if run.attempt else "It was never started."
            raise NotFoundError("attempt", str(attempt), remedy)
        page = _Page(limit)
        for each in chosen:
            fence = run.fence_of(each)
            if fence < place[0]:
                continue
            if fence > place[0]:
                place = (fence, 0, 0)
            place = self._read(run, each, place, page)
            if page.full:
                return LogPage(page.lines, _told(place), ended=over)
        return LogPage(page.lines, None if over else _told(place), ended=over)

    def _read(
        self, run: Run, attempt: Attempt, place: tuple[int, int, int], page: _Page
    ) -> tuple[int, int, int]:
        """Put what there is of *attempt* from *place* on into *page*. Returns where to go on."""
        fence, first, line = place
        if not has_parts(attempt):
            kept = _kept(run, attempt) if first == 0 else []
            taken = page.take(attempt, kept[line:])
            return (fence, 0, line + taken) if page.full else (fence + 1, 0, 0)
        for part, lines, is_last in self._parts(run, attempt, first):
            taken = page.take(attempt, lines[line:], reads=1)
            if page.full or (is_last and attempt.outcome is None):
                done = taken == len(lines[line:]) and not is_last
                return (fence, part + 1, 0) if done else (fence, part, line + taken)
            line = 0
        return (fence + 1, 0, 0)

    def _parts(
        self, run: Run, attempt: Attempt, first: int
    ) -> Iterator[tuple[int, list[LogLine], bool]]:
        """The parts of *attempt* from *first* on: number, lines, whether it is the last one there
        is now.
        """
        fence, folder = run.fence_of(attempt), run.folder_of(attempt)
        for part in count(first):
            if attempt.log_parts:
                if part >= attempt.log_parts:
                    return
                is_last = part == attempt.log_parts - 1
            else:
                # Before the part itself: one that is followed by another does not change any more.
                is_last = self._files.get(folder, part_name(fence, part + 1)) is None
            data = self._files.get(folder, part_name(fence, part))
            yield part, _lines(data, part), is_last
            if is_last:
                return


def _is_over(run: Run, number: int) -> bool:
    """Whether no attempt of *run* will have that number any more."""
    return any(
        each.number > number or (each.number == number and each.outcome not in _GOES_ON)
        for each in run.attempts
    )


@dataclass(slots=True)
class _Page:
    """Fills up by lines, by bytes, and by what it takes to read them."""

    limit: int
    lines: list[tuple[int, LogLine]] = field(default_factory=list)
    size: int = 0
    reads: int = 0

    @property
    def full(self) -> bool:
        return (
            len(self.lines) >= self.limit or self.size >= MAX_PAGE_BYTES or self.reads >= MAX_READS
        )

    def take(self, attempt: Attempt, lines: Sequence[LogLine], *, reads: int = 0) -> int:
        """Take of *lines* what there is room for. Returns how many."""
        taken = 0
        for line in lines:
            if self.full:
                break
            self.lines.append((attempt.number, line))
            self.size += len(json.dumps(line.text))
            taken += 1
        self.reads += reads
        return taken


def _lines(data: bytes | None, part: int) -> list[LogLine]:
    if data is None:
        return []
    try:
        return decode_part(data)
    except UndecodableError as error:
        return [
            LogLine(None, "stderr", f"[nextfire: part {part} of this log is unreadable: {error}]")
        ]


def _kept(run: Run, attempt: Attempt) -> list[LogLine]:
    """What the record has of *attempt*: something only if no later one left its output there."""
    left = [each for each in run.attempts if each.outcome in _LEAVES_OUTPUT]
    if not left or left[-1] is not attempt:
        return []
    return [*text_lines("stdout", run.stdout), *text_lines("stderr", run.stderr)]


def _place(cursor: str | None) -> tuple[int, int, int]:
    """Fence, part and line that *cursor* names."""
    if cursor is None:
        return (0, 0, 0)
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidInputError(
            "cursor", cursor, "not a cursor of a log", "Use one as this route returned it."
        )
    fence, part, line = map(int, match.groups())
    return (fence, part, line)


def _told(place: tuple[int, int, int]) -> str:
    return "{}-{}-{}".format(*place)
