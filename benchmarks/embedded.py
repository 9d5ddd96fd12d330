"""The embedded stack: its start, start latency, a burst, its CPU and its memory."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.execute import tree_cpu
from benchmarks.figures import percentile
from benchmarks.harness import wait_until
from benchmarks.report import Result, progress, tell
from nextfire import Client
from nextfire.client.bearer import Bearer
from nextfire_cli.local.embedded import EmbeddedInfo, EmbeddedStack
from tests.process_tree import children_of

STARTS = 5
PER_SECOND, SECONDS = 50, 20
BURST = 2_000
IDLE_SECONDS = 30.0
MAX_START, MAX_START_P99, MAX_IDLE_PERCENT = 2.0, 0.15, 2.0
ROOT = Path(__file__).resolve().parents[1]
_BATCH = 100
_LEAD = timedelta(seconds=20)
"""Time to create the jobs before the first is due."""
_DRAIN = timedelta(minutes=15)
_SCRIPT = b"""
import json, os, sys
marks = os.open(json.load(sys.stdin)["marks"], os.O_WRONLY | os.O_APPEND)
os.write(marks, (os.environ["NEXTFIRE_EXECUTION_ID"] + "\\n").encode())
"""


def measure() -> Result:
    """Run the real stack with one worker of 16 slots, and scripts in processes."""
    result = Result()
    with state_folder() as state:
        result.add("start_s", "`nextfire up`", _start(state), most=MAX_START, unit="s")
    with (
        state_folder() as state,
        EmbeddedStack(state, sources=ROOT).running(tell) as info,
        Client(info.endpoint, auth=Bearer(info.api_key)) as client,
    ):
        client.push_script("mark", _SCRIPT)
        load = _Load(client, info, state)
        _idle(result, info)
        _paced(result, load)
        _burst(result, load)
        lost, duplicated = load.account()
        result.add("lost", "runs lost", lost, most=0)
        result.add("duplicated", "runs started twice", duplicated, most=0)
    result.notes.append(
        "Not measured: the ratios to procrastinate and graphile-worker, which need PostgreSQL."
    )
    return result


@contextmanager
def state_folder(prefix: str = "bench-embedded-") -> Iterator[Path]:
    """A folder for the state of a stack, which is removed at the end."""
    # Scripts of dedicated users must be able to enter it.
    state = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))
    state.chmod(0o711)
    try:
        yield state
    finally:
        shutil.rmtree(state)


def _start(folder: Path) -> float:
    """Median seconds from the start of `nextfire up` until it says that the API answers."""
    program, taken = Path(sys.executable).with_name("nextfire"), []
    for _ in progress(range(STARTS), "starts"):
        began = time.monotonic()
        with subprocess.Popen(
            [program, "up"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as up:
            assert up.stdout is not None  # noqa: S101 — a pipe
            up.stdout.readline()
            taken.append(time.monotonic() - began)
            up.terminate()
    return statistics.median(taken)


class _Load:
    """Creates jobs, and accounts for their runs."""

    def __init__(self, client: Client, info: EmbeddedInfo, state: Path) -> None:
        self.client = client
        self.supervisor = info.processes[0].pid
        self._marks = state / "marks"
        self._marks.touch()
        self._marks.chmod(0o666)
        self._created = 0

    def create(self, instants: Sequence[datetime]) -> list[str]:
        """Create a job for each of *instants*. Returns their ids."""
        ids = [f"job-{self._created + number}" for number in range(len(instants))]
        self._created += len(instants)
        definitions = [
            {
                "jobId": job_id,
                "type": "ONCE",
                "schedule": at.isoformat(),
                "target": {"handler": "mark"},
                "payload": {"marks": str(self._marks)},
            }
            for job_id, at in zip(ids, instants, strict=True)
        ]
        for first in range(0, len(definitions), _BATCH):
            self.client.create_jobs(definitions[first : first + _BATCH])
        return ids

    def started(self) -> Counter[str]:
        """The executions that have run, with the number of their starts."""
        return Counter(self._marks.read_text().split())

    def await_all(self) -> None:
        """Wait until all jobs have run."""
        wait_until(lambda: len(self.started()) >= self._created, most=_DRAIN, what="the runs")

    def account(self) -> tuple[int, int]:
        """The number of jobs that did not run, and of executions that ran twice."""
        starts = self.started()
        return self._created - len(starts), sum(count > 1 for count in starts.values())


def _idle(result: Result, info: EmbeddedInfo) -> None:
    pid = info.processes[0].pid
    time.sleep(5)
    before = tree_cpu(pid)
    time.sleep(IDLE_SECONDS)
    percent = (tree_cpu(pid) - before) / IDLE_SECONDS * 100
    result.add(
        "idle_cpu_percent", "idle: CPU of one core", percent, most=MAX_IDLE_PERCENT, unit="%"
    )
    result.add("idle_mb", "idle: memory (PSS)", _memory(pid), unit="MB")


def _paced(result: Result, load: _Load) -> None:
    first = datetime.now(UTC).replace(microsecond=0) + _LEAD
    gap = timedelta(seconds=1) / PER_SECOND
    ids = load.create([first + number * gap for number in range(PER_SECOND * SECONDS)])
    load.await_all()
    late = [_lateness(load.client, job_id) for job_id in progress(ids, "records")]
    what = f"due → started, {PER_SECOND} runs/s"
    result.add("start_p50_s", f"{what}, p50", percentile(late, 50), unit="s")
    result.add("start_p99_s", f"{what}, p99", percentile(late, 99), most=MAX_START_P99, unit="s")


def _burst(result: Result, load: _Load) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + _LEAD
    load.create([due] * BURST)
    time.sleep(max((due - datetime.now(UTC)).total_seconds() - 1, 0))
    before = tree_cpu(load.supervisor)
    load.await_all()
    taken = (datetime.now(UTC) - due).total_seconds()
    cpu = (tree_cpu(load.supervisor) - before) / BURST
    result.add("burst_s", f"{BURST:,} runs due in one second: until all are done", taken, unit="s")
    result.add("cpu_per_run_s", "CPU per run, with its script", cpu, unit="s")


def _lateness(client: Client, job_id: str) -> float:
    [run] = client.list_executions(job_id).items
    at, started = (
        datetime.fromisoformat(run.document[name]) for name in ("scheduledAt", "startedAt")
    )
    return (started - at).total_seconds()


def _memory(pid: int) -> float:
    """Megabytes of a process and its descendants; shared pages count once."""
    family = [pid]
    for each in family:
        family += children_of(each)
    total = 0
    for each in family:
        rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
        [line] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
        total += int(line.split()[1])
    return total / 1000
