"""What an audit did and found, and how the results of its visits are collected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Self, TypeVar

from nextfire.dataclass import dataclass, field
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job

T = TypeVar("T")


@dataclass(slots=True)
class AuditReport:
    """What was done. Repairs: `restored` chains, `resent` runs that had no record, occurrences
    `covered` by a record of their skip, `revived` runs whose message was lost, and `completed` jobs
    whose last run had ended.

    `waiting`: runs without a record or without a worker that may still be in a queue. `behind`:
    jobs that were not judged because their shard's watcher is behind, or because their shard takes
    long to read. `quarantined`: undecodable jobs and records. `removed`: jobs in a final state
    whose retention had ended; not a repair. `done`: no audit is unfinished. `overdue`: the audit
    has not ended, and the next one is due.
    """

    jobs: int = 0
    restored: int = 0
    resent: int = 0
    covered: int = 0
    revived: int = 0
    completed: int = 0
    waiting: int = 0
    behind: int = 0
    quarantined: int = 0
    removed: int = 0
    done: bool = False
    overdue: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def repaired(self) -> int:
        return self.restored + self.resent + self.covered + self.revived + self.completed

    def __iadd__(self, other: AuditReport) -> Self:
        for name in set(self.__slots__) - {"done", "overdue"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.done, self.overdue = other.done, other.overdue
        return self


@dataclass(slots=True)
class Visits:
    """Results of the visits of a page's jobs. One job's error does not affect the others."""

    jobs: Collection[Job]
    report: AuditReport
    unfinished: set[JobKey] = field(default_factory=set)

    def of(self, futures: Mapping[JobKey, Future[T]]) -> dict[JobKey, T]:
        """The results of the calls that succeeded."""
        found: dict[JobKey, T] = {}
        for key, future in futures.items():
            try:
                found[key] = future.result()
            except UnavailableError as error:
                self.unfinished.add(key)
                self.report.notes.append(f"{label(key)}: {error}")
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                self.report.quarantined += 1
                self.report.notes.append(f"{label(key)}: {type(error).__name__}: {error}")
        return found


def label(key: JobKey) -> str:
    return f"{key.tenant}/{key.job_id}"
