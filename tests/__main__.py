"""Runs all tests but those that take long, or, with NEXTFIRE_LONG=1, those: what mostly waits
beside what computes.

What runs beside writes to files, which are shown when all has ended. Ends with 1 if anything
failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any

from tests.crons import LONG

_PYTHON = [sys.executable, "-m"]
_PYTEST = [*_PYTHON, "pytest"]
_SIDE_BY_SIDE = ["-n", str(os.cpu_count() or 2)]
_SEEDED = ("audit", "schedule_cronsim", "schedule_oracle", "simulation", "stretch", "zones")


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


@dataclass(frozen=True, slots=True)
class _Plan:
    """`others`: what computes, one command after the other; `beside`: what runs meanwhile."""

    others: dict[str, list[str]]
    beside: list[_Beside]


def _short() -> _Plan:
    """All but what takes long. What goes by the clock goes first."""
    histories = [*_PYTHON, "tests.simulation", "--seeds", "1000"]
    return _Plan(
        {"tests": [*_PYTEST, *_SIDE_BY_SIDE, "--ignore", "tests/e2e"]},
        [
            _Beside("end to end", [*_PYTEST, "tests/e2e"]),
            _Beside("histories", ["nice", "-n", "15", *histories]),
        ],
    )


def _long() -> _Plan:
    """What is left out of the short one, or has more cases here. What meets real servers comes when
    those of the local stack have ended.
    """
    seeded = [f"tests/unit/test_{name}.py" for name in _SEEDED]
    of_stack = ["tests/soak", "tests/e2e/test_redrive_many.py", "tests/e2e/test_schema.py"]
    return _Plan(
        {
            "seeds": [*_PYTEST, *_SIDE_BY_SIDE, *seeded, "tests/unit/test_script_runner.py"],
            "crash points": [*_PYTHON, "tests.crashes"],
            "fuzzing": [*_PYTHON, "tests.fuzz"],
            "histories": [*_PYTHON, "tests.simulation", "--seeds", "10000"],
            "security": [
                *_PYTEST,
                "tests/security/test_hostile_script.py",
                "tests/security/test_cpu_per_byte.py",
            ],
            "integration": [
                *_PYTEST,
                *_SIDE_BY_SIDE,
                "tests/integration",
                "tests/model",
                "tests/infra",
            ],
        },
        [_Beside("local stack", [*_PYTEST, *of_stack])],
    )


def main() -> int:
    """Run them; Ctrl-C reaches each, and is waited for."""
    plan = _long() if LONG else _short()
    running = [(each, each.begin()) for each in plan.beside]
    failed = []
    try:
        for name, command in plan.others.items():
            if subprocess.run(["nice", "-n", "5", *command], check=False).returncode != 0:
                failed.append(name)
    finally:
        for each, process in running:
            if process.wait() != 0:
                failed.append(each.name)
            each.show()
        print(f"\nfailed: {', '.join(failed) or 'nothing'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
