"""Goodput of a watcher when more runs are due than it can send, and its recovery.

Runs the real dispatcher on the in-memory stores, in the model of `one_core`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import blake2s
from itertools import pairwise

from benchmarks import one_core
from benchmarks.one_core import Watcher
from benchmarks.paused import measure_paused
from benchmarks.report import Result, tell
from nextfire.domain.definition import JobDefinition
from nextfire.domain.ids import JobKey
from nextfire.usecases.dispatch.tick import BUDGET
from tests.builders import a_definition, a_job

POLICIES = ("RUN_LATEST", "RUN_ALL", "SKIP")
START = datetime(2026, 5, 24, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCALE = float(os.environ.get("OVERLOAD_SCALE", "60"))
"""The model's core is slower by this factor: it sends some 5,000 runs per minute, not 300,000."""
LOADS = (2, 1.1)
ON_TIME = max(timedelta(seconds=1), SCALE * timedelta(milliseconds=20))
"""One second, or longer if the slowed core needs more time for runs that are due at one moment."""
FOR = timedelta(minutes=30)
LAST = timedelta(minutes=10)
STARVED_AFTER = 3
"""Fair intervals without a run. The fair interval is the period times the load, at least 1."""
NORMAL_LOAD = 0.8
OUTAGES = {"210 s": timedelta(seconds=210), "1 h": timedelta(hours=1), "24 h": timedelta(days=1)}
GIVEN_UP = 2.0
"""Recovery is given up after this multiple of its ideal duration."""
CALM = MINUTE
"""Recovered: all jobs had their run on time for this long."""
SELDOM = timedelta(minutes=20)
"""Period of jobs that run seldom: most occurrences that are missed have no later one near."""
SELDOM_MEMORY = 1.0
"""Minutes of the capacity that fit into the memory of the watcher of such jobs."""
SELDOM_LIFE = timedelta(minutes=10)
"""Life of that watcher: each one decides about all missed occurrences in its memory again."""
SAMPLE = timedelta(minutes=10)
"""Observed part of the longest recovery; its duration is extrapolated from that."""


def with_jobs(
    count: int,
    period: timedelta,
    policy: str,
    *,
    outage: timedelta,
    scale: float,
    life: timedelta = one_core.LIFE,
    budget: int = BUDGET,
) -> Watcher:
    """A watcher that starts at `START`, and *count* jobs of *period*, spread evenly over the
    period, which were not dispatched for *outage*.
    """
    watcher = Watcher(START, scale=scale, life=life, budget=budget)
    began = START - outage - period
    text = f"PT{int(period.total_seconds())}S"
    for number in range(count):
        offset = period * number / count
        definition = _definition(text, policy)
        job = a_job(
            f"job{number}",
            uid=blake2s(str(number).encode(), digest_size=8).hexdigest(),
            since=began + offset,
            definition=definition,
        )
        watcher.jobs.put(job)
        first = job.next_entry(START - outage - timedelta(milliseconds=1))
        assert first is not None  # noqa: S101 — an INTERVAL has a next one
        watcher.due.put([first], first.at)
    watcher.watched_since(START - outage - MINUTE)
    return watcher


@cache
def _definition(schedule: str, policy: str) -> JobDefinition:
    return a_definition(schedule, "INTERVAL", misfire={"policy": policy})


def measure_capacity(scale: float) -> float:
    """The runs per minute that are sent from a backlog of entries that all run and have successors,
    measured from the third to the sixth minute. Earlier, there are batches in flight whose
    successors are not stored yet.
    """
    count = int(6 * 60 * 1e6 / (sum(one_core.ENTRY_CPU.values()) - 50) / scale * 1.3)
    watcher = with_jobs(count, timedelta(days=1), "RUN_ALL", outage=timedelta(), scale=scale)
    for slot in [*watcher.due.items]:
        del watcher.due.items[slot]
    for job in watcher.jobs.items.values():
        watcher.due.put([job.fire_entry(START, 1)], START)
    watcher.watch(START + 6 * MINUTE)
    began = START + 2 * MINUTE
    return sum(at >= began for at, _, _ in watcher.queue.sent) / 4


