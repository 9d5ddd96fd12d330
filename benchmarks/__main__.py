"""``python -m benchmarks NAME…``; without a name the list of them."""

from __future__ import annotations

import importlib
import sys

from benchmarks.report import show
from nextfire_cli.local import LocalStackError

NAMES = {
    "timeliness": "how late runs are sent and started, at 50 a second",
    "failover": "how long dispatching stands still when a watcher is killed",
    "units": "DynamoDB units, SQS and S3 requests of a recurring run",
    "overhead": "time before and after a script, against the script alone; a worker's memory",
    "execute": "CPU of a run with its script, how soon it starts, what a dead worker's runs wait",
    "dispatch": "the watcher's CPU per run against a bare boto3 loop of the same AWS calls",
    "fairness": "how late one tenant's runs are while another's 10,000, due at once, are sent",
    "overload": "what is still dispatched when more is due than can be sent, and how it recovers",
    "throughput": "runs a second of one group, its CPU share and its memory with 64 shards",
    "flatness": "a watcher's minute with 1,000 and with 1,000,000 jobs at rest",
    "api": "cold import of the API, and how long it takes to answer, route by route",
    "fixed": "calls of an idle hour, their price a month, the watcher's memory",
}


def main(arguments: list[str]) -> int:
    if not arguments:
        for name, what in NAMES.items():
            print(f"{name:12} {what}")  # noqa: T201
        return 0
    if unknown := [name for name in arguments if name not in NAMES]:
        sys.stderr.write(f"There is no benchmark {unknown[0]!r}, only: {', '.join(NAMES)}.\n")
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
