"""Hands back the messages of a dead worker. Runs in a short-lived child of the supervisor."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from datetime import timedelta

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.worker.journal import HeldMessage
from nextfire.settings import ExecutorSettings
from nextfire.usecases.serve_pool import BUSY_POLL
from nextfire.wiring.telemetry import WorkerTelemetry
from nextfire.wiring.worker_ports import return_ports

_MARGIN = timedelta(milliseconds=500)
"""A poll takes a little longer than its wait time."""


def return_held(held: Sequence[HeldMessage], died_at: float) -> None:
    """Hand the messages *held* back. The worker died at *died_at* (`time.monotonic`).

    Ends after the duration of a lease: by then the leases of the remaining runs have expired.
    """
    settings = ExecutorSettings.read()
    signal.alarm(int(settings.lease.total_seconds()) + 1)  # even if a call hangs
    telemetry, clock = WorkerTelemetry(), SystemClock()
    use_case, deliveries = return_ports(settings, held, telemetry)
    now = clock.now()
    returned = use_case.give_back(
        deliveries,
        polls_until=now - timedelta(seconds=time.monotonic() - died_at) + BUSY_POLL + _MARGIN,
        until=now + settings.lease,
    )
    telemetry.logger.warning(
        "messages of a dead worker handed back",
        runs=returned.runs,
        messages=returned.messages,
        left=returned.left,
    )
