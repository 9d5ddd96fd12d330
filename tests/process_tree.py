"""Process lookups for tests that inspect or kill processes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> list[int]:
    """The live children of the process *pid*."""
    found: list[str] = []
    with suppress(OSError):  # it has ended, or one of its threads
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += (thread / "children").read_text(encoding="ascii").split()
    return [int(each) for each in found]


def tree_of(pid: int) -> list[int]:
    """*pid* and its live descendants."""
    return [pid, *(each for child in children_of(pid) for each in tree_of(child))]


def age_of(pid: int) -> float:
    """Seconds since the process *pid* was started."""
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return uptime - int(fields[19]) / _TICKS_PER_SECOND


def function_processes(emulator: int, function: str) -> list[int]:
    """The processes in which the *emulator* runs the Lambda *function*, a physical name."""
    wanted = f"AWS_LAMBDA_FUNCTION_NAME={function}".encode()
    return [
        pid
        for pid in children_of(emulator)
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
