"""Jobs: the definition by the user, and the state that the system keeps with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import takewhile
from typing import Any

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.backfill import Backfill
from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import BackfillEntry, DispatchEntry, FireEntry, ResumeEntry
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import cut, to_ms
from nextfire.domain.jitter import jitter
from nextfire.domain.occurrences import JobState, Occurrences
from nextfire.domain.policies import Overlap
from nextfire.domain.recurrence import occurrences
from nextfire.domain.schedule import UNTIMED
from nextfire.domain.when import WhenDocument


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replaced schedule version. It owns its occurrences after `effective_from`, up to and
    including `until`, the instant of the change that replaced it. `paused`: the job was paused, so
    none of them runs.
    """

    version: int
    effective_from: datetime
    until: datetime
    when: WhenDocument
    counted_from: datetime | None = None
    resumed_at: datetime | None = None
    paused: bool = False


MAX_SKIPS = 8
MAX_CHILDREN = 1_000
"""Executors read the list with the job, at the cost of its size."""
MAX_REPLACED = 8
"""Number of replaced versions that a job keeps. It keeps more only while some have occurrences that
are not dispatched, which happens if the watcher is behind."""
MAX_REPLACED_BYTES = 64 * 1024
"""Maximum size of the replaced versions: they share the job's item, which is at most 400 KB."""
_ENVELOPE = 256  # bytes; maximum size of a replaced version without its schedule


def bytes_of(versions: Iterable[Replaced]) -> int:
    """Return an upper bound of the bytes that *versions* take in the job's item."""
    return sum(len(past.when.model_dump_json()) + _ENVELOPE for past in versions)


@dataclass(frozen=True, slots=True)
class Job(Occurrences):
    """A stored job.

    - `uid`: different for each creation of a job with this id. `revision` (≥ 1): counts every
      change.
    - `schedule_version`: changes, and grows, if and only if *when* changes. A version owns the
      occurrences after `effective_from`, the instant of that change. For a job that was paused it
      is the start of the pause, because occurrences during the pause fall under the misfire policy
      at `resumed_at`.
    - `counted_from`: start of the count for DELAY, INTERVAL and `maxRuns`, if it differs from
      `effective_from`. Pauses do not change it.
    - `skips`: occurrences that a user asked to skip, the latest `MAX_SKIPS`. Each has a record.
    - `paused_by`: the principal whose request paused it, as in the audit log. None: its target did,
      or it is unknown.
    - `resumes_at`: when a PAUSED job is resumed automatically. `drain_asked_at`: when the user
      asked to drain a PAUSED job; its document then shows until when its runs continue.
    - `backfill`: the latest backfill that has not completed; see `backfilling`.
    - `children`: ids of the jobs that have, or had, an edge from this job. Their definitions decide
      whether they still have.
    - `defined_in`: revision in which what its runs do last changed: target, payload, retry policy
      or timeout. None: unknown, for jobs that an earlier version stored.
    - `counted`: the job counts toward its tenant's quota of jobs. Ended jobs do not.
    - `unknown`: attributes that a newer version stored, unchanged. No decision uses them.
    """

    key: JobKey
    uid: str
    revision: int
    schedule_version: int
    effective_from: datetime
    state: JobState
    definition: JobDefinition
    created_at: datetime
    updated_at: datetime
    replaced: tuple[Replaced, ...] = ()
    counted_from: datetime | None = None
    resumed_at: datetime | None = None
    pause_reason: str | None = None
    paused_by: str | None = None
    skips: tuple[datetime, ...] = ()
    resumes_at: datetime | None = None
    counted: bool = False
    drain_asked_at: datetime | None = None
    backfill: Backfill | None = None
    children: tuple[str, ...] = ()
    defined_in: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def defined_after(self, revision: int) -> bool:
        """Whether what its runs do changed, or may have changed, after *revision*."""
        return (self.defined_in or self.revision) > revision

    def revised(self, now: datetime) -> Job:
        """Return the next revision of the job, changed at *now*."""
        return replace(self, revision=self.revision + 1, updated_at=max(cut(now), self.updated_at))

    def with_new_version(self, now: datetime) -> Job:
        """Return the job with a new schedule version from *now* on. Version and `effective_from`
        only grow, whatever the clocks of the writers. All earlier versions are kept; `is_over`
        decides which can be dropped.
        """
        effective_from = max(cut(now), self.effective_from)
        when = self.definition.model_dump(include=set(WhenDocument.model_fields))
        past = Replaced(
            self.schedule_version,
            self.effective_from,
            effective_from,
            WhenDocument.model_validate(when),
            self.counted_from,
            self.resumed_at,
            self.state is JobState.PAUSED,
        )
        return replace(
            self,
            schedule_version=self._next_version(now),
            effective_from=effective_from,
            counted_from=None,
            resumed_at=None,
            replaced=(*self.replaced, past),
        )

    def paused(self, now: datetime, reason: str | None, *, by: str | None = None) -> Job:
        """Return the job paused *by* a user or, if None, at the wish of its target: no occurrence
        after *now* is due until it is resumed.
        """
        return replace(
            self.with_new_version(now),
            state=JobState.PAUSED,
            counted_from=self.counted_since,
            pause_reason=reason,
            paused_by=by,
        )

    def resumed(self, now: datetime) -> Job:
        """Return the job resumed. Occurrences during the pause are now late."""
        return replace(
            self,
            state=JobState.ACTIVE,
            schedule_version=self._next_version(now),
            resumed_at=max(cut(now), self.effective_from),
            pause_reason=None,
            paused_by=None,
            resumes_at=None,
            drain_asked_at=None,
        )

    def resumption(self, now: datetime) -> tuple[Job, FireEntry | None]:
        """Return the next revision of this PAUSED job, resumed at *now*, and its first due entry. A
        job without further occurrences becomes COMPLETED.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        resumed = self.resumed(now).revised(now)
        first = resumed.first()
        if first is None and resumed.definition.type not in UNTIMED:
            return replace(resumed, state=JobState.COMPLETED, counted=False), None
        return resumed, first

    def resume_entry(self) -> ResumeEntry | None:
        """Return the due entry that ends the pause of this job; None if only a request ends it."""
        if self.state is not JobState.PAUSED or self.resumes_at is None:
            return None
        return ResumeEntry(self.key, self.uid, self.resumes_at)

    @property
    def backfilling(self) -> Backfill | None:
        """The backfill in progress, or None. A change of *when*, a pause and a deletion end it."""
        continues = self.backfill is not None and self.backfill.version == self.schedule_version
        return self.backfill if continues else None

    def backfill_entry(self, position: int) -> BackfillEntry | None:
        """Return the due entry that continues the backfill at its *position*-th occurrence (from
        1); None if no backfill is in progress.
        """
        asked = self.backfilling
        if asked is None:
            return None
        # Derived from the job, so that all writers write the same entry.
        return BackfillEntry(self.key, self.uid, asked.asked_at, asked.backfill_id, position)

    def unpaused(self, now: datetime) -> FireEntry | None:
        """Return the due entry that records what was due in the pause of this PAUSED job, up to
        *now*, when a change ends its schedule version; None if nothing was due.
        """
        entry = self.first() if self.state is JobState.PAUSED else None
        return entry if entry is not None and entry.occurs_at <= now else None

    def due_at(self, occurrence: datetime) -> datetime:
        """Return when the run of the occurrence at *occurrence* is due: with the jitter of the
        version that owns it, which a change may have replaced since.
        """
        owners = (p.when for p in self.replaced if p.effective_from < occurrence <= p.until)
        width = next(owners, self.definition).jitter_width
        return occurrence + jitter(self.uid, occurrence, width)

    def all_due_at(self, until: datetime) -> datetime:
        """Return when all occurrences up to *until* are due, jitter included.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        width = self.definition.jitter_width
        if not width:
            return until
        recent = occurrences(self.schedule, max(until - width, self.effective_from))
        of_it = takewhile(lambda occurrence: occurrence.at <= until, recent)
        return max((self.due_at(occurrence.at) for occurrence in of_it), default=until)

    def as_of(self, past: Replaced) -> Job:
        """Return this job with the schedule of the version *past*."""
        when = {name: getattr(past.when, name) for name in WhenDocument.model_fields}
        return replace(
            self,
            schedule_version=past.version,
            effective_from=past.effective_from,
            counted_from=past.counted_from,
            resumed_at=past.resumed_at,
            state=JobState.PAUSED if past.paused else JobState.ACTIVE,
            definition=self.definition.model_copy(update=when),
        )

    def is_over(self, past: Replaced, unsent: Iterable[FireEntry], now: datetime) -> bool:
        """Whether all occurrences of the version *past* and earlier ones are dispatched by *now*.
        *unsent*: the FIRE entries of this job in the due table that were due by *now*.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        left = any(e.version <= past.version and e.occurs_at <= past.until for e in unsent)
        return not left and self.as_of(past).all_due_at(past.until) <= now

    def _next_version(self, now: datetime) -> int:
        return max(self.schedule_version + 1, to_ms(now))

    def run_key(self, scheduled_at: datetime) -> RunKey:
        """The key of its run that is scheduled for *scheduled_at*."""
        return RunKey(self.key, run_id(self.uid, scheduled_at))

    def dispatch_entry(
        self,
        run: RunKey,
        at: datetime,
        dispatch: int,
        *,
        pool: str | None = None,
        again: bool = False,
    ) -> DispatchEntry:
        """Return the due entry that sends the dispatch number *dispatch* of *run*, to *pool* or the
        current pool. Does not affect the chain of the job. *again*: the run was due before, its
        watcher was on time, and no attempt was made.
        """
        return DispatchEntry(
            run.job,
            run.uid,
            cut(at),
            run.run_id,
            dispatch,
            pool or self.definition.target.pool,
            rank=self.definition.priority.rank,
            held=again,
            counted=again,
            exclusive=self.exclusive,
        )

    @property
    def version(self) -> str:
        """Identifies this state of the job among all that it ever had."""
        return f"{self.uid}-{self.revision}"

    @property
    def exclusive(self) -> bool:
        """Whether its runs exclude each other: they share a message group."""
        return self.definition.overlap is not Overlap.ALLOW

    def changed_after(self, at: datetime) -> bool:
        """Whether its document, and thus possibly its pool, changed at or after *at*."""
        return self.revision > 1 and self.updated_at >= at
