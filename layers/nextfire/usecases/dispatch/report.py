"""What a step of the watcher did, for logs and metrics; and the decided entry of a step."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.due import DueEntry, FireEntry, StoredEntry
from nextfire.domain.due_decisions import Decision, Fire
from nextfire.domain.ids import RunKey
from nextfire.domain.run import Run


@dataclass(frozen=True, slots=True)
class DecidedEntry:
    """A due entry and the decision on it. `sure`: the job was read consistently. `ends`: the run
    that it replaces and the reason, if any.
    """

    stored: StoredEntry
    decision: Decision
    sure: bool = False
    ends: tuple[Run, str] | None = None

    @property
    def entry(self) -> DueEntry:
        return self.stored.entry

    @property
    def tenant(self) -> str:
        return self.stored.entry.job.tenant

    @property
    def had_to_wait(self) -> bool:
        """Whether the run is late because of its pool's queue, its job's turn, its tenant's quota
        or a pause of its job: not because of the watcher.
        """
        resumed = isinstance(self.decision, Fire) and self.decision.resumed_as is not None
        return self.entry.held or resumed

    def marked(self, successor: FireEntry | None, now: datetime) -> FireEntry | None:
        """*successor*, marked as held if it became due by *now* while the run had to wait."""
        if successor is None or successor.at > now or not self.had_to_wait:
            return successor
        return replace(successor, held=True)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A run that was sent, and its lateness. `held_back`: `DecidedEntry.had_to_wait`."""

    run: RunKey
    lateness: timedelta
    reason: str
    held_back: bool = False


@dataclass(frozen=True, slots=True)
class Behind:
    """A group that does not keep up: its oldest cursor is behind by `by`, and its watcher knows
    `backlog` entries that it has not sent.
    """

    by: timedelta
    backlog: int


@dataclass(slots=True)
class TickReport:
    """What one step did. `skipped`: the new records of skipped occurrences; `held_back`: how often
    a due run had to wait in the table; `notes`: entries that were not simply dispatched, and why;
    `behind`: None if the group keeps up.
    """

    dispatched: list[Dispatched] = field(default_factory=list)
    skipped: list[Run] = field(default_factory=list)
    polled: bool = False
    undelivered: int = 0
    held_back: int = 0
    quarantined: int = 0
    notes: list[str] = field(default_factory=list)
    behind: Behind | None = None

    def not_answered(self, stored: StoredEntry, error: Exception, *, late: bool = True) -> None:
        """*stored* waits for a table. If *late*, it counts as undelivered: a run may be late or not
        be sent. The wait of a backfill makes nothing late.
        """
        self.undelivered += late
        self.notes.append(f"{stored.slot.sort_key} waits: {error}")

    def cannot_decide(self, stored: StoredEntry, error: Exception) -> None:
        self.quarantined += 1
        key = stored.slot.sort_key
        self.notes.append(f"cannot decide {key}: {type(error).__name__}: {error}")

    def __iadd__(self, other: TickReport) -> Self:
        self.dispatched += other.dispatched
        self.skipped += other.skipped
        self.held_back += other.held_back
        self.polled = self.polled or other.polled
        self.undelivered += other.undelivered
        self.quarantined += other.quarantined
        self.notes += other.notes
        self.behind = other.behind or self.behind
        return self
