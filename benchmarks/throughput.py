"""The runs per second that one group sends, its CPU share of a core, and its memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
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
def group(*, entries: int, shards: int) -> Iterator[Group]:
    """A group whose *entries* all became due a moment ago."""
    due_at = floor_minute(datetime.now(UTC))
    serving = Serving(due_at=due_at, entries=entries, shards=shards)
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
    """Measure the throughput with the default shards, then the memory with many shards."""
    result = Result()
    settings = Settings()
    with group(entries=ENTRIES, shards=settings.read_shards) as full:
        _wait_for(full, 1)
        time.sleep(WARM_UP)
        waited = full.waited()
        began, cpu, before = time.monotonic(), full.cpu(), full.figures()
        time.sleep(MEASURED)
        waited = full.waited() - waited
        after, used, took = full.figures(), full.cpu() - cpu, time.monotonic() - began
        if after.sent >= ENTRIES:
            raise RuntimeError(f"all {ENTRIES:,} entries were sent before the measurement ended")
        full.end()
    runs = after.sent - before.sent
    result.add("cpu_share", "CPU of the watcher ÷ one core", used / took, least=LEAST_SHARE)
    result.add("waited_s", "its threads were runnable without a core", waited, unit="s")
    result.add("runs_per_s", "runs per second", runs / took)
    result.add("cpu_ms_per_run", "CPU per run", used / max(runs, 1) * 1000, unit="ms")
    for name, count in sorted(after.calls.items()):
        calls = count - before.calls.get(name, 0)
        if calls:
            result.say(f"  {name} calls per run", f"{calls / max(runs, 1):.4f}")
    with group(entries=MANY_ENTRIES, shards=MANY_SHARDS) as many:
        _wait_for(many, 1)
        began = time.monotonic()
        _wait_for(many, MANY_ENTRIES, most=MANY_FOR)
        sent, took = many.figures().sent, time.monotonic() - began
        peak = many.end()
    key = f"peak_mb_{MANY_SHARDS}_shards"
    what = f"peak memory, {MANY_SHARDS} shards, {MANY_ENTRIES:,} entries"
    result.add(key, what, peak, most=MOST_MEMORY, unit="MiB")
    key, what = f"runs_per_s_{MANY_SHARDS}_shards", f"runs per second, {MANY_SHARDS} shards"
    result.add(key, what, sent / took)
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    result.notes.append(
        "The watcher's handler in its own process, over HTTP to a server in another process that "
        f"answers after {Serving.model_fields['fastest'].default * 1000:.0f} to "
        f"{Serving.model_fields['slowest'].default * 1000:.0f} ms. {ENTRIES:,} INTERVAL jobs in "
        f"{settings.read_shards} shards are due at one instant; measured for {MEASURED:.0f} s, "
        f"{WARM_UP:.0f} s after the first message. The share is of elapsed time: if other "
        "processes use the cores, it is lower than the watcher's own limit "
        f"(load per core at the end: {share:.1f}). In that case its threads wait for a core "
        "(schedstat; "
        "the times of concurrently waiting threads add up)."
    )
    result.notes.append(
        f"Memory: peak resident memory (VmHWM) of a watcher process that sent "
        f"the {MANY_ENTRIES:,} entries of one minute for at most {MANY_FOR.total_seconds():.0f} s, "
        f"{sent:,} here. The Lambda runtime also uses some of the function's "
        f"{settings.watcher_memory} MB."
    )
    return result


def _wait_for(of: Group, sent: int, *, most: timedelta | None = None) -> None:
    """Wait until *sent* messages were sent, or for *most* if it is given.

    Raises:
            RuntimeError: The watcher has ended, or it was too slow and *most* is not given.
    """
    until = time.monotonic() + (most or _MOST).total_seconds()
    reported_at = time.monotonic()
    while (figures := of.figures()).sent < sent:
        if of.watcher.poll() is not None:
            raise RuntimeError("the watcher has ended")
        if time.monotonic() > until:
            if most is not None:
                return
            raise RuntimeError(f"only {figures.sent:,} of {sent:,} messages in {_MOST}")
        if time.monotonic() > reported_at + 15:
            reported_at = time.monotonic()
            tell(f"{figures.sent:,} messages sent")
        time.sleep(0.2)
