"""Operations on jobs and schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from nextfire.client.operations import Instant, Operations, job_path, pages
from nextfire.client.requests import JobRequest, PreviewRequest, sent, without_none
from nextfire.domain.backfill import Order
from nextfire.domain.occurrences import JobState
from nextfire.responses.executions import ExecutionResponse
from nextfire.responses.jobs import BackfillResponse, JobDetail, JobPage, JobResponse, UpcomingList
from nextfire.responses.many_jobs import BatchResponse, ManyResponse

_ABSENT: Any = object()


class JobOperations(Operations):
    """The methods of `Client` for jobs and schedules."""

    def create_job(
        self, job: JobRequest | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> JobResponse:
        """Create a job from a `JobRequest` or a JSON document in the long or the short form. When
        this returns, the job and its first occurrence are stored.

        Raises:
            Conflict: A job with this id exists.
        """
        return self._post(JobResponse, "/v1/jobs", sent(job), idempotency_key)

    def create_jobs(
        self,
        jobs: Sequence[JobRequest | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> BatchResponse:
        """Create 1 to 100 jobs; see `create_job`. `results` has the outcome of each, in order.
        Invalid jobs do not affect the rest.
        """
        body = {"jobs": [sent(job) for job in jobs]}
        return self._post(BatchResponse, "/v1/jobs:batch", body, idempotency_key)

    def pause_jobs(
        self,
        labels: Mapping[str, str] | None = None,
        *,
        all_jobs: bool = False,
        reason: str | None = None,
        until: Instant | None = None,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> ManyResponse:
        """Pause the jobs that have all *labels*, or *all_jobs*, in several calls: pass the
        `progress_token` of a response to the next call.
        """
        more = {"reason": reason, "until": until, "progressToken": progress_token}
        body = {**_selection(labels, all_jobs=all_jobs), **without_none(more)}
        return self._post(ManyResponse, "/v1/jobs:pause", body, idempotency_key)

    def resume_jobs(
        self,
        labels: Mapping[str, str] | None = None,
        *,
        all_jobs: bool = False,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> ManyResponse:
        """Resume the jobs that have all *labels*, or *all_jobs*; calls as for `pause_jobs`."""
        more = without_none({"progressToken": progress_token})
        body = {**_selection(labels, all_jobs=all_jobs), **more}
        return self._post(ManyResponse, "/v1/jobs:resume", body, idempotency_key)

    def cancel_jobs(
        self,
        labels: Mapping[str, str],
        *,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> ManyResponse:
        """Cancel the jobs that have all *labels* permanently; calls as for `pause_jobs`."""
        body = {"labels": dict(labels), **without_none({"progressToken": progress_token})}
        return self._post(ManyResponse, "/v1/jobs:cancel", body, idempotency_key)

    def list_jobs(
        self,
        *,
        state: JobState | str | None = None,
        label: str | Sequence[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobPage:
        """Return a page of the tenant's jobs, by id. `label`: ``key:value``; a job must have all of
        them. `name`: a prefix of their names. `limit`: 1 to 100.
        """
        query = {"state": state, "label": label, "name": name, "limit": limit, "cursor": cursor}
        return self._read(JobPage, "/v1/jobs", query)

    def jobs(
        self,
        *,
        state: JobState | str | None = None,
        label: str | Sequence[str] | None = None,
        name: str | None = None,
    ) -> Iterator[JobResponse]:
        """Iterate over all jobs that `list_jobs` lists."""
        return pages(partial(self.list_jobs, state=state, label=label, name=name))

    def get_job(self, job_id: str) -> JobDetail:
        """Return a job, with its last run and its next occurrences."""
        return self._read(JobDetail, job_path(job_id))

    def put_job(
        self,
        job_id: str,
        job: JobRequest | Mapping[str, Any],
        *,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> JobResponse:
        """Create the job, or change it to *job*. `if_match`: only if its etag is still this one.
        `if_none_match`: ``*``, only if it does not exist.

        Raises:
            PreconditionFailed: The condition does not hold.
        """
        conditions = {"If-Match": if_match, "If-None-Match": if_none_match}
        return self._send(JobResponse, "PUT", job_path(job_id), sent(job), conditions)

    def change_job(
        self, job_id: str, changes: Mapping[str, Any], *, if_match: str | None = None
    ) -> JobResponse:
        """Apply *changes*, a JSON merge patch (RFC 7396), to a job. None resets a field to its
        default.

        Raises:
            PreconditionFailed: The job has changed since `if_match`.

        Example:
            job = nextfire.get_job("nightly")
            nextfire.change_job("nightly", {"priority": "HIGH"}, if_match=job.etag)
        """
        return self._send(JobResponse, "PATCH", job_path(job_id), changes, {"If-Match": if_match})

    def delete_job(self, job_id: str, *, if_match: str | None = None) -> JobResponse:
        """Cancel a job permanently. Later occurrences do not run; its history is kept."""
        return self._delete(JobResponse, job_path(job_id), {"If-Match": if_match})

    def pause_job(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        until: Instant | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> JobResponse:
        """Pause a job: later occurrences do not run until it is resumed, or until *until*."""
        body = without_none({"reason": reason, "until": until})
        return self._post(JobResponse, f"{job_path(job_id)}/pause", body, idempotency_key, if_match)

    def drain_job(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> JobResponse:
        """Pause a job. It has `draining` until its runs in progress have ended."""
        body = without_none({"reason": reason})
        return self._post(JobResponse, f"{job_path(job_id)}/drain", body, idempotency_key, if_match)

    def resume_job(
        self, job_id: str, *, if_match: str | None = None, idempotency_key: str | None = None
    ) -> JobResponse:
        """Resume a job. Its misfire policy decides which missed occurrences run."""
        return self._post(JobResponse, f"{job_path(job_id)}/resume", {}, idempotency_key, if_match)

    def run_job(
        self,
        job_id: str,
        *,
        payload: Any = _ABSENT,  # noqa: ANN401 — any JSON
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionResponse:
        """Run a job now, in addition to its schedule. `payload`: replaces the job's payload, also
        by None.
        """
        body = without_none({"reason": reason})
        if payload is not _ABSENT:
            body["payload"] = payload
        return self._post(ExecutionResponse, f"{job_path(job_id)}/run", body, idempotency_key)

    def skip_next(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> JobResponse:
        """Skip the job's next occurrence."""
        body = without_none({"reason": reason})
        return self._post(
            JobResponse, f"{job_path(job_id)}/skip-next", body, idempotency_key, if_match
        )

    def undo_skip_next(self, job_id: str, *, if_match: str | None = None) -> JobResponse:
        """Undo the skip of an occurrence."""
        return self._delete(JobResponse, f"{job_path(job_id)}/skip-next", {"If-Match": if_match})

    def begin_backfill(
        self,
        job_id: str,
        *,
        from_: Instant,
        to: Instant,
        max: int | None = None,
        order: Order | str | None = None,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> BackfillResponse:
        """Run the job's past occurrences that have no record, from *from_* (inclusive) to *to*
        (exclusive). Rejected if there are more than *max*.
        """
        body = without_none({"from": from_, "to": to, "max": max, "order": order, "reason": reason})
        path = f"{job_path(job_id)}/backfill"
        return self._post(BackfillResponse, path, body, idempotency_key, if_match)

    def stop_backfill(self, job_id: str, *, if_match: str | None = None) -> JobResponse:
        """Stop the job's backfill: it starts no more runs."""
        return self._delete(JobResponse, f"{job_path(job_id)}/backfill", {"If-Match": if_match})

    def list_upcoming(self, job_id: str, *, count: int | None = None) -> UpcomingList:
        """Return the next *count* occurrences, 1 to 100; empty unless the job is ACTIVE."""
        return self._read(UpcomingList, f"{job_path(job_id)}/upcoming", {"count": count})

    def preview_schedule(
        self,
        schedule: PreviewRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
    ) -> UpcomingList:
        """Return the occurrences that a job with this schedule would have. Stores nothing, so no
        Idempotency-Key is generated.
        """
        path, key = "/v1/schedules/preview", {"Idempotency-Key": idempotency_key}
        return self._send(UpcomingList, "POST", path, sent(schedule), key)


def _selection(labels: Mapping[str, str] | None, *, all_jobs: bool) -> dict[str, Any]:
    return without_none(
        {"labels": None if labels is None else dict(labels), "allJobs": all_jobs or None}
    )
