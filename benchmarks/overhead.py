"""The overhead of the executor for a script: time before and after it, and memory."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
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

RUNS = 200
BUSY = 100
_STAMPS = b"import time, sys\nprint(time.time())\nprint(sys.executable)\nprint(time.time())\n"
_TALKS = b"print('x' * 4_000_000)\n"
_A_WHILE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Times:
    """Timestamps of one run, in seconds since 1970."""

    sent: float
    claimed: float
    started: float
    ended: float
    recorded: float
    interpreter: str


def measure() -> Result:
    """Run scripts one at a time in a real worker, and each script again without a worker."""
    result = Result()
    with running_stack(watcher=False) as stack:
        stack.push_script("stamps", _STAMPS)
        stack.push_script("talks", _TALKS)
        recorded = stack.folder / "recorded"
        worker = stack.spawn(
            "benchmarks.recorder",
            str(recorded),
            name="recorder",
            environment=stack.worker_environment(),
        )
        wait_until(recorded.exists, most=_A_WHILE, what="the worker")
        time.sleep(3)
        idle = worker.peak_memory()
        runs = Runs(stack, worker, recorded)
        times: list[Times] = []
        bare: list[float] = []
        interpreter = runs.one("stamps").interpreter  # the first run fetches the script
        for _ in progress(range(RUNS), f"{RUNS} runs, one at a time"):
            times.append(runs.one("stamps"))
            bare.append(bare_start(interpreter))
        runs.many("talks", BUSY)
        busy = worker.peak_memory()
    start = [each.started - each.sent for each in times]
    claim = [each.claimed - each.sent for each in times]
    end = [each.recorded - each.ended for each in times]
    for key, what, figures in (
        ("start", "message sent → script's first line", start),
        ("claim", "of that, message sent → start of the claim", claim),
        ("end", "script's last line → outcome stored", end),
        ("bare_start", "python script.py: start → first line", bare),
    ):
        for percent in (50, 99) if key != "bare_start" else (50,):
            name = f"{key}_p{percent}_s" if key != "bare_start" else "bare_start_s"
            result.add(name, f"{what}, p{percent}", percentile(figures, percent), unit="s")
    result.add("idle_mb", "worker's peak memory, idle", idle, unit="MiB")
    result.add("busy_mb", f"worker's peak memory, {BUSY} runs that print 4 MB", busy, unit="MiB")
    result.notes.append(
        f"{RUNS} runs of a three-line script, one at a time, each followed by the same script "
        "run by "
        f"{interpreter} alone. The worker is a real one with 4 slots. The end includes the exit "
        "of the "
        "interpreter, the search for leftovers of the script, and the removal of its folder."
    )
    return result


class Runs:
    """Sends runs of one MANUAL job per script to the queue, and waits for their outcome."""

    def __init__(self, stack: Stack, worker: Child, recorded: Path) -> None:
        self._stack = stack
        self._worker = worker
        self._recorded = recorded
        self._store = stack.run_store()
        self._uids: dict[str, str] = {}
        self._at = datetime.now(UTC).replace(microsecond=0)
        self._queue = SqsRunQueue(
            stack.client("sqs"),
            queues={POOL: stack.info.pools[POOL].queue_url},
            executor=ThreadPoolExecutor(1),
        )

    def one(self, handler: str) -> Times:
        """Execute one run of *handler*, which prints its start and end times."""
        (key,) = keys = [self._key(handler)]
        sent = time.time()
        send(self._queue, keys, pool=POOL)
        self._await(keys)
        run = self._store.get(key)
        if run is None or run.stdout is None or run.started_at is None:
            raise RuntimeError(f"{key.execution_id} left no output")
        started, interpreter, ended = run.stdout.split()
        recorded = self._outcomes()[key.run_id]
        claimed = run.started_at.timestamp()
        return Times(sent, claimed, float(started), float(ended), recorded, interpreter)

    def many(self, handler: str, count: int) -> None:
        """Execute *count* runs of *handler*."""
        tell(f"executing {count} runs of {handler}")
        keys = [self._key(handler) for _ in range(count)]
        send(self._queue, keys, pool=POOL)
        self._await(keys)

    def _key(self, handler: str) -> RunKey:
        if handler not in self._uids:
            document = {"type": "MANUAL", "target": {"pool": POOL, "handler": handler}}
            job = self._stack.registrar().register(handler, document, self._at)
            self._uids[handler] = job.uid
        self._at += timedelta(milliseconds=1)
        return RunKey(JobKey(self._stack.tenant, handler), run_id(self._uids[handler], self._at))

    def _await(self, keys: Sequence[RunKey]) -> None:
        def over() -> bool:
            recorded = self._outcomes()
            return all(key.run_id in recorded for key in keys)

        what = f"{len(keys)} runs; see {self._worker.log}"
        wait_until(over, most=_A_WHILE, what=what, pause=0.005)

    def _outcomes(self) -> dict[str, float]:
        return dict(json.loads(line) for line in self._recorded.read_text().splitlines())


def bare_start(interpreter: str) -> float:
    """Seconds from starting *interpreter* to the script's first line."""
    with tempfile.NamedTemporaryFile(suffix=".py") as script:
        script.write(_STAMPS)
        script.flush()
        began = time.time()
        printed = subprocess.run(
            [interpreter, script.name], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    return float(printed.split()[0]) - began
