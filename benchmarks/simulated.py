"""Watchers on simulated time, with the adapters of their function."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nextfire.domain.due import DueEntry, Slot
from nextfire.settings import WatcherSettings
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.watch import Watch
from nextfire.usecases.watcher_life import WatcherLife
from nextfire.wiring.telemetry import Telemetry
from nextfire.wiring.watcher import WatcherConfig, build_watch, build_watcher
from nextfire.wiring.watcher_ports import watcher_ports


class SimulatedClock:
    """A `Clock` that moves only when it is advanced."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def sleep(self, duration: timedelta) -> None:
        self.at += duration


def watcher_telemetry() -> Telemetry:
    """The telemetry of the watcher's function; importing it reads the environment."""
    from functions.watcher.handler import telemetry  # noqa: PLC0415

    return telemetry


def new_watch(clock: SimulatedClock) -> Watch:
    """The steps of a watcher of group 0 on *clock*, with the adapters of its function."""
    ports, config = _watcher_parts(clock)
    return build_watch(ports, config, watcher_telemetry())


def new_watcher(clock: SimulatedClock) -> WatcherLife:
    """A watcher of group 0 on *clock*, with the adapters of its function."""
    ports, config = _watcher_parts(clock)
    return build_watcher(ports, config, watcher_telemetry())


def _watcher_parts(clock: SimulatedClock) -> tuple[WatcherPorts, WatcherConfig]:
    from functions.watcher.handler import config_of  # noqa: PLC0415 — reads the environment

    settings = WatcherSettings.read()
    ports = replace(watcher_ports(settings), clock=clock)
    return ports, config_of(settings, 0)


def drive(watches: Sequence[Watch], clock: SimulatedClock, until: datetime) -> int:
    """Step *watches*, each at the instants that it asks for, from the clock's instant to *until*.

    Returns:
            The number of dispatched runs.
    """
    agenda = [(clock.at, number) for number in range(len(watches))]
    dispatched = 0
    while agenda[0][0] < until:
        clock.at, number = heapq.heappop(agenda)
        report, again_at = watches[number].step(clock.at)
        dispatched += len(report.dispatched) if report else 0
        heapq.heappush(agenda, (max(again_at, clock.at), number))
    clock.at = until
    return dispatched


def slot_of(entry: DueEntry, now: datetime, shards: int) -> Slot:
    """The slot in which a writer at *now* puts *entry*."""
    return Slot(entry.bucket(now, shards), entry.sort_key)


def next_hour() -> datetime:
    """The next full hour but one: the start of simulated time."""
    now = datetime.now(UTC)
    return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
