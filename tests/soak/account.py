"""The account of a soak test: figures of job types, delays, and anomalies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from tests.soak.oracle import History

Record = dict[str, Any]


class AnomalyKind(StrEnum):
    """The category of an anomaly. OTHER: neither lost nor done twice."""

    LOST = "LOST"
    DOUBLE = "DOUBLE"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A deviation. `count`: number of occurrences or attempts."""

    wrong: AnomalyKind
    what: str
    job: str
    about: str
    record: Record | None = None
    count: int = 1


@dataclass(slots=True)
class Row:
    """The figures of a job type. `runs`: records of occurrences whose script began."""

    occurrences: int = 0
    runs: int = 0
    attempts: int = 0
    skipped: int = 0
    cancelled: int = 0
    dead: int = 0
    lost: int = 0
    double_effects: int = 0
    repeated: int = 0
    handed_back: int = 0

    def add(self, other: Row) -> None:
        for name in Row.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Lateness:
    """Delays of an occurrence's run since it was due (for occurrences in a pause: since the
    resumption). `apart`: without the time that the stack was down.
    """

    execution_id: str
    dispatched: timedelta | None
    started: timedelta
    dispatched_apart: timedelta | None
    started_apart: timedelta


@dataclass(slots=True)
class Account:
    """The account of all jobs. `repeated_without_kill`: number of attempts whose worker was lost
    although none was killed; `taken_over` names them. `late_without_cause`: runs that began over a
    minute late although nothing was killed or stopped, their pool was not busy, and no earlier run
    of the job delayed them.
    """

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    anomalies: list[Anomaly] = field(default_factory=list)
    lateness: list[Lateness] = field(default_factory=list)
    repeated_without_kill: int = 0
    taken_over: list[str] = field(default_factory=list)
    late_without_cause: list[Lateness] = field(default_factory=list)

    @property
    def total(self) -> Row:
        total = Row()
        for row in self.rows.values():
            total.add(row)
        return total

    @property
    def others(self) -> int:
        return sum(a.count for a in self.anomalies if a.wrong is AnomalyKind.OTHER)

    def check_state(self, history: History, state: str) -> None:
        """Check that a job without further occurrences has the right state."""
        wanted = "CANCELLED" if history.deleted_at else "PAUSED" if history.paused else "COMPLETED"
        if state != wanted:
            job = f"{history.tenant}/{history.job_id}"
            self.anomalies.append(Anomaly(AnomalyKind.OTHER, f"is {state}, not {wanted}", job, ""))
