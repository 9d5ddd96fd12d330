"""Responses about many jobs at once."""

from __future__ import annotations

from nextfire.responses.base import ApiResponse, field
from nextfire.responses.jobs import JobResponse
from nextfire.responses.problems import Problem


class BatchResult(ApiResponse):
    """Result of one job of a batch: the created job or the problem."""

    status: int = field(
        description="201, or the status of the problem, as if the job were created alone."
    )
    job: JobResponse | None
    problem: Problem | None


class BatchResponse(ApiResponse):
    """Results of a batch, in the order of the request."""

    results: list[BatchResult]


class NotChanged(ApiResponse):
    """A job that was not changed, and the reason."""

    job_id: str
    problem: Problem


class ManyResponse(ApiResponse):
    """Result of a bulk operation on labelled jobs. `progressToken`: send it with the next call to
    continue; absent when all jobs are done.
    """

    # of(result, failed)
    matched: int
    changed: int
    failed: list[NotChanged] = field(lambda _, failed: failed)
    progress_token: str | None = field(lambda done, _: done.cursor)
