"""A worker's CPU per script, start latency, and how soon another worker takes over its runs."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figures import percentile
from benchmarks.messages import send
from benchmarks.report import Result, progress, tell
from benchmarks.stack import POOL, Child, Stack, wait_until
from benchmarks.stack import stack as running_stack
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import cut
from nextfire.domain.run import Run, RunState
from tests.process_tree import children_of

SLOTS = 16
RUNS = 1000
SECONDS = 60
BARE = 100
BOUND_RATIO = 1.8
BOUND_START_P50 = 0.04
BOUND_TAKEOVER = 10.0
_LINE = b"import sys, time; print(time.time(), sys.executable)\n"
_SLEEPS = b"import time; print(time.time(), flush=True); time.sleep(20)\n"
_READERS = 8
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sent:
    """A run and the time at which its message was sent, in seconds since 1970."""

    key: RunKey
    at: float


def measure() -> Result:
    """Run a real worker with 16 slots, with script processes and the deployed tables and queue."""
    result = Result()
    with running_stack(watcher=False, prompt=True) as stack:
        stack.push_script("line", _LINE)
        stack.push_script("sleeps", _SLEEPS)
        worker = _worker(stack, "worker")
        runs = _Runs(stack, worker)
        warm = [runs.send("line")[0] for _ in range(SLOTS)]  # loads script, starts threads
        runs.await_all(warm)
        interpreter = runs.printed(warm)[0][1]
        cpu, spread, bare = _spread(runs, worker, interpreter)
        before, began = tree_cpu(worker.record.pid), time.time()
        burst = runs.send("line", RUNS)
        runs.await_all(burst)
        burst_seconds = time.time() - began
        burst_cpu = (tree_cpu(worker.record.pid) - before) / RUNS
        printed = runs.printed(spread)
        takeover = _takeover(stack, runs, worker)
    starts = [float(line[0]) - sent.at for line, sent in zip(printed, spread, strict=True)]
    alone = sum(bare) / len(bare)
    result.add(
        "executor_cpu_ratio",
        "CPU of the worker and all its children; of `python3 script.py` alone",
        cpu / alone,
        most=BOUND_RATIO,
    )
    result.add("executor_cpu_ms", "CPU per run: worker and all its children", 1000 * cpu, unit="ms")
    result.add("burst_cpu_ms", "CPU per run in the burst", 1000 * burst_cpu, unit="ms")
    result.add("bare_cpu_ms", "CPU of `python3 script.py` alone", 1000 * alone, unit="ms")
    result.add("runs_per_cpu_s", "runs per CPU second", 1 / cpu)
    result.add(
        "start_p50_s",
        "message sent → first line, p50",
        percentile(starts, 50),
        most=BOUND_START_P50,
        unit="s",
    )
    result.add("start_p99_s", "p99", percentile(starts, 99), unit="s")
    result.add("burst_s", f"{RUNS} due at once: time until all are done", burst_seconds, unit="s")
    result.add(
        "takeover_s",
        "SIGKILL of a worker → the last of its 16 runs starts again",
        takeover,
        most=BOUND_TAKEOVER,
        unit="s",
    )
    result.notes.append(
        f"{RUNS} runs over {SECONDS} s, then {RUNS} at once; a one-line script, run by "
        f"{interpreter}; the worker has {SLOTS} slots and runs as "
        f"{'root' if os.geteuid() == 0 else 'a non-root user'}. CPU is that of the worker "
        "process and "
        f"of all its descendants; the script alone ran {BARE} times between the runs. "
        "MiniStack uses the same processors at the same time. Its long polls look every 5 ms here, "
        "not every 0.1 s."
    )
    return result


def _spread(runs: _Runs, worker: Child, interpreter: str) -> tuple[float, list[Sent], list[float]]:
    """Send `RUNS` runs over `SECONDS` s, and run the script alone at intervals in between.

    Returns:
            The CPU seconds per run, the runs, and the CPU seconds of the script alone.
    """
    sent: list[Sent] = []
    bare: list[float] = []
    before, began = tree_cpu(worker.record.pid), time.time()
    for number in progress(range(RUNS), f"{RUNS} runs over {SECONDS} s"):
        time.sleep(max(0.0, began + number * SECONDS / RUNS - time.time()))
        sent += runs.send("line")
        if number % (RUNS // BARE) == 0:
            bare.append(bare_cpu(interpreter))
    runs.await_all(sent)
    return (tree_cpu(worker.record.pid) - before) / RUNS, sent, bare


def _takeover(stack: Stack, runs: _Runs, worker: Child) -> float:
    """Kill *worker* while it executes `SLOTS` runs. Returns the seconds until another worker has
    restarted the last of them.
    """
    tell(f"starting {SLOTS} sleeping runs, then SIGKILL of their worker")
    sent = runs.send("sleeps", SLOTS)
    runs.await_all(sent, lambda run: bool(run.attempts) or run.state is RunState.RUNNING)
    time.sleep(1)
    other = _worker(stack, "other")
    runs.worker = other
    time.sleep(3)
    killed = time.time()
    [child] = children_of(worker.record.pid)  # the only child of its supervisor
    os.kill(child, signal.SIGKILL)
    runs.await_all(sent, lambda run: run.state is RunState.SUCCEEDED)
    return max(float(line[0]) for line in runs.printed(sent)) - killed


def _worker(stack: Stack, name: str) -> Child:
    environment = {
        **stack.worker_environment(),
        "NEXTFIRE_SLOTS": str(SLOTS),
        "POWERTOOLS_LOG_LEVEL": "WARNING",
    }
    return stack.spawn("functions.worker", name=name, environment=environment)


class _Runs:
    """Sends runs of one MANUAL job per script to the queue, and reads their results."""

    def __init__(self, stack: Stack, worker: Child) -> None:
        self.worker = worker
        self._stack = stack
        self._store = stack.run_store()
        self._uids: dict[str, str] = {}
        self._at = datetime.now(UTC).replace(microsecond=0)
        self._queue = SqsRunQueue(
            stack.client("sqs"),
            queues={POOL: stack.info.pools[POOL].queue_url},
            executor=ThreadPoolExecutor(4),
        )

    def send(self, handler: str, count: int = 1) -> list[Sent]:
        """Send *count* runs of *handler*."""
        keys = [self._key(handler) for _ in range(count)]
        at = time.time()
        send(self._queue, keys, pool=POOL)
        return [Sent(key, at) for key in keys]

    def _key(self, handler: str) -> RunKey:
        if handler not in self._uids:
            document = {
                "type": "MANUAL",
                "target": {"pool": POOL, "handler": handler},
                "retryPolicy": {"maxAttempts": 5},
            }
            job = self._stack.registrar().register(handler, document, self._at)
            self._uids[handler] = job.uid
        # Close to now: for a late run, an executor first looks for missed occurrences.
        self._at = max(self._at + timedelta(milliseconds=1), cut(datetime.now(UTC)))
        return RunKey(JobKey(self._stack.tenant, handler), run_id(self._uids[handler], self._at))

    def await_all(
        self,
        sent: Sequence[Sent],
        is_so: Callable[[Run], bool] = lambda run: run.state is RunState.SUCCEEDED,
    ) -> None:
        """Wait until *is_so* holds for each of *sent*; checks the last one first."""
        left = list(sent)

        def over() -> bool:
            while left:
                run = self._store.get(left[-1].key)
                if run is None or not is_so(run):
                    return False
                left.pop()
            return True

        wait_until(
            over, most=timedelta(minutes=10), what=f"{len(sent)} runs; see {self.worker.log}"
        )

    def printed(self, sent: Sequence[Sent]) -> list[list[str]]:
        """The words of the first line printed by each of *sent*."""
        with ThreadPoolExecutor(_READERS) as threads:
            runs = threads.map(lambda each: self._store.get(each.key), sent)
            return [(run.stdout or "").split() if run else [] for run in runs]


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process and all its descendants, including those that have ended."""
    return sum(map(_cpu, _family(pid) or [pid])) / _TICKS_PER_SECOND


def _cpu(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # reaped meanwhile: counted in its parent
    return sum(map(int, fields[11:15]))


def _family(pid: int) -> list[int]:
    """*pid* and its live descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for each in family:
        family += children.get(each, [])
    return family


def bare_cpu(interpreter: str) -> float:
    """CPU seconds of the one-line script run by *interpreter* alone."""
    with tempfile.NamedTemporaryFile(suffix=".py") as script:
        script.write(_LINE)
        script.flush()
        process = subprocess.Popen([interpreter, script.name], stdout=subprocess.DEVNULL)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime
