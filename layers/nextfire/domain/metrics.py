"""Metric names, shared by the code that emits them and the alarms that watch them."""

from __future__ import annotations

from enum import StrEnum

NAMESPACE = "nextfire"
ANY_SERVICE = "any"
"""The `service` of DEFECTS, whichever emits it: one alarm watches all."""


class Metric(StrEnum):
    """A CloudWatch metric in the namespace ``nextfire``, with the dimension ``service``; those of
    `OF_GROUPS` also have ``group``.
    """

    DISPATCH_LATENESS = (
        "DispatchLateness"  # ms from a run's due instant to its message's acceptance
    )
    HELD_BACK_FOR = "HeldBackFor"  # as DispatchLateness, for held-back runs only, which it excludes
    DISPATCHED = "Dispatched"  # runs sent to a queue
    TICKS = "Ticks"  # polls of the due table by a watcher that holds its group's lease
    BEHIND = "Behind"  # ms by which a group's oldest cursor is behind, while that is over 3 minutes
    DUE_BACKLOG = "DueBacklog"  # entries that it has read and not sent meanwhile
    UNDELIVERED = "Undelivered"  # due runs that a queue did not accept, or about which a table did
    # not answer, and steps of a watcher that were not answered; all are retried
    HELD_BACK = "HeldBack"  # due runs that wait for a queue, the job's turn or a quota
    SKIPPED = "Skipped"  # occurrences skipped by misfire policy, overlap policy or window
    WAKE_UPS_LOST = "WakeUpsLost"  # watchers that could not be woken; their entries wait for a tick
    QUARANTINED = "Quarantined"  # entries, jobs and messages that cannot be decoded
    STARTED = "Started"  # attempts started
    SUCCEEDED = "Succeeded"  # runs that succeeded
    FAILED = "Failed"  # attempts that failed or timed out
    LOST = "Lost"  # attempts whose worker was lost
    AUDITED = "Audited"  # jobs that the auditor visited
    DEFECTS = "Defects"  # what QUARANTINED and REPAIRED count, of all services together
    REPAIRED = "Repaired"  # chains, records and runs that the auditor repaired; normally 0


OF_GROUPS = frozenset({Metric.TICKS, Metric.BEHIND, Metric.DUE_BACKLOG})
"""The metrics of a watcher group."""
