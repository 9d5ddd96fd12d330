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
    owner, terminal = os.getpid(), os.dup(1)
    lines, ours = os.pipe()
    ended, its = os.pipe()
    _start_printer(lines, terminal, its)
    os.dup2(ours, 1)
    for each in (lines, ours, its):
        os.close(each)
    try:
        yield
    finally:
        sys.stdout.flush()
        if os.getpid() == owner:  # a forked worker leaves by here, too
            os.dup2(terminal, 1)  # closes the pipe, unless children still have it
            os.close(terminal)
            os.read(ended, 1)  # returns when the printer has ended
            os.close(ended)


def _start_printer(lines: int, terminal: int, alive: int) -> None:
    """Start the printer, which holds *alive*. It is not a child of this process: the supervisor of
    a worker ends all its children when the worker dies.
    """
    child = os.fork()
    if child == 0:
        try:
            subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=lines, stdout=terminal, pass_fds=(alive,)
            )
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    """Print the lines of standard input until it ends, also after Ctrl-C, which ends the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        if (text := readable(line)) is not None:
            print(text, flush=True)  # noqa: T201 — its purpose


if __name__ == "__main__":
    main()