@dataclass(frozen=True, slots=True)
class Overload:
    """The outcome of a load above capacity in the last minutes of a simulation."""

    goodput: float
    starved: int
    records: int
    calls: str


def overload(capacity: float, load: float, policy: str) -> Overload:
    """Simulate minutely jobs with a load of *load* times *capacity*, for `FOR`."""
    count = round(capacity * load)
    watcher = with_jobs(count, MINUTE, policy, outage=timedelta(), scale=SCALE)
    watcher.watch(START + FOR)
    began = START + FOR - LAST
    runs = sum(at >= began for at, _, _ in watcher.queue.sent)
    fair = MINUTE * max(load, 1)
    starved = _starved(watcher, count, began, longest=STARVED_AFTER * fair)
    calls = ", ".join(f"{c} {n}" for c, n in watcher.core.calls.most_common(6))
    return Overload(runs / (LAST / MINUTE) / capacity, starved, len(watcher.runs.items), calls)


def _starved(watcher: Watcher, count: int, began: datetime, *, longest: timedelta) -> int:
    """The number of jobs without a run for longer than *longest* between *began* and now."""
    sent_at: dict[JobKey, list[datetime]] = {}
    for at, job, _ in watcher.queue.sent:
        if at >= began:
            sent_at.setdefault(job, [began]).append(at)
    now = watcher.kernel.clock.now()
    gaps = [max(b - a for a, b in pairwise([*each, now])) for each in sent_at.values()]
    return sum(gap > longest for gap in gaps) + count - len(sent_at)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The duration of a recovery and its ideal duration. `given_up`: the recovery takes longer."""

    took: timedelta
    ideal: timedelta
    given_up: bool = False

    @property
    def ratio(self) -> float:
        return self.took / self.ideal


def recover(capacity: float, outage: timedelta, policy: str) -> Recovery:
    """Simulate minutely jobs with a load of `NORMAL_LOAD` times *capacity* after *outage*."""
    count = round(capacity * NORMAL_LOAD)
    watcher = with_jobs(count, MINUTE, policy, outage=outage, scale=SCALE)
    spare = capacity * (1 - NORMAL_LOAD)
    backlog = count * (outage / MINUTE if policy == "RUN_ALL" else 1)
    ideal = backlog / spare * MINUTE
    now, late_at, seen = START, START, 0
    on_time: list[tuple[datetime, JobKey]] = []
    while now < START + GIVEN_UP * ideal + CALM:
        now += timedelta(seconds=10)
        watcher.watch(now)
        for at, job, scheduled_at in watcher.queue.sent[seen:]:
            if at - scheduled_at >= ON_TIME:
                late_at = max(late_at, at)
            else:
                on_time.append((at, job))
        seen = len(watcher.queue.sent)
        on_time = [(at, job) for at, job in on_time if at > now - CALM - ON_TIME]
        if now - late_at > CALM and len({job for _, job in on_time}) == count:
            return Recovery(late_at - START, ideal)
    return Recovery(now - START, ideal, given_up=True)


def drain(capacity: float, outage: timedelta, policy: str) -> Recovery:
    """`recover`, extrapolated from the shrinking of the backlog during `SAMPLE`."""
    count = round(capacity * NORMAL_LOAD)
    watcher = with_jobs(count, MINUTE, policy, outage=outage, scale=SCALE)
    watcher.watch(START + MINUTE)
    before = len(watcher.queue.sent)
    watcher.watch(START + MINUTE + SAMPLE)
    a_minute = (len(watcher.queue.sent) - before) / (SAMPLE / MINUTE)
    backlog = count * (outage / MINUTE)
    ideal = backlog / (capacity - count) * MINUTE
    shrinks = a_minute - count
    if shrinks * GIVEN_UP <= capacity - count:
        return Recovery(ideal * GIVEN_UP, ideal, given_up=True)
    return Recovery(backlog / shrinks * MINUTE, ideal)


def seldom_jobs(capacity: float, load: float, scale: float) -> Watcher:
    """Jobs that run seldom, with policy SKIP and a load of *load* times *capacity*."""
    return with_jobs(
        round(capacity * load * (SELDOM / MINUTE)),
        SELDOM,
        "SKIP",
        outage=timedelta(),
        scale=scale,
        life=SELDOM_LIFE,
        budget=round(capacity * SELDOM_MEMORY),
    )


def seldom(capacity: float) -> Overload:
    """Simulate jobs that run seldom, at twice the capacity, for three of their periods."""
    watcher = seldom_jobs(capacity, 2, SCALE)
    watcher.watch(START + 3 * SELDOM)
    runs = sum(at >= START + 2 * SELDOM for at, _, _ in watcher.queue.sent)
    return Overload(runs / (SELDOM / MINUTE) / capacity, 0, len(watcher.runs.items), "")


def measure() -> Result:
    """Simulate everything, one process per core; then test the local stack unless `OVERLOAD_LOCAL`
    is 0.
    """
    result = Result()
    capacity = measure_capacity(SCALE)
    result.add("capacity", "runs per minute of the model's core", capacity)
    tell(f"capacity: {capacity:,.0f} runs per minute")
    found = _play(_histories(capacity))
    overloads = {k: v for k, v in found.items() if isinstance(v, Overload)}
    recoveries = {k: v for k, v in found.items() if isinstance(v, Recovery)}
    for load in LOADS:
        worst = min(
            v.goodput
            for (kind, of, _), v in overloads.items()
            if (kind, of) == ("minutely", str(load))
        )
        key = f"goodput_{round(load * 100)}"
        result.add(key, f"runs per minute ÷ capacity, at {load} x, worst", worst, least=0.9)
    worst = max(each.ratio for each in recoveries.values())
    result.add("recovery_ratio", "time to recover ÷ ideal, worst", worst, most=1.5)
    starved = sum(each.starved for (kind, *_), each in overloads.items() if kind == "minutely")
    result.add("starved", "jobs without a run for 3 fair intervals", starved, most=0)
    for (kind, times, policy), each in overloads.items():
        if kind == "seldom":
            key = "goodput_200_seldom_skip"
            text = f"goodput of jobs that run seldom, SKIP, at {times} x"
            result.add(key, text, each.goodput, least=0.9)
            continue
        key = f"minutely_{times.replace('.', '_')}_{policy.lower()}"
        result.values[key] = {"goodput": round(each.goodput, 4), "starved": each.starved}
        text = f"{each.goodput:.3f}, {each.starved} starved, {each.records} records"
        result.say(f"  minutely jobs at {times} x, {policy}", text)
    for (_, outage, policy), recovery in recoveries.items():
        key = f"outage_{outage.replace(' ', '')}_{policy.lower()}"
        result.values[key] = round(recovery.ratio, 3)
        text = f"{'> ' if recovery.given_up else ''}{recovery.ratio:.2f} of {recovery.ideal}"
        result.say(f"  outage of {outage}, {policy}", text)
    result.notes += _notes()
    if os.environ.get("OVERLOAD_LOCAL") != "0":
        measure_paused(result)
    return result


def _histories(capacity: float) -> dict[tuple[str, str, str], Callable[[], Overload | Recovery]]:
    """The simulations by kind, load or outage, and policy; the longest ones first."""
    histories: dict[tuple[str, str, str], Callable[[], Overload | Recovery]] = {}
    for load in LOADS:
        for policy in POLICIES:
            play = partial(overload, capacity, load, policy)
            histories["minutely", str(load), policy] = play
    histories["seldom", "2", "SKIP"] = partial(seldom, capacity)
    for name, outage in OUTAGES.items():
        for policy in POLICIES:
            is_long = policy == "RUN_ALL" and outage > OUTAGES["210 s"]
            do = drain if is_long else recover
            histories["outage", name, policy] = partial(do, capacity, outage, policy)
    return histories


def _play(
    histories: dict[tuple[str, str, str], Callable[[], Overload | Recovery]],
) -> dict[tuple[str, str, str], Overload | Recovery]:
    began = time.monotonic()
    found: dict[tuple[str, str, str], Overload | Recovery] = {}
    with ProcessPoolExecutor() as pool:
        playing = {pool.submit(play): name for name, play in histories.items()}
        for done in as_completed(playing):
            name = playing[done]
            found[name] = done.result()
            tell(f"{len(found)} of {len(histories)}: {' '.join(name)}: {found[name]}")
    tell(f"all simulations took {time.monotonic() - began:.0f} s")
    return {name: found[name] for name in histories}


def _notes() -> list[str]:
    batches = ", ".join(f"{call} {takes} ms" for call, takes in one_core.BATCH_TAKES.items())
    per_run = sum(one_core.ENTRY_CPU.values()) - one_core.ENTRY_CPU["due.mark_held"]
    background = ", ".join(each.rstrip(".") for each in one_core.BACKGROUND)
    model = (
        "The model: the real dispatcher on in-memory stores and a simulated clock. Its tasks run "
        f"on {one_core.THREADS} threads that share one core. Each call first uses the core, one "
        "task at "
        f"a time, and then waits for its answer while other tasks proceed: {batches} "
        f"for up to {one_core.BATCH} entries, a page of due.read {one_core.PAGE_TAKES} ms, a call "
        f"for one item {one_core.SINGLE_TAKES} ms. A run's share of the batch calls uses the core "
        f"for {per_run} µs, and a call for one item or a page for {one_core.SINGLE_CPU} µs; times "
        f"{SCALE:g}, so that fewer jobs saturate it. Calls at a fixed rate ({background}) are not "
        "scaled. Capacity is measured in the same model: the rate of a backlog of ordinary "
        "entries, each with a successor, none of them a minute late."
    )
    goodput = (
        f"Goodput: minutely jobs, spread evenly over the minute, for {FOR / MINUTE:.0f} minutes; "
        f"runs per minute in the last {LAST / MINUTE:.0f}, ÷ capacity. Starved: jobs that had no "
        "run "
        f"in these minutes for longer than {STARVED_AFTER} times the fair interval, which is a "
        "minute times the load."
    )
    recovery = (
        f"Recovery, at {NORMAL_LOAD:g} x capacity: from the start of the watcher to the last run "
        f"that is sent {ON_TIME.total_seconds():g} s or more after it was due, before a minute "
        "in which each job has its run on time. Ideal: the backlog of runs ÷ the spare "
        "capacity; under RUN_LATEST and SKIP the backlog is one run of each job. Given up after "
        f"{GIVEN_UP:g} times the ideal. RUN_ALL after 1 h and 24 h takes hours and days: it is "
        f"extrapolated from the shrinking of the backlog in {SAMPLE / MINUTE:.0f} minutes."
    )
    seldom_ones = (
        f"Jobs that run seldom: every {SELDOM / MINUTE:.0f} minutes, spread evenly, for three of "
        f"these periods, of which the last counts. Memory for {SELDOM_MEMORY:g} minute of the "
        f"capacity; a watcher lives for {SELDOM_LIFE / MINUTE:.0f} minutes. The deployed watcher "
        "has about the same proportions: a twelfth of a core, 18,432 entries, 125 s."
    )
    limits = (
        "The dispatcher's own time limits (seconds) and batch sizes are not scaled. On the slow "
        "core, "
        "calls for one item reach such a limit sooner than on a real core: a smaller "
        "OVERLOAD_SCALE is "
        "more accurate and takes longer."
    )
    return [model, limits, goodput, recovery, seldom_ones]
