"""What is computed from measurements: percentiles, accounts of runs, prices. No AWS, no clock."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


def percentile(values: Sequence[float], percent: int) -> float:
    """The *percent*-th percentile (1 … 99) of *values* (one or more), interpolated within them."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One instant of one job: what must become exactly one run."""

    job_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its queue received it."""

    occurrence: Occurrence
    message_id: str
    accepted_at: datetime


@dataclass(frozen=True, slots=True)
class Started:
    """A run's record: when its first attempt began, how many attempts began, whether it ended
    well.
    """

    occurrence: Occurrence
    at: datetime
    attempts: int
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the occurrences that were expected. Lateness is in seconds, by occurrence."""

    dispatch_lateness: dict[Occurrence, float]
    start_lateness: dict[Occurrence, float]
    lost: set[Occurrence]
    """Without a record."""
    duplicated: set[Occurrence]
    """With two records, or two attempts."""
    sent_twice: set[Occurrence]
    """With two messages; the queue and the claim must have made that harmless."""
    unfinished: set[Occurrence]
    """With a record that does not say SUCCEEDED."""
    unexpected: set[Occurrence]
    """That have a record or a message and are no occurrence of any job."""


def account(
    expected: Collection[Occurrence], sent: Collection[Sent], started: Collection[Started]
) -> Account:
    """Hold what was *sent* and *started* against what was *expected*.

    Of several messages, or records, of one occurrence the first counts for its lateness.
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
    """The greatest lateness, in seconds, of what was due in [*since*, *until*); 0.0 of nothing."""
    return max((late for o, late in lateness.items() if since <= o.at < until), default=0.0)


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()


_READ_UNIT_BYTES = 4096


def read_units(sizes: Sequence[int], *, consistent: bool, one_by_one: bool) -> float:
    """What DynamoDB asks for reading items of *sizes* bytes; *one_by_one*: as a BatchGetItem, which
    rounds each item up, and not their sum as a Query. Nothing found costs as one small item does.
    """
    amounts = sizes if one_by_one else [sum(sizes)]
    units = sum(max(1, math.ceil(amount / _READ_UNIT_BYTES)) for amount in amounts or [0])
    return float(units) if consistent else units / 2


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """How large DynamoDB takes *item* (with type descriptors) to be: names and values."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return (len(content.strip("-0.")) + 1) // 2 + 1
        case "L":
            return 3 + sum(1 + _value_bytes(element) for element in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
        case _:
            return 1


HOURS_PER_MONTH = 730
"""As AWS counts a month in its calculator."""

# List prices in USD, us-east-1, looked up 2026-11-21; the first tier, without data transfer.
PRICES = {
    "GB-s on arm64": 0.0000133334,  # aws.amazon.com/lambda/pricing
    "GB-s on x86_64": 0.0000166667,  # the same
    "Lambda requests": 0.20e-6,  # the same
    "read units": 0.125e-6,  # aws.amazon.com/dynamodb/pricing/on-demand
    "write units": 0.625e-6,  # the same
    "SQS FIFO requests": 0.50e-6,  # aws.amazon.com/sqs/pricing
    "scheduled rule invocations": 0.0,  # aws.amazon.com/eventbridge/pricing: of a bus's rules, free
    "alarms": 0.10,  # aws.amazon.com/cloudwatch/pricing, a month each
    "custom metrics": 0.30,  # the same
    "dashboards": 3.00,  # the same
    "GB of logs": 0.50,  # the same, ingestion
}

# What an account gets each month without end; new accounts' credits are not in it.
FREE = {
    "GB-s on arm64": 400_000.0,
    "GB-s on x86_64": 400_000.0,
    "Lambda requests": 1e6,
    "SQS FIFO requests": 1e6,
    "alarms": 10.0,
    "custom metrics": 10.0,
    "dashboards": 3.0,
    "GB of logs": 5.0,
}


@dataclass(frozen=True, slots=True)
class Cost:
    """A month's amount of one thing, and its price in USD without and with the free tier."""

    what: str
    unit: str
    amount: float
    usd: float
    usd_with_free_tier: float


def costs(items: Sequence[tuple[str, str, float]]) -> list[Cost]:
    """The price of *items*: what for, unit (a key of `PRICES`), amount in a month.

    Items of one unit share its free amount, in their order.
    """
    left = Counter(FREE)
    priced: list[Cost] = []
    for what, unit, amount in items:
        free = min(amount, left[unit])
        left[unit] -= free  # type: ignore[assignment]
        price = PRICES[unit]
        priced.append(Cost(what, unit, amount, amount * price, (amount - free) * price))
    return priced
