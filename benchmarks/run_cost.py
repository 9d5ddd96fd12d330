"""What one recurring run uses: units, requests, bytes and CPU, measured on the local stack."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from benchmarks.figures import item_bytes
from benchmarks.harness import POOL, Meter, Stack, Tally, next_hour
from benchmarks.report import progress, tell
from benchmarks.units import SCRIPT, TOGETHER, minutes
from nextfire_cli.cost.usage import RunUsage

_ITEM_OVERHEAD = 100
"""Bytes that DynamoDB adds to each item for storage (CapacityUnitCalculations, its guide)."""
_WAITED_FOR = frozenset({"GetItem", "Query", "UpdateItem", "GetObject", "ChangeMessageVisibility"})
_PLENTY_MS = 800_000


@dataclass(frozen=True, slots=True)
class Executed:
    """The calls, the bytes of log lines and the CPU seconds of `TOGETHER` runs."""

    tally: Tally
    log_bytes: int
    cpu_s: float


def measure_runs(stack: Stack) -> dict[str, RunUsage]:
    """The usage of a run in a pool on Lambda (`lambda`) and on workers (`fargate`)."""
    stack.push_script("instant", SCRIPT)
    hosts: dict[str, tuple[str, Callable[[], None]]] = {
        "lambda": ("executor", _invoke_executor),
        "fargate": ("worker", _work),
    }
    usages: dict[str, RunUsage] = {}
    for number, (pool, (service, execute)) in enumerate(hosts.items()):
        # Twice: counted with boto3, whose hooks see each call; timed with the functions' client.
        stack.become_watcher()
        meter = Meter()
        idle, busy = minutes(stack, meter, next_hour() + number * _HOUR, TOGETHER)
        counted = _execute(stack, service, execute, Meter())
        stack.become_watcher()
        minutes(stack, Meter(), next_hour() + (number + 10) * _HOUR, TOGETHER)
        timed = _execute(stack, service, execute, None)
        usages[pool] = _usage(stack, busy - idle, counted, timed)
    return usages
