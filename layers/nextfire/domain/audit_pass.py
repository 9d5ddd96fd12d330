"""Passes of the auditor: when one starts, where it is, and how far back it looks."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, replace
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.retention import MIN_RETENTION
from nextfire.domain.zones import release

OVERLAP = timedelta(days=1)
"""How far an audit looks back before the start of the previous one. It covers runs that were too
recent then, or that may still have been in a queue."""
LOOK_BACK_AT_MOST = MIN_RETENTION - timedelta(days=1)
"""Limit of the look-back for lost runs. Runs with an expired record must not look lost, whatever
the retention is or was."""
MAX_SEGMENTS = 40
"""Maximum number of auditors that share an audit."""
ZONES_SETTLE_IN = timedelta(days=1)
"""By then, the occurrences that a new release of the time zone rules has moved have come due."""


@dataclass(frozen=True, slots=True)
class Audit:
    """One pass over all jobs. `after`: the last job that was audited; None at the start of the
    pass. `since`: start of the last completed pass. `end`: of a part of a pass, its last job; None:
    the last of all. `zones`: the release of the time zone rules; `zones_since`: when audits first
    had it; None: from the beginning.
    """

    started_at: datetime
    since: datetime | None = None
    after: JobKey | None = None
    done: bool = False
    end: JobKey | None = None
    zones: str | None = None
    zones_since: datetime | None = None

    def looks_back_to(self, now: datetime, job: Job) -> datetime:
        """The start of the audited period of *job*. In the future: it is not audited.

        A job whose times depend on the rules of a time zone may have runs, and a due entry, at the
        instants of an earlier release: they would look lost now.
        """
        since = max((self.since or self.started_at) - OVERLAP, now - LOOK_BACK_AT_MOST)
        if self.zones_since is None or not job.is_zoned:
            return since
        return max(since, self.zones_since + ZONES_SETTLE_IN)

    def is_overdue(self, now: datetime, every: timedelta) -> bool:
        """Whether the next pass would be due, and this one has not ended."""
        return not self.done and now - self.started_at >= every

    def with_release(self, before: Audit, now: datetime) -> Audit:
        """This pass, by the time zone rules of this process; *before*: the audit before it."""
        if before.zones == release():
            return replace(self, zones=before.zones, zones_since=before.zones_since)
        return replace(self, zones=release(), zones_since=cut(now))

    def moved(self, after: JobKey | None) -> Audit:
        """This pass with *after* as the last audited job; None completes the pass."""
        return replace(self, after=after, done=after is None)


def next_audit(
    was: Audit | None, now: datetime, every: timedelta, *, restart: bool
) -> Audit | None:
    """The audit to continue: an unfinished one, or a new one if the last one started *every* ago or
    earlier; else None. *restart*: always start a new one.
    """
    if was is None:
        return Audit(cut(now), zones=release())
    since = was.started_at if was.done else was.since
    # A start in the future comes from a wrong clock; without this check no audit would follow.
    resting = timedelta() <= now - was.started_at < every
    if restart or (was.done and not resting):
        return Audit(cut(now), since and min(since, cut(now))).with_release(was, now)
    return None if was.done else was.with_release(was, now)
