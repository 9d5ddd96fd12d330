"""What is known of a job in addition to its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import zip_longest

from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, SkippedRange
from nextfire.domain.run import Run, RunState, Trigger

CLOCKS_APART = timedelta(seconds=2)
ATTEMPTS_KEPT = 100
DECIDING = timedelta(seconds=30)
"""Maximum time between reading the clock, reading the job and acting on both."""


@dataclass(frozen=True, slots=True)
class Stored:
    """*job* as it was stored at `written_at`."""

    written_at: datetime
    job: Job


@dataclass(frozen=True)
class Evidence:
    """What is known of a job in addition to its records.

    `ever`: all stored versions of the job, in order; `sent`: when watchers first sent each run;
    `asked_to_cancel`: whether the cancellation of a run was requested; `decided`: the watcher's
    clock when it decided to send the run, if known; `vanished`: deleted records, as they were at
    deletion; `missed`: the ranges that messages reported as missed, with the time of sending;
    `removed_at`: when the auditor removed the job after its retention.
    """

    ever: Sequence[Stored]
    sent: Mapping[RunKey, datetime]
    asked_to_cancel: Callable[[RunKey], bool] = lambda _: True
    decided: Mapping[RunKey, datetime] = field(default_factory=dict)
    vanished: Sequence[Run] = ()
    missed: Sequence[tuple[SkippedRange, datetime]] = ()
    removed_at: datetime | None = None

    def in_force(self, at: datetime) -> Iterator[Job]:
        """The versions of the job that a decision at *at* may have read."""
        for stored, following in zip_longest(self.ever, self.ever[1:]):
            ended = following is not None and following.written_at < at - DECIDING
            if stored.written_at <= at + DECIDING and not ended:
                yield stored.job

    def until(self, at: datetime) -> Iterator[Job]:
        """All versions of the job up to *at*."""
        return (s.job for s in self.ever if s.written_at <= at + DECIDING)

    def removed_by(self, at: datetime) -> bool:
        """Whether the job was removed by *at*. Messages that waited longer are cancelled."""
        return self.removed_at is not None and self.removed_at <= at + DECIDING

    def written_at(self, is_it: Callable[[Job], bool]) -> datetime | None:
        return next((s.written_at for s in self.ever if is_it(s.job)), None)


def first_sent(log: Iterable[RunMessage]) -> dict[RunKey, datetime]:
    """When each run in *log* was first sent, except resends by the auditor, whose decision has
    another time.
    """
    sent: dict[RunKey, datetime] = {}
    for message in log:
        if message.dispatch == 1 and message.reason != "retry is due":
            at = sent.get(message.key, message.dispatched_at)
            sent[message.key] = min(at, message.dispatched_at)
    return sent


def reported_missed(log: Iterable[RunMessage], job: Job) -> list[tuple[SkippedRange, datetime]]:
    """The ranges that messages of *job* in *log* report as missed, with the time of sending."""
    return [
        (row, message.dispatched_at)
        for message in log
        if (message.key.job, message.key.uid) == (job.key, job.uid)
        for row in _decided_together(message)
    ]


def _decided_together(message: RunMessage) -> Iterator[SkippedRange]:
    """The ranges of *message*, joined where one decision made several, between skips by request."""
    by_decision: dict[tuple[int, str], SkippedRange] = {}
    for row in message.missed:
        first = by_decision.setdefault((row.version, row.reason), row)
        by_decision[row.version, row.reason] = first.model_copy(update={"last": row.last})
    yield from by_decision.values()


def ran(run: Run) -> bool:
    return bool(run.attempts) or run.state in {RunState.SUCCEEDED, RunState.DEAD}


def on_request(run: Run) -> bool:
    """Whether a user started the run, out of order: by run now, or by a redrive."""
    return run.trigger is Trigger.MANUAL or run.restarted


def ended_after(run: Run, at: datetime) -> bool:
    """Ending in the same instant counts: records do not show which came first."""
    return run.finished_at is None or run.finished_at >= at


def began_by(run: Run, at: datetime) -> bool:
    if not run.attempts or len(run.attempts) == ATTEMPTS_KEPT:
        return True
    return run.attempts[0].started_at <= at + CLOCKS_APART
