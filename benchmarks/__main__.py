"""``python -m benchmarks [--strict] NAME…`` runs benchmarks; without a name it lists them.

With `--strict`, the emulated stack runs behind the stand-in that enforces AWS's limits.
"""

from __future__ import annotations

import importlib
import os
import sys

from benchmarks.report import show
from benchmarks.stack import STRICT
from nextfire_cli.local import LocalStackError

NAMES = {
    "timeliness": "how late runs are sent and started, at 50 a second",
    "failover": "how long dispatching stops when a watcher is killed",
    "units": "DynamoDB units, SQS and S3 requests per recurring run",
    "overhead": "time that a worker adds before and after a script; a worker's memory",
    "execute": "CPU per run with its script, start latency, takeover time of a dead worker's runs",
    "embedded": "the embedded stack and two peers: start latency, a burst of 2,000, CPU and memory",
    "chain": "from a parent's end to its child's start, a fan of 1,000, write units per link",
    "callbacks": "2,000 callbacks due at once against an async client; seconds of Lambda per call",
    "dispatch": "the watcher's CPU per run against a bare boto3 loop of the same AWS calls",
    "fairness": "how late one tenant's runs are during another tenant's backlog of 10,000 runs",
    "overload": "goodput when more runs are due than can be sent, and recovery from backlogs",
    "paused": "recovery of a stopped watcher on the emulated stack; part of `overload`",
    "throughput": "runs per second of one group, its CPU share, and its memory with 64 shards",
    "flatness": "cost of a watcher's minute with 1,000 and with 1,000,000 jobs at rest",
    "api": "cold import of the API, and its response time by route",
    "cost": "USD per million runs on Lambda and Fargate, and of an idle month, at list prices",
    "across": "latest and running runs of all jobs among a million records; the projector's cost",
    "fixed": "calls of an idle hour, their price per month, the watcher's memory",
}


def main(arguments: list[str]) -> int:
    if "--strict" in arguments:
        os.environ[STRICT] = "yes"
        arguments = [each for each in arguments if each != "--strict"]
    if not arguments:
        for name, what in NAMES.items():
            print(f"{name:12} {what}")  # noqa: T201
        return 0
    if unknown := [name for name in arguments if name not in NAMES]:
        sys.stderr.write(f"Unknown benchmark {unknown[0]!r}. Use one of: {', '.join(NAMES)}.\n")
        return 2
    for name in arguments:
        try:
            result = importlib.import_module(f"benchmarks.{name}").measure()
        except KeyboardInterrupt:
            return 130
        except LocalStackError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        show(name, result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
