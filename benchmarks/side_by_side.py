"""One load for nextfire and for its peers: one-off jobs whose script appends a line to a file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from benchmarks.execute import tree_cpu
from benchmarks.figures import percentile
from benchmarks.report import tell
from benchmarks.stack import wait_until
from tests.process_tree import children_of

SLOTS = 16
"""Scripts at a time."""
PER_SECOND, SECONDS = 50, 20
BURST = 2_000
IDLE_SECONDS = 30.0
SCRIPT = """
import time; began = time.time()
import json, os, sys
given = json.load(sys.stdin)
marks = os.open(given["marks"], os.O_WRONLY | os.O_APPEND)
os.write(marks, f"{given['job']} {began} {sys.executable}\\n".encode())
"""
"""Reads its job and the file of the marks from stdin, and appends the time of its first line and
the Python that runs it.
"""
_LEAD = timedelta(seconds=20)
"""Time to create the jobs before the first is due."""
_DRAIN = timedelta(minutes=5)
"""After the last job was due, runs that have not started are lost."""
_SETTLE = 5.0
_CREATED_BEFORE = 1.0


class Scheduler(Protocol):
    """A scheduler that runs `SCRIPT`, `SLOTS` at a time. `roots`: the processes that, with their
    descendants, are the scheduler and its database.
    """

    @property
    def roots(self) -> Sequence[int]: ...

    def create(self, jobs: Mapping[str, datetime], marks: Path) -> None:
        """Create a one-off job for each of *jobs*, by name and due time. The script of a job gets
        ``{"job": its name, "marks": marks}`` on stdin.
        """


@dataclass(frozen=True, slots=True)
class Figures:
    """What a scheduler did under the load. `cpu_per_run_s`: in the burst, all processes.
    `idle_cpu_percent`: of one core. `idle_mb`: shared pages count once.
    """

    start_p50_s: float
    start_p99_s: float
    burst_s: float
    cpu_per_run_s: float
    idle_cpu_percent: float
    idle_mb: float
    lost: int
    duplicated: int


def measure(name: str, scheduler: Scheduler, folder: Path) -> tuple[Figures, str]:
    """Measure *scheduler*, which has no jobs. *folder*: for the marks; every user may enter it.

    Returns:
        Its figures, and the path of the Python that ran the scripts.
    """
    load = _Load(scheduler, folder / "marks")
    tell(f"{name}: idle")
    idle_cpu, idle_mb = _idle(scheduler.roots)
    tell(f"{name}: {PER_SECOND} runs/s")
    late = load.paced()
    tell(f"{name}: {BURST:,} runs due in one second")
    burst, cpu = load.burst()
    starts = load.starts()
    figures = Figures(
        start_p50_s=percentile(late, 50),
        start_p99_s=percentile(late, 99),
        burst_s=burst,
        cpu_per_run_s=cpu,
        idle_cpu_percent=idle_cpu,
        idle_mb=idle_mb,
        lost=len(load.due.keys() - starts.keys()),
        duplicated=sum(len(times) > 1 for times in starts.values()),
    )
    return figures, load.interpreter()


class _Load:
    """Creates jobs and reads the marks of their scripts. `due`: the jobs by name."""

    def __init__(self, scheduler: Scheduler, marks: Path) -> None:
        self.due: dict[str, datetime] = {}
        self._scheduler = scheduler
        self._marks = marks
        marks.touch()
        marks.chmod(0o666)

    def starts(self) -> dict[str, list[float]]:
        """When the scripts of each job began, in seconds since 1970."""
        found: dict[str, list[float]] = {}
        for line in self._marks.read_text().splitlines():
            job, began, _ = line.split(maxsplit=2)
            found.setdefault(job, []).append(float(began))
        return found

    def interpreter(self) -> str:
        """The Python that ran the scripts."""
        [found] = {line.split(maxsplit=2)[2] for line in self._marks.read_text().splitlines()}
        return found

    def paced(self) -> list[float]:
        """Run `PER_SECOND` jobs each second. Returns how many seconds late each began."""
        first, gap = self._first_due(), timedelta(seconds=1) / PER_SECOND
        jobs = self._create(first + number * gap for number in range(PER_SECOND * SECONDS))
        self._await_all()
        starts = self.starts()
        return [starts[job][0] - at.timestamp() for job, at in jobs.items() if job in starts]

    def burst(self) -> tuple[float, float]:
        """Run `BURST` jobs that are due at once. Returns the seconds until all are done, and the
        CPU seconds of each.
        """
        due = self._first_due()
        self._create([due] * BURST)
        time.sleep(max((due - datetime.now(UTC)).total_seconds() - _CREATED_BEFORE, 0))
        before = _cpu(self._scheduler.roots)
        self._await_all()
        taken = (datetime.now(UTC) - due).total_seconds()
        return taken, (_cpu(self._scheduler.roots) - before) / BURST

    @staticmethod
    def _first_due() -> datetime:
        return datetime.now(UTC).replace(microsecond=0) + _LEAD

    def _create(self, instants: Iterable[datetime]) -> dict[str, datetime]:
        number = len(self.due)
        jobs = {f"job-{number + index}": at for index, at in enumerate(instants)}
        self._scheduler.create(jobs, self._marks)
        late = datetime.now(UTC) - min(jobs.values())
        if late > timedelta():
            raise RuntimeError(f"The jobs were created {late} after the first was due.")
        self.due |= jobs
        return jobs

    def _await_all(self) -> None:
        most = max(self.due.values()) - datetime.now(UTC) + _DRAIN
        with suppress(TimeoutError):  # counted as lost
            wait_until(lambda: self._marked() >= len(self.due), most=most, what="the runs")

    def _marked(self) -> int:
        lines = self._marks.read_bytes().splitlines()
        return len({line.partition(b" ")[0] for line in lines})


def _idle(roots: Sequence[int]) -> tuple[float, float]:
    """CPU in percent of one core, and megabytes."""
    time.sleep(_SETTLE)
    before = _cpu(roots)
    time.sleep(IDLE_SECONDS)
    return (_cpu(roots) - before) / IDLE_SECONDS * 100, sum(map(_memory, roots))


def _cpu(roots: Sequence[int]) -> float:
    return sum(map(tree_cpu, roots))


def _memory(pid: int) -> float:
    """Megabytes of a process and its descendants that live; shared pages count once."""
    family = [pid]
    for each in family:
        family += children_of(each)
    total = 0
    for each in family:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
            [line] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
            total += int(line.split()[1])
    return total / 1000
