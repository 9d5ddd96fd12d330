"""Deadlines of runs with parents: counted from their logical time. Pure.

A deadline does not apply to what starts after it on purpose: because a run above it did, in a
backfill or after a redrive.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.domain.definition import JobDefinition
from nextfire.domain.instants import in_seconds
from nextfire.domain.run import Run, Trigger


def no_later(until: datetime, deadline: datetime | None, now: datetime) -> datetime:
    """The end of a join that would end at *until*: the *deadline*, if it is earlier and not over
    by *now*.
    """
    return until if deadline is None or deadline <= now else min(until, deadline)


def limits(definition: JobDefinition) -> str:
    """How long a join waits: ``joinTimeoutSec is 86400 s``."""
    text = f"joinTimeoutSec is {in_seconds(definition.join_timeout)}"
    return text + (f", {named(definition)}" if definition.deadline_sec else "")


def named(definition: JobDefinition) -> str:
    """The deadline in a reason: ``deadlineSec is 3600 s``."""
    return f"deadlineSec is {in_seconds(timedelta(seconds=definition.deadline_sec or 0))}"


def late_on_purpose(run: Run, deadline: datetime) -> bool:
    """Whether *run* started after *deadline* because of a backfill or a redrive."""
    redriven = run.restarted or run.attempt_base > 0
    return (redriven or run.trigger is Trigger.BACKFILL) and begun_after(run, deadline)


def made_late(run: Run, deadline: datetime) -> bool:
    """Whether a run above *run* may have made it late: not if it began by *deadline*, or ended by
    then without an attempt.
    """
    if run.since_redrive:
        return begun_after(run, deadline)
    return run.finished_at is None or run.finished_at > deadline


def begun_after(run: Run, at: datetime) -> bool:
    """Whether the first attempt of *run*, or the first since its last redrive, started after *at*.
    The latest one, if the record does not show which are from before the redrive.
    """
    begun = [each.started_at for each in run.since_redrive]
    unknown = run.restarted and not (run.attempt_base or run.fence_base)
    return bool(begun) and (max if unknown else min)(begun) > at
