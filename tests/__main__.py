"""Runs all tests but those that take long: what mostly waits beside what computes.

The end-to-end tests and the histories of the simulation write to files, which are shown when they
have ended. Ends with 1 if anything failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any

_HISTORIES = 2_000
_PYTEST = [sys.executable, "-m", "pytest"]


@dataclass(frozen=True, slots=True)
class _Beside:
    """What runs beside the others, in a process of its own."""

    name: str
    command: list[str]
    output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def begin(self) -> subprocess.Popen[Any]:
        return subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.STDOUT)

    def show(self) -> None:
        print(f"\n{f' {self.name} ':=^80}", flush=True)
        self.output.seek(0)
        sys.stdout.buffer.write(self.output.read())
        sys.stdout.flush()


def main() -> int:
    """Run them; Ctrl-C reaches each, and is waited for. What goes by the clock goes first."""
    histories = [sys.executable, "-m", "tests.simulation", "--seeds", str(_HISTORIES)]
    others = [*_PYTEST, "-n", str(os.cpu_count() or 2), "--ignore", "tests/e2e"]
    beside = [
        _Beside("end to end", [*_PYTEST, "tests/e2e"]),
        _Beside("histories", ["nice", "-n", "15", *histories]),
    ]
    running = [(each, each.begin()) for each in beside]
    failed = False
    try:
        failed = subprocess.run(["nice", "-n", "5", *others], check=False).returncode != 0
    finally:
        for each, process in running:
            failed = process.wait() != 0 or failed
            each.show()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
