"""Measures the figures of docs/internals/benchmarks.md. Without NAME, lists the benchmarks."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.report import show
from benchmarks.stack import STRICT
from nextfire_cli.local.state import LocalStackError

StackKind = Literal["emulated", "embedded", "both", "none"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One line of the list. `minutes`: about how long it takes on two cores. `stack`: which local
    stacks it starts.
    """

    minutes: int
    stack: StackKind
    what: str


BENCHMARKS = {
    "timeliness": Benchmark(4, "emulated", "how late runs are sent and started, at 50 a second"),
    "failover": Benchmark(4, "emulated", "how long dispatching stops when a watcher is killed"),
    "units": Benchmark(1, "emulated", "DynamoDB units, SQS and S3 requests per recurring run"),
    "overhead": Benchmark(
        2, "emulated", "a worker's time before and after a script, and its memory"
    ),
    "execute": Benchmark(
        2, "emulated", "CPU per run with its script, start latency, takeover time"
    ),
    "embedded": Benchmark(
        7, "embedded", "start latency, a burst, CPU and memory, next to two peers"
    ),
    "chain": Benchmark(4, "both", "end of a parent to start of its child, a fan of 1,000, units"),
    "callbacks": Benchmark(3, "both", "2,000 callbacks due at once; seconds of Lambda per call"),
    "dispatch": Benchmark(
        2, "emulated", "the watcher's CPU per run, relative to a bare boto3 loop"
    ),
    "fairness": Benchmark(
        4, "emulated", "how late a tenant's runs are during another's backlog of 10,000"
    ),
    "overload": Benchmark(
        25, "emulated", "goodput above the capacity, recovery from backlogs; then `paused`"
    ),
    "paused": Benchmark(7, "emulated", "recovery of a stopped watcher"),
    "throughput": Benchmark(
        2, "none", "runs per second of one group, its CPU, memory with 64 shards"
    ),
    "flatness": Benchmark(
        15, "emulated", "a watcher's minute with 1,000 and with 1,000,000 jobs at rest"
    ),
    "api": Benchmark(1, "emulated", "cold import of the API, response time by route"),
    "cost": Benchmark(7, "emulated", "USD per million runs, and of an idle month"),
    "across": Benchmark(
        5, "none", "lists over all jobs among a million records; the projector's cost"
    ),
    "fixed": Benchmark(
        4, "emulated", "calls of an idle hour, their price per month, the watcher's memory"
    ),
}
_NOTES = """\
MINUTES: about, on two cores.
STACK: the local stack that it starts: emulated (the AWS app on MiniStack), embedded, or both."""


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0, 1 if a stack does not start, 130 after Ctrl-C."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in BENCHMARKS]:
        parser.exit(2, f"Unknown benchmark {unknown[0]!r}. Use one of these:\n\n{_table()}\n")
    if not given.names:
        print(_table())  # noqa: T201
    if given.strict:
        os.environ[STRICT] = "yes"
    for name in given.names:
        try:
            result = importlib.import_module(f"benchmarks.{name}").measure()
        except KeyboardInterrupt:
            return 130
        except LocalStackError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        show(name, result)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the figures of docs/internals/benchmarks.md.\nWithout NAME, list the "
        "benchmarks.",
        epilog=_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a benchmark of the list below")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="run the emulated stack behind the stand-in that enforces AWS's limits",
    )
    return parser


def _table() -> str:
    """The benchmarks, one per line."""
    rows = [
        ("NAME", "MINUTES", "STACK", "MEASURES"),
        *((name, str(of.minutes), of.stack, of.what) for name, of in BENCHMARKS.items()),
    ]
    lines = [f"{name:10}  {minutes:>7}  {kind:8}  {what}" for name, minutes, kind, what in rows]
    return "\n".join([*lines, "", _NOTES])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
