"""The due entry of the next dispatch of a run."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job


def next_dispatch(
    job: Job, key: RunKey, at: datetime, dispatch: int, *, held: bool = False
) -> DispatchEntry:
    """The due entry of the dispatch number *dispatch*, in the pool of *job*. *held*: it was due
    before, and its watcher was on time.
    """
    return DispatchEntry(
        job.key,
        job.uid,
        at,
        key.run_id,
        dispatch,
        job.definition.target.pool,
        rank=job.definition.priority.rank,
        held=held,
        exclusive=job.exclusive,
    )
