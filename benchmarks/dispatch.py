"""The watcher's CPU per dispatched run, compared with a bare boto3 loop of the same AWS calls."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.report import Result, progress, tell
from benchmarks.simulated import (
    SimulatedClock,
    drive,
    new_watch,
    next_hour,
    slot_of,
    watcher_telemetry,
)
from benchmarks.stack import POOL, Stack
from benchmarks.stack import stack as running_stack
from nextfire.adapters.aws.clients import dynamodb, sqs
from nextfire.adapters.aws.lean.json_client import JsonClient
from nextfire.domain.job import Job
from nextfire.usecases.watch import Watch

RUNS = 1_000
REPETITIONS = 15
BOUND = 0.5
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Tokyo", "Australia/Sydney")
EXPRESSIONS = [
    f"0,{minute} {hours} * * *" for minute in range(1, 51) for hours in ("*", "0-11,12-23")
]
_HOUR = timedelta(hours=1)
_SECOND = timedelta(seconds=1)
_THREADS = 16  # as in the function


@dataclass(slots=True)
class Call:
    """A recorded request. `began_at` and `ended_at` are values of `time.perf_counter`."""

    service: str
    operation: str
    params: dict[str, Any]
    began_at: float
    ended_at: float = 0.0


class Recorder:
    """Records the requests of lean clients while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._client_call = JsonClient.call

    def install(self) -> None:
        """Record the calls of all lean clients of this process from now on."""
        recorded = self._recorded

        def call(self: JsonClient, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
            return recorded(self, operation, request)

        JsonClient.call = call  # type: ignore[method-assign]

    def waves(self) -> list[list[Call]]:
        """The calls since the last call of this method, split wherever none was in flight."""
        calls, self._calls = sorted(self._calls, key=lambda call: call.began_at), []
        waves: list[list[Call]] = []
        over_at = float("-inf")
        for call in calls:
            if call.began_at >= over_at:
                waves.append([])
            waves[-1].append(call)
            over_at = max(over_at, call.ended_at)
        return waves

    def _recorded(
        self, client: JsonClient, operation: str, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        if not self.on:
            return self._client_call(client, operation, request)
        # DynamoDB performs a transaction once per token: the bare loop sends its own token.
        params = {name: value for name, value in request.items() if name != "ClientRequestToken"}
        made = Call(client.service, operation, params, time.perf_counter())
        with self._lock:
            self._calls.append(made)
        try:
            return self._client_call(client, operation, request)
        finally:
            made.ended_at = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Pass:
    """CPU seconds of both ways to dispatch `RUNS` runs. `reporting` is the part of `watcher` for
    metrics and logs.
    """

    watcher: float
    reporting: float
    bare: float
    calls: int


def measure() -> Result:
    """Run repetitions of the watcher and then the bare loop."""
    result = Result()
    with running_stack(watcher=False) as stack:
        stack.become_watcher()
        os.environ["NEXTFIRE_AWS_CLIENT"] = "lean"  # as in a deployment
        recorder = Recorder()
        recorder.install()
        passes = list(_passes(stack, recorder))
    ratios = [each.watcher / each.bare for each in passes]
    silent = [(each.watcher - each.reporting) / each.bare for each in passes]
    per_run = statistics.median(each.watcher for each in passes) / RUNS
    bare = statistics.median(each.bare for each in passes) / RUNS
    result.add("cpu_ratio", "CPU ÷ CPU of a bare loop", statistics.median(ratios), most=BOUND)
    result.add("cpu_ratio_min", "minimum of the repetitions", min(ratios))
    result.add("cpu_ratio_max", "maximum of the repetitions", max(ratios))
    result.add("cpu_ratio_without_telling", "without metrics, logs", statistics.median(silent))
    result.add("cpu_ms_per_run", "CPU per run, watcher", per_run * 1000, unit="ms")
    result.add("bare_cpu_ms_per_run", "CPU per run, bare loop", bare * 1000, unit="ms")
    result.add("runs_per_cpu_s", "runs per CPU second", 1 / per_run)
    result.notes.append(
        f"{REPETITIONS} repetitions of {RUNS} runs that are due at once, {len(EXPRESSIONS)} "
        f"expressions in {len(ZONES)} zones; {passes[0].calls} AWS calls each. The bare loop makes "
        "the recorded calls with boto3's clients and the same concurrency. The watcher uses the "
        "lean "
        "client, as in a deployment. "
        "CPU of this process only, all its threads; MiniStack runs in another process."
    )
    return result


def _passes(stack: Stack, recorder: Recorder) -> Iterator[Pass]:
    first_at = next_hour()
    jobs = _register(stack, first_at - 30 * _SECOND)
    clock = SimulatedClock(first_at)
    watch = new_watch(clock)
    bare = _Bare()
    queue = stack.info.pools[POOL].queue_url
    due = stack.due_store()
    for repetition in progress(range(REPETITIONS + 1), f"{REPETITIONS} repetitions"):
        at = first_at + (1 + repetition) * _HOUR
        # Skip the hour since the last repetition and renew the lease before the measurement starts.
        clock.at = at - 10 * _SECOND
        drive([watch], clock, at + 0.2 * _SECOND)
        entries = [job.fire_entry(at, 1) for job in jobs]
        due.put(entries, clock.at)
        clock.at = at + 0.5 * _SECOND
        recorder.on = True
        watcher_cpu, reporting = _dispatch(watch, clock)
        recorder.on = False
        waves = recorder.waves()
        stack.client("sqs").purge_queue(QueueUrl=queue)
        due.put(entries, clock.at)
        bare_cpu = bare.make(waves)
        stack.client("sqs").purge_queue(QueueUrl=queue)
        followers = [job.successor(e) for job, e in zip(jobs, entries, strict=True)]
        due.delete([slot_of(entry, clock.at, stack.shards) for entry in followers if entry])
        if repetition:  # the first one is a warm-up
            yield Pass(watcher_cpu, reporting, bare_cpu, sum(map(len, waves)))
    watch.end()


def _dispatch(watch: Watch, clock: SimulatedClock) -> tuple[float, float]:
    """Poll and release until all runs are dispatched. CPU seconds: total, and of reporting."""
    telemetry = watcher_telemetry()
    dispatched, reporting = 0, 0.0
    gc.collect()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        began = time.process_time()
        for _ in range(2 * RUNS):
            report, again_at = watch.step(clock.at)
            clock.at = max(clock.at, again_at)
            assert report is not None, "the lease was lost"  # noqa: S101
            dispatched += len(report.dispatched)
            reporting_since = time.process_time()
            telemetry.tick(report)
            reporting += time.process_time() - reporting_since
            if dispatched >= RUNS:
                break
        reporting_since = time.process_time()
        telemetry.flush()
        ended = time.process_time()
    if dispatched != RUNS:
        raise RuntimeError(f"{dispatched} runs were dispatched, not {RUNS}")
    return ended - began, reporting + ended - reporting_since


class _Bare:
    """Repeats recorded calls with boto3."""

    def __init__(self) -> None:
        os.environ["NEXTFIRE_AWS_CLIENT"] = "boto3"
        clients: dict[str, Any] = {"dynamodb": dynamodb(), "sqs": sqs()}
        self._methods = {
            (service, client.meta.method_to_api_mapping[method]): getattr(client, method)
            for service, client in clients.items()
            for method in client.meta.method_to_api_mapping
        }
        self._refused = clients["dynamodb"].exceptions.ConditionalCheckFailedException
        self._threads = ThreadPoolExecutor(_THREADS)

    def _once(self, method: Callable[..., Any], params: dict[str, Any]) -> None:
        # The second renewal of a lease is rejected, which costs the same.
        with contextlib.suppress(self._refused):
            method(**params)

    def make(self, waves: list[list[Call]]) -> float:
        """Make the calls. Returns the CPU seconds."""
        ready = [
            [(self._methods[call.service, call.operation], call.params) for call in wave]
            for wave in waves
        ]
        gc.collect()
        began = time.process_time()
        for wave in ready:
            if len(wave) == 1:
                [(method, params)] = wave
                self._once(method, params)
            else:
                for made in [
                    self._threads.submit(self._once, method, params) for method, params in wave
                ]:
                    made.result()
        return time.process_time() - began


def _register(stack: Stack, now: datetime) -> list[Job]:
    """`RUNS` jobs, spread evenly over the expressions and the zones, all due at each full hour."""
    tell(f"storing {RUNS} jobs")
    registrar = stack.registrar()
    kinds = ((cron, zone) for _ in range(RUNS) for zone in ZONES for cron in EXPRESSIONS)
    documents = [
        {"type": "CRON", "schedule": cron, "timezone": zone} for cron, zone in islice(kinds, RUNS)
    ]
    return [
        registrar.register(f"dispatch-{number}", document, now)
        for number, document in enumerate(documents)
    ]
