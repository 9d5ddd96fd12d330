"""What a step of the watcher did, for logs and metrics; and the decided entry of a step."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from nextfire.dataclass import dataclass, field
from nextfire.domain.due import DueEntry, StoredEntry
from nextfire.domain.due_decisions import Decision
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


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A run that was sent, and its lateness. `held_back`: it is late because it waited for its
    pool's queue, its job's turn or its tenant's quota.
    """

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
