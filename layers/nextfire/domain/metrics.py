"""The names of the metrics, once for the code that emits them and the alarms that watch them."""

from __future__ import annotations

from enum import StrEnum

NAMESPACE = "nextfire"


class Metric(StrEnum):
    """A CloudWatch metric in the namespace ``nextfire``, with the dimension ``service``."""

    DISPATCH_LATENESS = (
        "DispatchLateness"  # ms from a run's due instant to its message's acceptance
    )
    HELD_BACK_FOR = "HeldBackFor"  # the same of runs that had to wait; they are not in that
    DISPATCHED = "Dispatched"  # runs sent to a queue
    TICKS = "Ticks"  # polls of the due table by a watcher that holds its group's lease
    UNDELIVERED = "Undelivered"  # due runs that a queue did not take; they are tried again
    HELD_BACK = "HeldBack"  # due runs that had to wait for a queue, their job's turn or a quota
    SKIPPED = "Skipped"  # occurrences that do not run, by misfire or overlap policy or by window
    QUARANTINED = "Quarantined"  # entries, jobs and messages that could not be decoded
    STARTED = "Started"  # attempts begun
    SUCCEEDED = "Succeeded"  # runs that ended well
    FAILED = "Failed"  # attempts that did not
    LOST = "Lost"  # attempts whose worker vanished
    AUDITED = "Audited"  # jobs that the auditor visited
    REPAIRED = "Repaired"  # chains, records and runs that it put in order; in health none
