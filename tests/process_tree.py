"""Process lookups for tests that inspect or kill processes."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> list[int]:
    """The children of the process *pid*'s first thread, such as a supervisor's worker."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(each) for each in listed.split()]


def tree_of(pid: int) -> list[int]:
    """*pid* and its descendants, as far as `children_of` finds them."""
    return [pid, *(each for child in children_of(pid) for each in tree_of(child))]


def age_of(pid: int) -> float:
    """Seconds since the process *pid* was started."""
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return uptime - int(fields[19]) / _TICKS_PER_SECOND


def function_processes(emulator: int, function: str) -> list[int]:
    """The processes in which the *emulator* runs the Lambda *function*, a physical name."""
    wanted = f"AWS_LAMBDA_FUNCTION_NAME={function}".encode()
    threads = Path(f"/proc/{emulator}/task").iterdir()
    children = " ".join((thread / "children").read_text(encoding="ascii") for thread in threads)
    return [
        int(pid)
        for pid in children.split()
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
