"""List prices, and what a month of usage costs by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

PRICED_ON = date(2026, 11, 21)
"""Date of `PRICES` and `FREE`."""
REGION = "us-east-1"
HOURS_PER_MONTH = 730
"""Hours of a month in the AWS pricing calculator."""

# USD for each unit, the first tier, without data transfer.
PRICES = {
    "GB-s on arm64": 0.0000133334,  # aws.amazon.com/lambda/pricing
    "GB-s on x86_64": 0.0000166667,  # aws.amazon.com/lambda/pricing
    "Lambda requests": 0.20e-6,  # aws.amazon.com/lambda/pricing
    "Fargate vCPU-h on arm64": 0.03238,  # aws.amazon.com/fargate/pricing
    "Fargate GB-h on arm64": 0.00356,  # aws.amazon.com/fargate/pricing
    "read units": 0.125e-6,  # aws.amazon.com/dynamodb/pricing/on-demand
    "write units": 0.625e-6,  # aws.amazon.com/dynamodb/pricing/on-demand
    "read unit hours": 0.00013,  # aws.amazon.com/dynamodb/pricing/provisioned
    "write unit hours": 0.00065,  # aws.amazon.com/dynamodb/pricing/provisioned
    "GB-months of tables": 0.25,  # aws.amazon.com/dynamodb/pricing/on-demand
    "GB-months of point-in-time recovery": 0.20,  # aws.amazon.com/dynamodb/pricing/on-demand
    "SQS FIFO requests": 0.50e-6,  # aws.amazon.com/sqs/pricing
    "S3 GET requests": 0.40e-6,  # aws.amazon.com/s3/pricing
    "scheduled rule invocations": 0.0,  # aws.amazon.com/eventbridge/pricing: free on a bus
    "alarms": 0.10,  # aws.amazon.com/cloudwatch/pricing, each per month
    "composite alarms": 0.50,  # aws.amazon.com/cloudwatch/pricing
    "custom metrics": 0.30,  # aws.amazon.com/cloudwatch/pricing
    "dashboards": 3.00,  # aws.amazon.com/cloudwatch/pricing
    "GB of logs": 0.50,  # aws.amazon.com/cloudwatch/pricing, ingestion
    "GB-months of logs": 0.03,  # aws.amazon.com/cloudwatch/pricing, compressed
}

# Free amounts of each month that do not expire. Excludes the credits of new accounts.
FREE = {
    "GB-s on arm64": 400_000.0,
    "GB-s on x86_64": 400_000.0,
    "Lambda requests": 1e6,
    "read unit hours": 25.0 * HOURS_PER_MONTH,
    "write unit hours": 25.0 * HOURS_PER_MONTH,
    "SQS FIFO requests": 1e6,
    "alarms": 10.0,
    "custom metrics": 10.0,
    "dashboards": 3.0,
    "GB of logs": 5.0,
}


@dataclass(frozen=True, slots=True)
class Usage:
    """An amount in a month. `unit` is a key of `PRICES`."""

    what: str
    unit: str
    amount: float


@dataclass(frozen=True, slots=True)
class Cost:
    """A monthly amount of one item, and its price in USD without and with the free tier."""

    what: str
    unit: str
    amount: float
    usd: float
    usd_with_free_tier: float


def costs(items: Iterable[Usage]) -> list[Cost]:
    """The prices of *items*. Items with the same unit share its free amount, in their order."""
    left = Counter(FREE)
    priced: list[Cost] = []
    for item in items:
        free = min(item.amount, left[item.unit])
        left[item.unit] -= free  # type: ignore[assignment]
        price = PRICES[item.unit]
        paid = (item.amount - free) * price
        priced.append(Cost(item.what, item.unit, item.amount, item.amount * price, paid))
    return priced
