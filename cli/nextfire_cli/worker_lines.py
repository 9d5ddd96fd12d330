"""Lines of a worker's log for people: ``python -m nextfire_cli.worker_lines`` reads the log on
standard input and prints it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nextfire_cli.escaping import escaped

_HEAD = {"level", "location", "message", "timestamp", "service", "execution_id", "state"}
_REST = {"disposition", "tenant", "exception_name", "xray_trace_id"}
"""Fields that are not shown, or only in the beginning of the line."""


def readable(line: str) -> str | None:
    """The *line* of a log for people; None for metrics. A line that is not JSON stays as it is."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return escaped(line.rstrip("\n"), keep="\t")
    if not isinstance(entry, dict) or "_aws" in entry:
        return None
    words = [
        str(entry.get("timestamp", ""))[:19],
        *([str(entry["level"])] if entry.get("level", "INFO") != "INFO" else []),
        *(str(entry[name]) for name in ("execution_id", "state", "message") if entry.get(name)),
        *(f"{name}={value}" for name, value in entry.items() if name not in _HEAD | _REST),
    ]
    return escaped("  ".join(filter(None, words)), keep="\n")


@contextmanager
def lines_for_people() -> Iterator[None]:
    """Within the context, what this process and its children print on standard output is readable.
    Their standard output becomes a pipe to a process that prints the lines.
    """
    sys.stdout.flush()
    terminal = os.dup(1)
    try:
        with subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=terminal
        ) as printer:
            if printer.stdin is None:
                raise AssertionError("no pipe")
            os.dup2(printer.stdin.fileno(), 1)
            printer.stdin.close()
            try:
                yield
            finally:
                sys.stdout.flush()
                os.dup2(terminal, 1)  # closes the pipe, unless children still have it
    finally:
        os.close(terminal)


def main() -> None:
    """Print the lines of standard input until it ends, also after Ctrl-C, which ends the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        if (text := readable(line)) is not None:
            print(text, flush=True)  # noqa: T201 — its purpose


if __name__ == "__main__":
    main()
