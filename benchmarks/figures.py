"""Computes figures from measurements: percentiles, accounts of runs, sizes. No AWS, no clock."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


def percentile(values: Sequence[float], percent: int) -> float:
    """The *percent*-th percentile (1 … 99) of *values* (at least one), by interpolation."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One instant of one job, which must become exactly one run."""

    job_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as the queue received it."""

    occurrence: Occurrence
    message_id: str
    accepted_at: datetime


@dataclass(frozen=True, slots=True)
class Started:
    """A run record: the start of its first attempt, the number of attempts, and whether the run
    succeeded.
    """

    occurrence: Occurrence
    at: datetime
    attempts: int
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The outcome of the expected occurrences. Lateness is in seconds, by occurrence."""

    dispatch_lateness: dict[Occurrence, float]
    start_lateness: dict[Occurrence, float]
    lost: set[Occurrence]
    """Occurrences without a run record."""
    duplicated: set[Occurrence]
    """Occurrences with two run records, or with two attempts."""
    sent_twice: set[Occurrence]
    """Occurrences with two messages; the queue and the claim must have made that harmless."""
    unfinished: set[Occurrence]
    """Occurrences with a run record whose state is not SUCCEEDED."""
    unexpected: set[Occurrence]
    """Runs with a record or a message that match no occurrence of any job."""


def account(
    expected: Collection[Occurrence], sent: Collection[Sent], started: Collection[Started]
) -> Account:
    """Compare *sent* and *started* with *expected*.

    If an occurrence has several messages or records, the first one counts for its lateness.
    """
    messages: dict[Occurrence, dict[str, datetime]] = defaultdict(dict)
    for message in sent:
        messages[message.occurrence][message.message_id] = message.accepted_at
    records: dict[Occurrence, list[Started]] = defaultdict(list)
    for record in started:
        records[record.occurrence].append(record)
    wanted = set(expected)
    return Account(
        dispatch_lateness={
            occurrence: _seconds(min(times.values()) - occurrence.at)
            for occurrence, times in messages.items()
        },
        start_lateness={
            occurrence: _seconds(min(record.at for record in found) - occurrence.at)
            for occurrence, found in records.items()
        },
        lost=wanted - records.keys(),
        duplicated={
            occurrence
            for occurrence, found in records.items()
            if len(found) > 1 or any(record.attempts > 1 for record in found)
        },
        sent_twice={occurrence for occurrence, ids in messages.items() if len(ids) > 1},
        unfinished={
            occurrence
            for occurrence, found in records.items()
            if not all(record.succeeded for record in found)
        },
        unexpected=(records.keys() | messages.keys()) - wanted,
    )


def worst(lateness: dict[Occurrence, float], since: datetime, until: datetime) -> float:
    """The maximum lateness in seconds of runs due in [*since*, *until*); 0.0 if nothing was due."""
    return max((late for o, late in lateness.items() if since <= o.at < until), default=0.0)


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()


_READ_UNIT_BYTES = 4096


def read_units(sizes: Sequence[int], *, consistent: bool, one_by_one: bool) -> float:
    """The read units that DynamoDB charges for items of *sizes* bytes. *one_by_one*: as a
    BatchGetItem, which rounds up each item; a Query rounds up their sum. A read that finds nothing
    costs as much as one small item.
    """
    amounts = sizes if one_by_one else [sum(sizes)]
    units = sum(max(1, math.ceil(amount / _READ_UNIT_BYTES)) for amount in amounts or [0])
    return float(units) if consistent else units / 2


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """The size of *item* (with type descriptors) by DynamoDB's rule: names and values."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return (len(content.strip("-0.")) + 1) // 2 + 1
        case "L":
            return 3 + sum(1 + _value_bytes(element) for element in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
        case _:
            return 1
