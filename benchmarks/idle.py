"""An hour of a watcher group without jobs, on a simulated clock and real stores."""

from __future__ import annotations

import contextlib
import heapq
import io
import itertools
from datetime import datetime, timedelta

from benchmarks.meter import Meter
from benchmarks.report import progress
from benchmarks.simulated import SimulatedClock, new_watcher, next_hour
from nextfire.settings import WatcherSettings
from nextfire.usecases.watcher_life import WatcherLife
from nextfire_cli.cost.usage import WatchUsage

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


def idle_hour(life: timedelta, *, sleeps: bool = True) -> WatchUsage:
    """Simulate an hour without jobs, with an invocation of a watcher each minute, as EventBridge
    and the function make it. Counts its calls, and the bytes of its metrics. The environment is the
    watcher's. Without *sleeps*: as if something was always due soon.
    """
    clock = SimulatedClock(next_hour())
    warm_at = clock.at + 4 * _MINUTE  # by then the invocations are as in steady state
    until = warm_at + _HOUR
    meter = Meter()
    free: list[WatcherLife] = []  # processes that are free for the next invocation
    order = itertools.count()
    # Instant, tie-breaker, next to act (None: EventBridge), begin and end of its life.
    agenda: list[tuple[datetime, int, WatcherLife | None, datetime, datetime]] = [
        (clock.at, next(order), None, clock.at, clock.at)
    ]
    invocations, seconds = 0, 0.0
    minutes = iter(progress(range(60), "a simulated hour without jobs"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        while agenda[0][0] < until:
            clock.at, _, watcher, began_at, end_at = heapq.heappop(agenda)
            if watcher is None:
                if clock.at == warm_at:
                    meter.take()
                    said.truncate(0)
                    said.seek(0)
                    seconds = 0.0
                if clock.at >= warm_at:
                    invocations += 1
                    next(minutes)
                next_tick = clock.at + _MINUTE
                heapq.heappush(agenda, (next_tick, next(order), None, clock.at, clock.at))
                watcher = free.pop() if free else new_watcher(clock)
                began_at = watcher.begin()
                end_at = began_at + life
            elif clock.at >= end_at or (sleeps and watcher.falls_asleep(life)):
                watcher.end()
                seconds += (clock.at - began_at).total_seconds()
                free.append(watcher)
                continue
            again_at = min(max(watcher.turn(clock.at), clock.at), end_at)
            heapq.heappush(agenda, (again_at, next(order), watcher, began_at, end_at))
        tally = meter.take()
    next(minutes, None)
    made = ", ".join(f"{count:,} {call.split()[1]}" for call, count in tally.calls.most_common())
    return WatchUsage(
        seconds=seconds,
        invocations=invocations,
        read_units=tally.read_units,
        write_units=tally.write_units,
        queue_requests=tally.of("sqs"),
        log_bytes=len(said.getvalue()),
        due_reads=tally.reads[WatcherSettings.read().due_table],
        calls=made,
    )
