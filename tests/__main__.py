"""Run the short tests, or, with NEXTFIRE_LONG=1, the long ones.

``python -m tests histories "end to end"`` runs these commands of the plan only.

CPU-bound commands run one after the other; commands that mostly wait run next to them in the
background. The end of each command is reported with its minutes. The output of background commands
is shown when all have ended, and the names of the tests that failed come last. The exit status is 1
if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.crons import LONG

_PYTHON = [sys.executable, "-m"]
_PYTEST = [*_PYTHON, "pytest"]
_SLOWEST = ["--durations", "30", "--durations-min", "4"]
"""Shows which tests take long."""
_SIDE_BY_SIDE = ["-n", str((os.cpu_count() or 2) + 1), "--dist", "worksteal"]
"""Each process has tests that follow each other, so that a module's fixtures are made once. One
more than CPU cores, as tests wait for processes.
"""
_TWO_STACKS = ["-n", "2", "--dist", "loadfile"]
"""Each process has its own stack. End-to-end tests mostly wait, but one after the other they take
longer than all other tests.
"""
_PROCESSES = ("tests/unit/launcher", "tests/unit/script_runner", "tests/security")
"""Tests that mostly wait for processes, many of them of scripts."""
_CACHES = Path(".pytest_cache", "plan").absolute()
"""A folder for each command of the plan, in which pytest records the tests that failed."""
_PATIENT = ["--timeout", "1800"]
"""A test with many cases may take longer than a hanging short one is allowed."""
_BYTECODE = Path(".nextfire", "bytecode").absolute()
_MEMORY = Path("/dev/shm")  # noqa: S108
_ROOM = 4 * 1024**3
"""Bytes. The tests write about a tenth of that."""
_ON_DISK = "processes"
"""Scripts see the folders of these tests as they do in production: below `/tmp`."""


@dataclass(frozen=True, slots=True)
class _Background:
    """A command that runs in the background."""

    name: str
    command: list[str]
    output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def begin(self, memory: Path | None) -> subprocess.Popen[Any]:
        command = _complete(self.name, self.command, memory)
        return subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT)

    def show(self) -> None:
        print(f"\n{f' {self.name} ':=^80}", flush=True)
        self.output.seek(0)
        sys.stdout.buffer.write(self.output.read())
        sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Plan:
    """`foreground`: CPU-bound commands, run in sequence; `background`: commands next to them."""

    foreground: dict[str, list[str]]
    background: list[_Background]

    @property
    def names(self) -> list[str]:
        return [*self.foreground, *(each.name for each in self.background)]

    def only(self, names: Collection[str]) -> _Plan:
        """The commands called *names*."""
        return _Plan(
            {name: command for name, command in self.foreground.items() if name in names},
            [each for each in self.background if each.name in names],
        )


def _short() -> _Plan:
    """All tests except the long ones. The timing-sensitive ones start first."""
    histories = [*_PYTHON, "tests.simulation", "--seeds", "100"]
    return _Plan(
        {
            "tests": [
                *_PYTEST,
                *_SLOWEST,
                *_SIDE_BY_SIDE,
                *(f"--ignore={each}" for each in ("tests/e2e", "tests/embedded", *_PROCESSES)),
            ]
        },
        [
            _Background("processes", [*_PYTEST, *_SLOWEST, *_PROCESSES]),
            _Background("end to end", [*_PYTEST, *_SLOWEST, *_TWO_STACKS, "tests/e2e"]),
            _Background("embedded", [*_PYTEST, "tests/embedded"]),
            _Background("histories", ["nice", "-n", "15", *histories]),
        ],
    )


def _long() -> _Plan:
    """The tests that the short plan skips, and its own with more cases. Those whose cases another
    command has are left out. Attacks on the sandbox, and benchmarks, run alone.
    """
    attacks = ("tests/security/test_hostile_script.py", "tests/security/test_cpu_per_byte.py")
    crashes = "tests/crashes/test_crashes.py"
    versions = "tests/upgrade/test_deployed_versions.py"
    stacks = ("tests/e2e", "tests/embedded", "tests/soak", versions)
    others = (*stacks, crashes, "tests/fuzz", *attacks)
    of_stack = [
        "tests/soak",
        "tests/embedded/test_deaths.py",
        "tests/embedded/test_hangs.py",
        versions,
        *(
            f"tests/e2e/test_{name}.py"
            for name in ("deaths", "redrive_many", "schema", "endpoint_down", "strict")
        ),
    ]
    return _Plan(
        {
            "tests": [
                *_PYTEST,
                *_PATIENT,
                *_SIDE_BY_SIDE,
                *(f"--ignore={each}" for each in others),
            ],
            "crash points": [*_PYTHON, "tests.crashes", "--pairs", "24"],
            "fuzzing": [*_PYTHON, "tests.fuzz"],
            "histories": [*_PYTHON, "tests.simulation", "--seeds", "10000"],
            "security": [*_PYTEST, *_PATIENT, *attacks],
            "benchmarks": [*_PYTHON, "benchmarks", "--strict", "paused", "fairness"],
        },
        [_Background("local stack", [*_PYTEST, *_PATIENT, *of_stack])],
    )


def _complete(name: str, command: list[str], memory: Path | None) -> list[str]:
    """*command*. If it is pytest, it records the tests that fail, and has the folders of its tests
    in *memory*.
    """
    if "pytest" not in command:
        return command
    command = [*command, "-o", f"cache_dir={_CACHES / name}"]
    if memory is None or name == _ON_DISK:
        return command
    return [*command, f"--basetemp={memory / name.replace(' ', '-')}"]


@contextmanager
def _folder_in_memory() -> Iterator[Path | None]:
    """A folder in memory; None if less than `_ROOM` is free, and for the long tests. On a disk,
    tests wait for each of their thousands of commits to SQLite.
    """
    if LONG or not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM:
        yield None
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="nextfire-") as folder:
        yield Path(folder)


def _failed_tests(name: str) -> list[str]:
    """The ids of the tests of the command *name* that failed; empty if it recorded none."""
    try:
        return [*json.loads(_CACHES.joinpath(name, "v/cache/lastfailed").read_text())]
    except FileNotFoundError:
        return []


class _Report:
    """Reports the end of each command. `failed`: the names of those that failed."""

    def __init__(self, plan: _Plan) -> None:
        self._began = time.monotonic()
        self._names = plan.names
        self._ended = 0
        self.failed: list[str] = []

    def minutes(self) -> float:
        """Minutes since the start."""
        return (time.monotonic() - self._began) / 60

    def ended(self, name: str, code: int, began: float) -> None:
        """*name*, which began at minute *began*, has ended with *code*."""
        self._ended += 1
        if code:
            self.failed.append(name)
        print(
            f"[{self._ended} of {len(self._names)}] {name}: {'FAILED' if code else 'passed'} "
            f"in {self.minutes() - began:.1f} min, {self.minutes():.1f} min in all",
            flush=True,
        )


def _wait_in_the_background(
    running: Collection[tuple[_Background, subprocess.Popen[Any]]], report: _Report
) -> list[threading.Thread]:
    """Threads that report the end of each of *running*."""

    def wait(name: str, process: subprocess.Popen[Any]) -> None:
        report.ended(name, process.wait(), 0)

    threads = [
        threading.Thread(target=wait, args=(each.name, process)) for each, process in running
    ]
    for thread in threads:
        thread.start()
    return threads


def main(names: Collection[str]) -> int:
    """Run the commands called *names*; none: the whole plan. Ctrl-C reaches every command; wait for
    all of them to end.
    """
    plan = _long() if LONG else _short()
    if unknown := [*set(names) - {*plan.names}]:
        print(f"Command {unknown[0]!r} not found. Commands: {', '.join(plan.names)}.")
        return 2
    plan = plan.only(names or plan.names)
    for name in plan.names:
        shutil.rmtree(_CACHES / name, ignore_errors=True)
    # Hundreds of processes import the same modules. Elsewhere: the caller may want none in place.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # noqa: TID251
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(_BYTECODE))  # noqa: TID251
    if not _BYTECODE.exists():
        # Once, and not in each of the commands that start at the same time.
        subprocess.run([*_PYTEST, "--collect-only"], check=False, stdout=subprocess.DEVNULL)
    with _folder_in_memory() as memory:
        report = _run(plan, memory)
    return int(bool(report.failed))


def _run(plan: _Plan, memory: Path | None) -> _Report:
    """Run the commands of *plan*, print their output and what failed."""
    report = _Report(plan)
    running = [(each, each.begin(memory)) for each in plan.background]
    waiting = _wait_in_the_background(running, report)
    try:
        for name, command in plan.foreground.items():
            began = report.minutes()
            polite = ["nice", "-n", "5", *_complete(name, command, memory)]
            report.ended(name, subprocess.run(polite, check=False).returncode, began)
    finally:
        for thread in waiting:
            thread.join()
        for each, _ in running:
            each.show()
        print(
            f"\ntook {report.minutes():.0f} min; what was skipped is listed above with its reason"
        )
        print(f"failed: {', '.join(report.failed) or 'nothing'}", flush=True)
        for test in [test for name in report.failed for test in _failed_tests(name)]:
            print(f"  {test}", flush=True)
    return report


def _names() -> list[str]:
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="commands to run; default: all")
    found: list[str] = parser.parse_args().names
    return found


if __name__ == "__main__":
    sys.exit(main(_names()))
