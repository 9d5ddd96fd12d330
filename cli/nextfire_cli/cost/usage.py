"""What runs and watchers use. Measured by `make bench NAME=cost`, which reports deviations."""

from __future__ import annotations

from dataclasses import dataclass

MEASURED_ON = "the local stack (MiniStack) on 2 CPUs AMD EPYC, 2026-11-26"
ITEM_OVERHEAD = 100
"""Bytes that DynamoDB adds to each stored item (its developer guide, "Item sizes and formats")."""


@dataclass(frozen=True, slots=True)
class RunUsage:
    """What one recurring run of a short script uses, without the script itself. The start of its
    interpreter belongs to the script, as in `python3 script.py`.

    Attributes:
        sends, receives, deletes, visibility: Requests to SQS, of watcher and executor, if ten runs
            are due together.
        waits: Requests to AWS that an executor waits for, one after the other.
        log_bytes: The log of the executor, without Lambda's own lines.
        record_bytes: The run record as stored.
        cpu_ms: Milliseconds of one core that the executor takes, in addition to `start_ms`: the
            highest of three measurements, which differ by as much as that (docs/operate/cost.md).
        start_ms: Milliseconds of one core that an empty script takes on its own.
        due_writes: The part of the write units that the table of due entries takes.
    """

    write_units: float
    read_units: float
    sends: float
    receives: float
    deletes: float
    visibility: float
    waits: float
    log_bytes: int
    record_bytes: int
    cpu_ms: float
    start_ms: float
    due_writes: float

    @property
    def queue_requests(self) -> float:
        return self.sends + self.receives + self.deletes + self.visibility


@dataclass(frozen=True, slots=True)
class WatchUsage:
    """What the watchers of a group use in an hour. `seconds`: of all invocations together, on a
    clock on which calls take no time. `due_reads`: the part of the read units that the table of due
    entries takes; no write units are of it.
    """

    seconds: float
    invocations: int
    read_units: float
    write_units: float
    queue_requests: float
    log_bytes: int
    due_reads: float
    calls: str = ""


RUNS = {
    "lambda": RunUsage(
        write_units=4.0,
        read_units=1.5,
        sends=0.1,
        receives=1.0,
        deletes=1.0,
        visibility=0.0,
        waits=3.0,
        log_bytes=270,
        record_bytes=708,
        cpu_ms=2.3,
        start_ms=13.6,
        due_writes=2.0,
    ),
    "fargate": RunUsage(
        write_units=4.0,
        read_units=1.5,
        sends=0.1,
        receives=0.1,
        deletes=0.1,
        visibility=0.0,
        waits=3.0,
        log_bytes=44,
        record_bytes=699,
        cpu_ms=3.1,
        start_ms=13.6,
        due_writes=2.0,
    ),
}
AWAKE = WatchUsage(
    seconds=7_500.0,
    invocations=60,
    read_units=30_279.0,
    write_units=3_870.0,
    queue_requests=0.0,
    log_bytes=294_690,
    due_reads=26_270.0,
)
"""An hour in which something is always due soon."""
ASLEEP = WatchUsage(
    seconds=60.0,
    invocations=60,
    read_units=4_350.0,
    write_units=360.0,
    queue_requests=0.0,
    log_bytes=12_540,
    due_reads=3_360.0,
)
"""An hour in which nothing is due."""
