"""Find runs among those of a tenant's jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JOB_ID, JobKey
from nextfire.domain.ports import JobStore, RunStore, Unreadable
from nextfire.domain.run import Run, RunState

READS_AT_MOST = 50
"""Reads of the stores by one call."""
_ENOUGH = 250_000
"""Characters that a page holds before no further job is looked at. One read is 1 MB at most, so a
page stays far below the 6 MB that a function may answer.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs: those scheduled from `first` on and before `before`, and all else has to hold,
    too. `job_id`: of one job only. `unreadable`: also, or only, what does not decode.
    """

    first: datetime
    before: datetime
    job_id: str | None = None
    state: RunState | None = None
    pool: str | None = None
    unreadable: bool = True
    readable: bool = True

    def __contains__(self, run: Run) -> bool:
        return (
            self.readable
            and (self.state is None or run.state is self.state)
            and (self.pool is None or run.pool == self.pool)
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Some of a listing: job by job, in the order of their ids, the newest of each first."""

    items: Sequence[Run]
    cursor: str | None
    unreadable: Sequence[tuple[JobKey, Unreadable]]


def list_runs(
    jobs: JobStore, runs: RunStore, tenant: str, wanted: Wanted, *, cursor: str | None, limit: int
) -> Found:
    """*tenant*'s runs that are *wanted*. There is no index by time that each run would pay for: job
    after job is looked at. A page may hold fewer than *limit*, and none, though others follow: a
    call makes `READS_AT_MOST` reads.

    Raises:
        InvalidInputError: *cursor* is none of ours.
    """
    after, within = (None, None) if cursor is None else _read(cursor, wanted)
    # Jobs that are known and not done with; `more`: perhaps others follow.
    ids, more = ([after] if after and within else []), wanted.job_id is None
    if wanted.job_id is not None and cursor is None:
        ids = [wanted.job_id]
    items: list[Run] = []
    unreadable: list[tuple[JobKey, Unreadable]] = []
    size = 0
    for read in range(READS_AT_MOST):
        left = limit - len(items) - len(unreadable)
        if left <= 0 or size >= _ENOUGH or not (ids or more):
            break
        if not ids:
            most = READS_AT_MOST - read
            ids = [*jobs.ids(tenant, after=after, limit=most)]
            more = len(ids) == most
            continue
        key = JobKey(tenant, ids[0])
        page = runs.list(key, cursor=within, limit=left, first=wanted.first, before=wanted.before)
        found = [run for run in page.items if run in wanted]
        items += found
        size += sum(map(_size, found))
        if wanted.unreadable:
            unreadable += [(key, each) for each in page.unreadable]
        within = page.cursor
        if within is None:
            after = ids.pop(0)
    end = f"{ids[0]}.{within}" if within else f"{after}."
    return Found(items, end if ids or more else None, unreadable)


def _read(cursor: str, wanted: Wanted) -> tuple[str, str | None]:
    """The job that *cursor* names, and the store's cursor within it; None: all of it is done."""
    job_id, dot, within = cursor.partition(".")
    if not dot or not JOB_ID.fullmatch(job_id) or wanted.job_id not in {None, job_id}:
        raise InvalidInputError(
            "cursor", cursor, "not a cursor of this listing", "Use one as a listing returned it."
        )
    return job_id, within or None


def _size(run: Run) -> int:
    """About how many characters *run* is as a document."""
    result = run.result.text if run.result else None
    texts = (run.stdout, run.stderr, run.payload, result)
    return 1000 + 200 * len(run.attempts) + sum(len(text) for text in texts if text)
