"""The runs per second that one group sends, its CPU share of a core and its memory; and its CPU per
skipped occurrence.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

from benchmarks.aws_double import Figures, Serving
from benchmarks.report import Result, tell
from infra.settings import Settings
from nextfire.domain.instants import floor_minute

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 5.0
"""Seconds between the first message and the start of the measurement."""
MEASURED = 20.0
ENTRIES = 120_000
"""Entries due at once for the throughput: more than are sent during the measurement."""
MANY_SHARDS = 64
MANY_ENTRIES = 200_000
MANY_FOR = timedelta(seconds=90)
"""Maximum duration of sending them."""
LEAST_SHARE = 0.7
MISSED = 8_000
"""Skipped occurrences: as many as the watcher keeps in memory."""
MISSED_AGO = timedelta(minutes=5)
MOST_SKIPPED = 5
MOST_MEMORY = 130
_TICKS = os.sysconf("SC_CLK_TCK")
_MOST = timedelta(minutes=8)


@dataclass(frozen=True, slots=True)
class Group:
    """A watcher process and the server that it uses."""

    watcher: subprocess.Popen[bytes]
    endpoint: str

    def figures(self) -> Figures:
        with urlopen(f"{self.endpoint}/figures") as answer:  # noqa: S310 — our own
            return Figures.model_validate_json(answer.read())

    def cpu(self) -> float:
        """CPU seconds of the watcher process so far."""
        text = Path(f"/proc/{self.watcher.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def waited(self) -> float:
        """Seconds for which its threads were runnable while other processes used the cores."""
        tasks = Path(f"/proc/{self.watcher.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[1]) for task in tasks) / 1e9

    def end(self) -> float:
        """End the watcher. Returns its peak resident memory in MiB."""
        lines = Path(f"/proc/{self.watcher.pid}/status").read_text().splitlines()
        [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        self.watcher.send_signal(signal.SIGKILL)
        self.watcher.wait()
        return int(peak) / 1024


@contextmanager
def group(*, entries: int, shards: int, ago: timedelta = timedelta()) -> Iterator[Group]:
    """A group whose *entries* all became due a moment ago; or *ago*, with misfire policy SKIP."""
    due_at = floor_minute(datetime.now(UTC) - ago)
    misfire = "SKIP" if ago else "RUN_LATEST"
    serving = Serving(due_at=due_at, entries=entries, shards=shards, misfire=misfire)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("layers", "cli", "")),
    }
    with _process(
        "benchmarks.aws_double",
        serving.model_dump_json(),
        environment=environment,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None  # noqa: S101 — requested above
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        tell(f"started a server with {entries:,} entries in {shards} shards")
        environment |= _environment(endpoint, shards)
        with _process(
            "benchmarks.invoke", environment=environment, stdout=subprocess.DEVNULL
        ) as watcher:
            yield Group(watcher, endpoint)


@contextmanager
def _process(
    module: str, *arguments: str, environment: Mapping[str, str], stdout: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module in a separate process, which is killed at the end."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=stdout) as process:
        try:
            yield process
        finally:
            process.kill()


def _environment(endpoint: str, shards: int) -> dict[str, str]:
    pool = {"queueUrl": f"{endpoint}/1/default.fifo", "maxTimeout": "PT1H", "maxBacklog": 10**9}
    return {
        **{f"NEXTFIRE_{name.upper()}_TABLE": name for name in ("jobs", "due", "runs", "control")},
        "NEXTFIRE_POOLS": json.dumps({"default": pool}),
        "NEXTFIRE_WRITE_SHARDS": str(shards),
        "NEXTFIRE_READ_SHARDS": str(shards),
        "NEXTFIRE_LIFE": "PT1H",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(Settings().watcher_memory),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "POWERTOOLS_SERVICE_NAME": "watcher",
        "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
    }


def measure() -> Result:
    """Measure the throughput with the default shards, the cost of a skipped occurrence, then the
    memory with many shards.
    """
    result = Result()
    per_run = _measure_sending(result)
    _measure_skipping(result, per_run)
    _measure_memory(result)
    return result


def _measure_sending(result: Result) -> float:
    """Returns the CPU milliseconds per run."""
    shards = Settings().read_shards
    with group(entries=ENTRIES, shards=shards) as full:
        _wait_for(full, _sent, 1)
        time.sleep(WARM_UP)
        waited = full.waited()
        began, cpu, before = time.monotonic(), full.cpu(), full.figures()
        time.sleep(MEASURED)
        waited = full.waited() - waited
        after, used, took = full.figures(), full.cpu() - cpu, time.monotonic() - began
        if after.sent >= ENTRIES:
            raise RuntimeError(f"all {ENTRIES:,} entries were sent before the measurement ended")
        full.end()
    runs = max(after.sent - before.sent, 1)
    result.add("cpu_share", "CPU of the watcher ÷ one core", used / took, least=LEAST_SHARE)
    result.add("waited_s", "its threads were runnable without a core", waited, unit="s")
    result.add("runs_per_s", "runs per second", runs / took)
    result.add("cpu_ms_per_run", "CPU per run", used / runs * 1000, unit="ms")
    for name, count in sorted(after.calls.items()):
        calls = count - before.calls.get(name, 0)
        if calls:
            result.say(f"  {name} calls per run", f"{calls / runs:.4f}")
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    result.notes.append(
        "The watcher's handler in its own process, over HTTP to a server in another process that "
        f"answers after {Serving.model_fields['fastest'].default * 1000:.0f} to "
        f"{Serving.model_fields['slowest'].default * 1000:.0f} ms. {ENTRIES:,} INTERVAL jobs in "
        f"{shards} shards are due at one instant; measured for {MEASURED:.0f} s, "
        f"{WARM_UP:.0f} s after the first message. The share is of elapsed time: if other "
        "processes use the cores, it is lower than the watcher's own limit "
        f"(load per core at the end: {share:.1f}). In that case its threads wait for a core "
        "(schedstat; the times of concurrently waiting threads add up)."
    )
    return used / runs * 1000


def _measure_skipping(result: Result, per_run: float) -> None:
    """*per_run*: CPU milliseconds per run."""
    with group(entries=MISSED, shards=Settings().read_shards, ago=MISSED_AGO) as late:
        _wait_for(late, _recorded, MISSED // 4)
        began, cpu, before = time.monotonic(), late.cpu(), late.figures()
        _wait_for(late, _recorded, MISSED // 4 * 3)
        used, took, after = late.cpu() - cpu, time.monotonic() - began, late.figures()
        late.end()
    records = after.recorded - before.recorded
    result.add("skipped_per_s", "skipped occurrences per second", records / took)
    result.add("cpu_ms_per_skipped", "CPU per skipped occurrence", used / records * 1e3, unit="ms")
    ratio = used / records * 1000 / per_run
    result.add("skipped_ratio", "CPU of one ÷ CPU of a run", ratio, most=MOST_SKIPPED)
    result.notes.append(
        f"Skipped occurrences: {MISSED:,} such jobs with policy SKIP were due {MISSED_AGO} ago; "
        "each gets a record. Half of them are measured."
    )


def _measure_memory(result: Result) -> None:
    with group(entries=MANY_ENTRIES, shards=MANY_SHARDS) as many:
        _wait_for(many, _sent, 1)
        began = time.monotonic()
        _wait_for(many, _sent, MANY_ENTRIES, most=MANY_FOR)
        sent, took = many.figures().sent, time.monotonic() - began
        peak = many.end()
    key = f"peak_mb_{MANY_SHARDS}_shards"
    what = f"peak memory, {MANY_SHARDS} shards, {MANY_ENTRIES:,} entries"
    result.add(key, what, peak, most=MOST_MEMORY, unit="MiB")
    key, what = f"runs_per_s_{MANY_SHARDS}_shards", f"runs per second, {MANY_SHARDS} shards"
    result.add(key, what, sent / took)
    result.notes.append(
        f"Memory: peak resident memory (VmHWM) of a watcher process that sent "
        f"the {MANY_ENTRIES:,} entries of one minute for at most {MANY_FOR.total_seconds():.0f} s, "
        f"{sent:,} here. The Lambda runtime also uses some of the function's "
        f"{Settings().watcher_memory} MB."
    )


def _sent(figures: Figures) -> int:
    return figures.sent


def _recorded(figures: Figures) -> int:
    return figures.recorded


def _wait_for(
    of: Group, count: Callable[[Figures], int], least: int, *, most: timedelta | None = None
) -> None:
    """Wait until *count* is at least *least*, or for *most* if it is given.

    Raises:
            RuntimeError: The watcher has ended, or it was too slow and *most* is not given.
    """
    until = time.monotonic() + (most or _MOST).total_seconds()
    reported_at = time.monotonic()
    while (done := count(of.figures())) < least:
        if of.watcher.poll() is not None:
            raise RuntimeError("the watcher has ended")
        if time.monotonic() > until:
            if most is not None:
                return
            raise RuntimeError(f"only {done:,} of {least:,} entries were handled in {_MOST}")
        if time.monotonic() > reported_at + 15:
            reported_at = time.monotonic()
            tell(f"{done:,} entries handled")
        time.sleep(0.2)
