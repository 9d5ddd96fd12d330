"""What other services charge for the same runs, by their published prices."""

from __future__ import annotations

from dataclasses import dataclass

from nextfire_cli.cost.model import Load

_FREE_SCHEDULES = 1_000


@dataclass(frozen=True, slots=True)
class Peer:
    """Another service. `usd`: a month of a load, without free tier and without the user's code.
    `stands_for`: what this price includes, and what it does not.
    """

    name: str
    usd: float
    stands_for: str
    source: str
    priced_on: str


def peers(load: Load) -> list[Peer]:
    """Each peer's price of *load*."""
    millions = load.runs / 1e6
    schedules = 0.01 * max(0, load.jobs - _FREE_SCHEDULES)
    return [
        Peer(
            "EventBridge Scheduler",
            1.00 * millions,
            "one invocation of a target per run, due to the minute; no record of the run",
            "aws.amazon.com/eventbridge/pricing",
            "2026-03",
        ),
        Peer(
            "Step Functions, Standard",
            (2 * 25.00 + 1.00) * millions,
            "two state transitions per run, started by EventBridge Scheduler; history for 90 days",
            "aws.amazon.com/step-functions/pricing",
            "2026-03",
        ),
        Peer(
            "QStash, pay as you go",
            10.00 * millions + schedules,
            "one message to a URL per run, retries included; logs for 3 days",
            "upstash.com/pricing/qstash",
            "2026",
        ),
    ]
