"""Logs: the output of an attempt, line by line.

A log is stored in `RunFiles` as parts in JSON Lines format. A growing part is rewritten until it
reaches `PART_BYTES`; then the next part begins. So readers do not list files, and every part except
the last is immutable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from nextfire.dataclass import dataclass
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import from_ms, to_ms

PART_BYTES = 256 * 1024
END_BYTES = 256
"""Bytes of the beginning, and of the end, of a stream on the record of a run whose log is in
`RunFiles`."""

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line without its line ending. `at`: when the executor read it; None if unknown."""

    at: datetime | None
    stream: Stream
    text: str


def part_name(fence: int, part: int) -> str:
    """The file name of part *part* (from 0) of the log of the attempt with fence *fence*."""
    return f"log/{fence:06d}/{part:06d}.jsonl"


def encode_line(line: LogLine) -> bytes:
    at = None if line.at is None else to_ms(line.at)
    return json.dumps([at, line.stream, line.text], ensure_ascii=False).encode() + b"\n"


def decode_part(data: bytes) -> list[LogLine]:
    """Decode the lines of a part.

    Raises:
        UndecodableError: *data* is not a part of a log.
    """
    try:
        return [_line(*json.loads(line)) for line in data.splitlines()]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UndecodableError(f"not a part of a log: {error}") from error


def text_lines(stream: Stream, text: str | None) -> Iterable[LogLine]:
    """The lines of *text* from a run record, which does not store timestamps per line."""
    if not text:
        return []
    # Not `splitlines`, which splits at form feeds, at U+2028 and others, too: a log does not.
    lines = text.removesuffix("\n").split("\n")
    return [LogLine(None, stream, line.removesuffix("\r")) for line in lines]


def ends_of(text: str, printed: int) -> str:
    """The beginning and the end of *text*, a stream that printed *printed* bytes."""
    data = text.encode()
    if len(data) <= 2 * END_BYTES:
        return text
    head = data[:END_BYTES].decode(errors="ignore")
    tail = data[-END_BYTES:].decode(errors="ignore")
    cut = max(printed, len(data)) - len(head.encode()) - len(tail.encode())
    return f"{head}\n… [{cut} bytes cut: see the log] …\n{tail}"


def _line(at: int | None, stream: str, text: str) -> LogLine:
    if stream not in {"stdout", "stderr"}:
        raise ValueError(f"{stream!r} is not a stream")
    return LogLine(None if at is None else from_ms(at), stream, str(text))  # type: ignore[arg-type]
