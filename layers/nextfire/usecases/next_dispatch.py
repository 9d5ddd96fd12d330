"""The due entry of the next dispatch of a run."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job


def next_dispatch(
    job: Job, key: RunKey, at: datetime, dispatch: int, *, again: bool = False
) -> DispatchEntry:
    """The due entry of the dispatch number *dispatch*, in the pool of *job*. *again*: it was due
    before, its watcher was on time, and no attempt was made.
    """
    return DispatchEntry(
        job.key,
        job.uid,
        at,
        key.run_id,
        dispatch,
        job.definition.target.pool,
        rank=job.definition.priority.rank,
        held=again,
        counted=again,
        exclusive=job.exclusive,
    )
