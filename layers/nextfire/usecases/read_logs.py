"""Read the output of a run's attempts, in order, page by page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import count

from nextfire.dataclass import dataclass, field
from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.errors import InvalidInputError, NotFoundError, UndecodableError
from nextfire.domain.ids import RunKey
from nextfire.domain.log import LogLine, decode_part, part_name, text_lines
from nextfire.domain.ports.scripts import RunFiles
from nextfire.domain.run import Run
from nextfire.usecases.find_run import FindRun, PendingOccurrence

MAX_PAGE_BYTES = 1024 * 1024
"""Maximum size of a page's lines as JSON; the line that exceeds it is still included."""
MAX_READS = 40
"""Maximum number of log parts that one page reads."""
_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})")
_CONTINUES = {None, AttemptOutcome.HANDED_BACK, AttemptOutcome.DEFERRED}
_LEAVES_OUTPUT = {
    AttemptOutcome.SUCCEEDED,
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMED_OUT,
    AttemptOutcome.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines, each with the number of its attempt. `cursor`: where to continue; None: the run has
    ended and all its lines were returned. `ended`: no further output will come.
    """

    lines: Sequence[tuple[int, LogLine]]
    cursor: str | None
    ended: bool


class ReadLogs:
    """Reads the stored logs of runs."""

    def __init__(self, find: FindRun, files: RunFiles) -> None:
        self._find = find
        self._files = files

    def page(
        self, key: RunKey, *, cursor: str | None, limit: int, attempt: int | None = None
    ) -> LogPage:
        """The next lines of the run, at most *limit* (≥ 1), from *cursor* on; with *attempt*, only
        lines of that attempt.

        Each line is returned once; the lines of an attempt precede those of the next one. Missing
        parts are omitted; an undecodable part is replaced by a line that says so.

        Raises:
            NotFoundError: The run does not exist; or it has ended without such an attempt.
            InvalidInputError: *cursor* is invalid.
            UndecodableError: The record does not decode.
        """
        place = _decode_cursor(cursor)
        run = self._find.find(key)
        if isinstance(run, PendingOccurrence):
            return LogPage([], _encode_cursor(place), ended=False)
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
                return LogPage(page.lines, _encode_cursor(place), ended=over)
        return LogPage(page.lines, None if over else _encode_cursor(place), ended=over)

    def _read(
        self, run: Run, attempt: Attempt, place: tuple[int, int, int], page: _Page
    ) -> tuple[int, int, int]:
        """Put the lines of *attempt* from *place* on into *page*. Returns where to continue."""
        fence, first, line = place
        if not attempt.may_have_parts:
            kept = _inline_output(run, attempt) if first == 0 else []
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
        """The parts of *attempt* from *first* on: number, lines, and whether it is currently the
        last one.
        """
        fence, folder = run.fence_of(attempt), run.folder_of(attempt)
        for part in count(first):
            if attempt.log_parts:
                if part >= attempt.log_parts:
                    return
                is_last = part == attempt.log_parts - 1
            else:
                # Before the part itself: a part that has a successor does not change any longer.
                is_last = self._files.get(folder, part_name(fence, part + 1)) is None
            data = self._files.get(folder, part_name(fence, part))
            yield part, _lines(data, part), is_last
            if is_last:
                return


def _is_over(run: Run, number: int) -> bool:
    """Whether attempt *number* of *run* has ended: no further attempt will get that number."""
    return any(
        each.number > number or (each.number == number and each.outcome not in _CONTINUES)
        for each in run.attempts
    )


@dataclass(slots=True)
class _Page:
    """A page of lines, limited by the number of lines, their bytes and the reads that it took."""

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
        """Add those of *lines* that there is room for. Returns how many."""
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


def _inline_output(run: Run, attempt: Attempt) -> list[LogLine]:
    """The output on the record, if it belongs to *attempt*: only the last attempt keeps it."""
    left = [each for each in run.attempts if each.outcome in _LEAVES_OUTPUT]
    if not left or left[-1] is not attempt:
        return []
    return [*text_lines("stdout", run.stdout), *text_lines("stderr", run.stderr)]


def _decode_cursor(cursor: str | None) -> tuple[int, int, int]:
    """The fence, part and line in *cursor*."""
    if cursor is None:
        return (0, 0, 0)
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidInputError(
            "cursor", cursor, "not a cursor of a log", "Use a cursor that this route returned."
        )
    fence, part, line = map(int, match.groups())
    return (fence, part, line)


def _encode_cursor(place: tuple[int, int, int]) -> str:
    return "{}-{}-{}".format(*place)
