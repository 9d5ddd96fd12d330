"""Events that nextfire publishes on its event bus; documented in `docs/reference/events.md`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from nextfire.dataclass import dataclass
from nextfire.domain.ids import content_id, dedup_id
from nextfire.domain.instants import isoformat
from nextfire.domain.run import Run

SOURCE = "nextfire"


class EventKind(StrEnum):
    """The detail-type of an event."""

    EXECUTION_DEAD = "Execution Dead"
    MESSAGE_UNDECODABLE = "Message Undecodable"


@dataclass(frozen=True, slots=True)
class Event:
    """An event that may need human attention. `detail` is JSON. Its ``id`` is deterministic, so a
    repeated event has the same ``id``.
    """

    kind: EventKind
    detail: dict[str, object]
    at: datetime


def execution_dead(run: Run, now: datetime) -> Event:
    """The event for a run that has no attempts left."""
    detail = {
        "version": 1,
        "id": dedup_id(run.key, run.dispatch),
        "tenant": run.key.job.tenant,
        "jobId": run.key.job.job_id,
        "executionId": run.key.execution_id,
        "scheduledAt": isoformat(run.key.scheduled_at),
        "pool": run.pool,
        "attempt": run.attempt,
        "outcome": run.attempts[-1].outcome if run.attempts else None,
        "exitCode": run.exit_code,
        "reason": run.reason,
        "finishedAt": isoformat(run.finished_at) if run.finished_at else None,
    }
    present = {name: value for name, value in detail.items() if value is not None}
    return Event(EventKind.EXECUTION_DEAD, present, run.finished_at or now)


def message_undecodable(body: str, failure: str, pool: str, now: datetime) -> Event:
    """The event for a queue message that cannot be decoded and is now in the dead-letter queue."""
    detail: dict[str, object] = {
        "version": 1,
        "id": content_id(body),
        "pool": pool,
        "reason": failure,
    }
    return Event(EventKind.MESSAGE_UNDECODABLE, detail, now)
