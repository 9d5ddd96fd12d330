"""List a tenant's jobs, with filters."""

from __future__ import annotations

from collections.abc import Mapping

from nextfire.dataclass import dataclass, field
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Page, Unreadable

PAGES_AT_MOST = 10
"""Pages that one call searches for matching jobs."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs; all conditions must hold. `labels`: these labels, with these values.
    `name`: a prefix of the name; a job without a name matches only the empty prefix. `unreadable`:
    include undecodable items; `readable`: include jobs.
    """

    state: JobState | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    unreadable: bool = True
    readable: bool = True

    def __contains__(self, job: Job) -> bool:
        definition = job.definition
        return (
            self.readable
            and (self.state is None or job.state is self.state)
            and self.labels.items() <= definition.labels.items()
            and (self.name is None or (definition.name or "").startswith(self.name))
        )


def list_jobs(
    jobs: JobStore, tenant: str, wanted: JobFilter, *, cursor: str | None, limit: int
) -> Page[Job]:
    """*tenant*'s jobs that match *wanted*, by id. A page may hold fewer than *limit* items, even
    none, although more follow: a call searches up to `PAGES_AT_MOST` * *limit* jobs.

    Raises:
        InvalidInputError: *cursor* is invalid.
    """
    items: list[Job] = []
    unreadable: list[Unreadable] = []
    for _ in range(PAGES_AT_MOST):
        page = jobs.list(tenant, cursor=cursor, limit=limit)
        items = [job for job in page.items if job in wanted]
        unreadable = [*page.unreadable] if wanted.unreadable else []
        cursor = page.cursor
        if items or unreadable or cursor is None:
            break
    return Page(items, cursor, unreadable)
