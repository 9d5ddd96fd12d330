"""Filters lists of runs by the labels of their jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from nextfire.dataclass import dataclass, replace
from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.overview import OverviewPage
from nextfire.domain.ports.pages import Page
from nextfire.domain.run import Run
from nextfire.usecases.list_runs import RunListing

PAGES_AT_MOST = 5
"""Maximum number of pages of a list that one call reads, if none of their runs match."""
_Page = TypeVar("_Page", Page[Run], OverviewPage, RunListing)


@dataclass(frozen=True, slots=True)
class LabelledRuns:
    """Runs of the *jobs* that have all *labels* now. No labels: all runs.

    Runs do not have the labels of their jobs, so the jobs of each page are read, in one batch.
    """

    jobs: JobStore
    labels: Mapping[str, str]

    def page(
        self,
        find: Callable[..., _Page],
        *,
        cursor: str | None,
        limit: int,
        pages: int = PAGES_AT_MOST,
    ) -> _Page:
        """The first page of *find* from *cursor* that has such runs, without its other runs; the
        last of *pages* if none of them has. With labels, unreadable records are left out: it is
        unknown which job with this id they are of.

        Raises:
            UnavailableError: The store did not return a job.
        """
        page = find(cursor=cursor, limit=limit)
        if not self.labels:
            return page
        items = self._of_labels(page.items)
        for _ in range(pages - 1):
            if items or page.cursor is None:
                break
            page = find(cursor=page.cursor, limit=limit)
            items = self._of_labels(page.items)
        return replace(page, items=items, unreadable=[])

    def _of_labels(self, runs: Sequence[Run]) -> list[Run]:
        jobs = self.jobs.get_many({run.key.job for run in runs}) if runs else {}
        return [run for run in runs if self._has(run, jobs.get(run.key.job))]

    def _has(self, run: Run, job: Job | Exception | None) -> bool:
        """Whether *job*, as read, has the labels and is that of *run*: not a later one with the
        same id.
        """
        if isinstance(job, UnavailableError):
            raise job
        return (
            isinstance(job, Job)
            and job.uid == run.key.uid
            and self.labels.items() <= job.definition.labels.items()
        )
