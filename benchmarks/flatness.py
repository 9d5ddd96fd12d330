"""The cost of a watcher's minute with 1,000 and with 1,000,000 jobs at rest."""

from __future__ import annotations

import gc
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.fill import Filling
from benchmarks.meter import Meter, Tally
from benchmarks.report import Result, progress, tell
from benchmarks.simulated import SimulatedClock, drive, new_watch, next_hour
from benchmarks.stack import Stack
from benchmarks.stack import stack as running_stack

FEW = 1_000
MANY = 1_000_000
RUNS = 100
REPETITIONS = 8
BOUND = 1.1
_FILLERS = 2
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_REPORT_EVERY = 30  # seconds
_AT_REST = timedelta(days=30)
"""Time until the first job at rest is due; simulated time stays far below it."""


@dataclass(frozen=True, slots=True)
class Minute:
    """The cost of a minute in which `RUNS` runs are due. CPU in seconds."""

    tally: Tally
    cpu: float
    emulator_cpu: float


class Group:
    """A stack with *size* jobs at rest and `RUNS` hourly jobs, and a watcher for it."""

    def __init__(self, stack: Stack, size: int, first_at: datetime) -> None:
        registrar = stack.registrar()
        for number in range(RUNS):
            document = {"type": "CRON", "schedule": "0 * * * *"}
            registrar.register(f"flatness-{number}", document, first_at - _MINUTE)
        self.filled_in = _fill(stack, size, first_at + _AT_REST)
        self._stack = stack
        stack.become_watcher()
        self._meter = Meter()
        self._clock = SimulatedClock(first_at - 2 * _MINUTE)
        self._watch = new_watch(self._clock)
        drive([self._watch], self._clock, first_at - _MINUTE)

    def minute(self, at: datetime) -> Minute:
        """The minute around the full hour *at*. Skips the time since the previous one."""
        self._clock.at = at - _MINUTE
        drive([self._watch], self._clock, at - _MINUTE / 2)
        gc.collect()
        self._meter.take()
        emulator_began, began = self._stack.emulator_cpu(), time.process_time()
        dispatched = drive([self._watch], self._clock, at + _MINUTE / 2)
        ended = time.process_time()
        if dispatched != RUNS:
            raise RuntimeError(f"{dispatched} runs were dispatched, not {RUNS}")
        emulator_cpu = self._stack.emulator_cpu() - emulator_began
        return Minute(self._meter.take(), ended - began, emulator_cpu)

    def count(self, table: str) -> int:
        return _count(self._stack, table)


def measure() -> Result:
    """Measure the same minutes on two stacks, alternately."""
    result = Result()
    with running_stack(watcher=False) as small, running_stack(watcher=False) as large:
        try:
            _measure(small, large, result)
        finally:
            # On a regular stop MiniStack would first save a million jobs that are not needed.
            large.end_all()
            [emulator] = [each for each in large.info.processes if each.name == "ministack"]
            os.kill(emulator.pid, signal.SIGKILL)
    return result


def _measure(small: Stack, large: Stack, result: Result) -> None:
    first_at = next_hour()
    few, many = Group(small, FEW, first_at), Group(large, MANY, first_at)
    pairs: list[tuple[Minute, Minute]] = []
    for repetition in progress(range(REPETITIONS + 1), f"{REPETITIONS} simulated minutes of each"):
        at = first_at + repetition * _HOUR
        pair = few.minute(at), many.minute(at)
        if repetition:  # the first one is a warm-up
            pairs.append(pair)
    _compare(result, "units", pairs, lambda m: m.tally.read_units + m.tally.write_units)
    _compare(result, "calls", pairs, lambda m: sum(m.tally.calls.values()))
    _compare(result, "cpu", pairs, lambda m: m.cpu)
    _compare(result, "emulator_cpu", pairs, lambda m: m.emulator_cpu, most=None)
    jobs, entries = many.count("jobs"), many.count("due")
    result.values |= {"jobs": jobs, "due_entries": entries}
    result.notes.append(
        f"Medians of {REPETITIONS} simulated minutes of each of two stacks, alternately. {RUNS} "
        "recurring runs are due in each minute. CPU of the watcher process only; CPU of "
        "MiniStack for "
        "comparison. The jobs at rest are ONCE jobs, due within the year that begins in 30 days. "
        f"{_FILLERS} processes wrote them with BatchWriteItem in {many.filled_in:.0f} s. At the "
        "end, "
        f"DescribeTable reported {jobs:,} jobs and {entries:,} due entries."
    )


def _compare(
    result: Result,
    key: str,
    pairs: list[tuple[Minute, Minute]],
    amount: Callable[[Minute], float],
    *,
    most: float | None = BOUND,
) -> None:
    few = statistics.median(amount(small) for small, _ in pairs)
    many = statistics.median(amount(large) for _, large in pairs)
    ratio = statistics.median(amount(large) / amount(small) for small, large in pairs)
    what = key.replace("_", " ")
    result.say(f"{what} per minute, {FEW:,} / {MANY:,} at rest", f"{few:.5g} / {many:.5g}")
    result.add(f"ratio_{key}", f"{what}, ratio", ratio, most=most)


def _fill(stack: Stack, size: int, due_from: datetime) -> float:
    """Store *size* jobs at rest. Returns the elapsed seconds."""
    due_at = due_from - _HOUR
    template = "rest-template"
    document = {"type": "ONCE", "schedule": due_at.isoformat().replace("+00:00", "Z")}
    job = stack.registrar().register(template, document, due_at - _AT_REST)
    item = stack.client("dynamodb").get_item(
        TableName=stack.info.tables["jobs"],
        Key={"tenant": {"S": stack.tenant}, "job_id": {"S": template}},
    )["Item"]
    began = time.monotonic()
    tell(f"storing {size:,} jobs at rest")
    step = -(-size // _FILLERS)
    fillers = [
        stack.spawn(
            "benchmarks.fill",
            Filling(
                endpoint=stack.emulator,
                access_key=stack.info.access_key,
                jobs_table=stack.info.tables["jobs"],
                due_table=stack.info.tables["due"],
                shards=stack.shards,
                first=start,
                last=min(start + step, size),
                due_from=due_from,
                stored_at=job.created_at,
                job=item,
                job_due_at=due_at,
            ).model_dump_json(),
            name=f"filler-{start}",
            environment={},
        )
        for start in range(0, size, step)
    ]
    reported_at = began
    while any(filler.record.alive for filler in fillers):
        time.sleep(0.2)
        if time.monotonic() > reported_at + _REPORT_EVERY:
            reported_at = time.monotonic()
            tell(f"{_count(stack, 'jobs'):,} jobs stored")
    for filler in fillers:
        if said := filler.log.read_text():
            raise RuntimeError(f"a fill process failed: {said}")
    stack.end(*fillers)
    return time.monotonic() - began


def _count(stack: Stack, table: str) -> int:
    name = stack.info.tables[table]
    return int(stack.client("dynamodb").describe_table(TableName=name)["Table"]["ItemCount"])
