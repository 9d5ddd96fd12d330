"""List the runs of a tenant's jobs, with filters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.errors import invalid_cursor
from nextfire.domain.ids import JOB_ID, JobKey
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Unreadable
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState

READS_AT_MOST = 50
"""Maximum number of store reads of one call."""
PAGE_CHARACTERS = 250_000
"""Characters in a page after which it ends. A run has far fewer, and one read returns 1 MB at most,
so a page stays below the 6 MB limit of a function's response.
"""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A filter of runs; all conditions must hold. Runs are scheduled at or after `first` and before
    `before`. `job_id`: only this job. `unreadable`: include undecodable items; `readable`: include
    runs.
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
class RunListing:
    """One page of a listing: jobs in the order of their ids, the newest runs of each first."""

    items: Sequence[Run]
    cursor: str | None
    unreadable: Sequence[tuple[JobKey, Unreadable]]


def list_runs(
    jobs: JobStore,
    runs: RunStore,
    tenant: str,
    wanted: RunFilter,
    *,
    cursor: str | None,
    limit: int,
) -> RunListing:
    """*tenant*'s runs that match *wanted*. An index by time would cost a write for each run, so one
    job after another is read. A page may hold fewer than *limit* items, even none, although more
    follow: a call makes up to `READS_AT_MOST` reads.

    Raises:
        InvalidInputError: *cursor* is invalid.
    """
    after, within = (None, None) if cursor is None else _read(cursor, wanted)
    # Known jobs that are not finished; `more`: others may follow.
    ids, more = ([after] if after and within else []), wanted.job_id is None
    if wanted.job_id is not None and cursor is None:
        ids = [wanted.job_id]
    items: list[Run] = []
    unreadable: list[tuple[JobKey, Unreadable]] = []
    size = 0
    for read in range(READS_AT_MOST):
        left = limit - len(items) - len(unreadable)
        if left <= 0 or size >= PAGE_CHARACTERS or not (ids or more):
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
        size += sum(map(characters, found))
        if wanted.unreadable:
            unreadable += [(key, each) for each in page.unreadable]
        within = page.cursor
        if within is None:
            after = ids.pop(0)
    end = f"{ids[0]}.{within}" if within else f"{after}."
    return RunListing(items, end if ids or more else None, unreadable)


def _read(cursor: str, wanted: RunFilter) -> tuple[str, str | None]:
    """The job that *cursor* names, and the store's cursor within it; None: the job is finished."""
    job_id, dot, within = cursor.partition(".")
    if not dot or not JOB_ID.fullmatch(job_id) or wanted.job_id not in {None, job_id}:
        raise invalid_cursor(cursor)
    return job_id, within or None


def that_fit(runs: Sequence[Run]) -> int:
    """How many of *runs* a page holds: at least one, up to the first that exceeds its size."""
    left = PAGE_CHARACTERS
    for number, run in enumerate(runs, start=1):
        left -= characters(run)
        if left <= 0:
            return number
    return len(runs)


def characters(run: Run) -> int:
    """Approximate number of characters of *run* as a document."""
    result = run.result.text if run.result else None
    texts = (run.stdout, run.stderr, run.payload, result)
    return 1000 + 200 * len(run.attempts) + sum(len(text) for text in texts if text)
