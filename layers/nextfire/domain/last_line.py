"""The last line of a script's stderr: mostly the message of the exception that ended it."""

from __future__ import annotations

MAX_LAST_LINE = 200
"""Maximum number of characters; a longer line is cut, with an ellipsis."""


def last_line(stderr: str) -> str:
    """Return the last line of *stderr* that is not blank, on one line and without control
    characters; empty if all are blank.
    """
    lines = (_printable(line) for line in reversed(stderr.splitlines()))
    line = next(filter(None, lines), "")
    return line if len(line) <= MAX_LAST_LINE else f"{line[: MAX_LAST_LINE - 1]}…"


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


def _printable(line: str) -> str:
    """*line* without what a terminal would act on, and dead-letter queues reject."""
    return " ".join("".join(c if c.isprintable() else " " for c in line).split())
