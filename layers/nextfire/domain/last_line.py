"""The end of a script's stderr: usually the message of the exception that ended it."""

from __future__ import annotations

import re

MAX_LAST_LINE = 200
"""Maximum number of characters; a longer line is cut, with an ellipsis."""
MAX_MESSAGE = 300
"""Maximum number of characters of an exception's message of several lines. A run may have a hundred
attempts, each with its reason.
"""
_MAX_LINES = 100
"""Lines of a message. If there are more, they may be other output that followed it."""
_MARGIN = re.compile(r"^ +(?:\| ?|\+[-+]*(?: (?:\d+|\.\.\.) -*)?$)")
"""What a traceback of an exception group has at the left of its lines, and between them."""


def last_line(stderr: str) -> str:
    """Return the last line of *stderr* that is not blank, on one line and without control
    characters; empty if all are blank. After a traceback it may be the end of a message of several
    lines: then all of them, or the beginning of the message and the last line.
    """
    printed = [_MARGIN.sub("", line, count=1) for line in stderr.splitlines()]
    lines = [*filter(None, map(_printable, _message(printed)))]
    if not lines:
        return ""
    last = _cut(lines[-1], MAX_LAST_LINE)
    whole = " ".join([*lines[:-1], last])
    if len(whole) <= MAX_MESSAGE:
        return whole
    return f"{_cut(' '.join(lines[:-1]), MAX_MESSAGE - len(last) - 1)} {last}"


def explained(line: str) -> str:
    """*line*, the last of stderr; if a module was not found, with the reason that a user looks for:
    folders of the executor are often below one that only root may enter, so an import from there
    fails as if the package did not exist.
    """
    if not line.startswith("ModuleNotFoundError: "):
        return line
    return (
        f"{line}. A script has the packages that it declares or brings in an archive; it may not"
        " read those of the executor, nor a folder that its user may not enter"
    )


def _message(lines: list[str]) -> list[str]:
    """The lines of *lines* from the first line of the message of the last traceback on; without a
    traceback close to the end, the last line that is not blank.
    """
    while lines and not _printable(lines[-1]):
        lines.pop()
    nearby = lines[-_MAX_LINES:]
    frames = [number for number, line in enumerate(nearby) if line.startswith("  File ")]
    # Frames are indented, the message is not.
    starts = range(frames[-1] + 1, len(nearby)) if frames else range(0)
    start = next((number for number in starts if not nearby[number].startswith("  ")), None)
    return lines[-1:] if start is None else nearby[start:]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _printable(line: str) -> str:
    """*line* without what a terminal would act on, and dead-letter queues reject."""
    return " ".join("".join(c if c.isprintable() else " " for c in line).split())
