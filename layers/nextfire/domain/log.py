"""Logs: what an attempt printed, line by line.

A log lies in parts, in `RunFiles`. A part is JSON lines; it is written again as it grows, up to
`PART_BYTES`, and then the next one begins. So a reader needs no listing, and a part that is
followed by another does not change any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import from_ms, to_ms

PART_BYTES = 256 * 1024

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line without its end. `at`: when the executor read it; None if that is not known."""

    at: datetime | None
    stream: Stream
    text: str


def part_name(fence: int, part: int) -> str:
    """The name, among a run's files, of part *part* (from 0) of the log of the attempt that was
    made under *fence*.
    """
    return f"log/{fence:06d}/{part:06d}.jsonl"


def encode_line(line: LogLine) -> bytes:
    at = None if line.at is None else to_ms(line.at)
    return json.dumps([at, line.stream, line.text], ensure_ascii=False).encode() + b"\n"


def decode_part(data: bytes) -> list[LogLine]:
    """The lines of a part.

    Raises:
        UndecodableError: It holds none.
    """
    try:
        return [_line(*json.loads(line)) for line in data.splitlines()]
    except (TypeError, ValueError) as error:
        raise UndecodableError(f"not a part of a log: {error}") from error


def text_lines(stream: Stream, text: str | None) -> Iterable[LogLine]:
    """The lines of what is kept on a record, which knows no instants."""
    return [LogLine(None, stream, line) for line in (text or "").splitlines()]


def _line(at: int | None, stream: str, text: str) -> LogLine:
    if stream not in {"stdout", "stderr"}:
        raise ValueError(f"{stream!r} is no stream")
    return LogLine(None if at is None else from_ms(at), stream, str(text))  # type: ignore[arg-type]
