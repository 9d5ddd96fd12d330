"""What a system has stored when it has come to rest, to be judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from nextfire.domain.due import DueEntry
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.run import Run


@dataclass(frozen=True)
class Records:
    """The records of runs."""

    all: Mapping[RunKey, Run]


@dataclass(frozen=True)
class Snapshot:
    """All that is stored; `SystemState`."""

    now: datetime
    jobs: Mapping[JobKey, Job]
    runs: Records
    entries: Collection[DueEntry]

    def job(self, key: JobKey) -> Job:
        return self.jobs[key]
