"""Operations on executions and their logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf

from nextfire.client.calls import segment
from nextfire.client.errors import NotEndedError
from nextfire.client.operations import Instant, Operations, job_path, pages
from nextfire.client.requests import without_none
from nextfire.domain.redrive_plan import Definition
from nextfire.domain.run import RunState
from nextfire.responses.executions import (
    ExecutionPage,
    ExecutionResponse,
    LogLineResponse,
    LogResponse,
    OverviewResponse,
    RedrivenResponse,
    SequenceCancelResponse,
    SequenceRedriveResponse,
    SequenceResponse,
)

_FIRST_LOOK, _LAST_LOOK = 0.5, 10.0
"""Seconds between the first two looks at an execution, and at most between two of them."""
CANCEL_CHECK_EVERY = 1.0
"""Seconds between two looks at a log to which nothing was added."""
_LINES = 1000


class ExecutionOperations(Operations):
    """The methods of `Client` for executions, their logs and dead ones of a pool."""

    def list_executions(
        self, job_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ExecutionPage:
        """Return a page of the job's executions, latest scheduled first. `limit`: 1 to 100."""
        query = {"limit": limit, "cursor": cursor}
        return self._read(ExecutionPage, f"{job_path(job_id)}/executions", query)

    def executions(self, job_id: str) -> Iterator[ExecutionResponse]:
        """Iterate over all executions of the job, latest scheduled first."""
        return pages(partial(self.list_executions, job_id))

    def list_all_executions(
        self,
        *,
        state: RunState | str | None = None,
        job_id: str | None = None,
        pool: str | None = None,
        label: str | Sequence[str] | None = None,
        from_: Instant | None = None,
        to: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ExecutionPage:
        """Return a page of executions of all jobs, latest change first: those that ended, or else
        started, or else were scheduled, at or after *from_* (default: a day before *to*) and before
        *to* (default: now). With `job_id`: those of the job that were scheduled in that time.

        If the page has no `overview`, they are grouped by job and selected by their scheduled
        instants, except DEAD ones. `label`: ``key:value``; their job must have all of them now;
        a page may be short or empty. `limit`: 1 to 100.
        """
        query = {"state": state, "jobId": job_id, "pool": pool, "label": label}
        page = {"from": from_, "to": to, "limit": limit, "cursor": cursor}
        return self._read(ExecutionPage, "/v1/executions", {**query, **page})

    def all_executions(
        self,
        *,
        state: RunState | str | None = None,
        job_id: str | None = None,
        pool: str | None = None,
        label: str | Sequence[str] | None = None,
        from_: Instant | None = None,
        to: Instant | None = None,
    ) -> Iterator[ExecutionResponse]:
        """Iterate over all executions that `list_all_executions` lists."""
        ask = partial(self.list_all_executions, state=state, job_id=job_id, pool=pool, label=label)
        return pages(partial(ask, from_=from_, to=to))

    def get_overview(self, *, minutes: int | None = None) -> OverviewResponse:
        """Return the numbers of executions of all jobs that are running and waiting, and of those
        that ended in the last *minutes* (1 to 60, default: 15), by minute.
        """
        return self._read(OverviewResponse, "/v1/overview", {"minutes": minutes})

    def get_execution(self, execution_id: str) -> ExecutionResponse:
        """Return an execution, or what its occurrence waits for."""
        return self._read(ExecutionResponse, _execution(execution_id))

    def wait(self, execution_id: str, *, timeout: float | None = None) -> ExecutionResponse:
        """Return the execution once it has ended, in whatever state: look at `state`. It is read at
        once, after 0.5 s, and then in intervals that grow by half, up to 10 s.

        Args:
            execution_id: The execution, as `run_job` returns it.
            timeout: Seconds to wait. Default: no limit.

        Raises:
            NotEndedError: It has not ended in time. It continues.
        """
        begun, interval = self._monotonic(), _FIRST_LOOK
        while not _has_ended(execution := self.get_execution(execution_id)):
            left = inf if timeout is None else begun + timeout - self._monotonic()
            if left <= 0:
                raise NotEndedError(execution_id, execution.state, timeout or 0)
            self._sleep(min(interval, left))
            interval = min(interval * 1.5, _LAST_LOOK)
        return execution

    def get_chain(self, execution_id: str) -> SequenceResponse:
        """Return the executions of the sequence that this execution belongs to, each after its
        parents.
        """
        return self._read(SequenceResponse, f"{_execution(execution_id)}/chain")

    def cancel_chain(
        self,
        execution_id: str,
        *,
        dry_run: bool | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> SequenceCancelResponse:
        """Cancel an execution and all executions below it in its sequence that have not ended.
        *dry_run*: return the plan and change nothing.
        """
        body = without_none({"dryRun": dry_run, "reason": reason})
        path = f"{_execution(execution_id)}/chain/cancel"
        return self._post(SequenceCancelResponse, path, body, idempotency_key)

    def redrive_chain(
        self,
        execution_id: str,
        *,
        from_: str,
        downstream: bool | None = None,
        definition: Definition | str | None = None,
        dry_run: bool | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> SequenceRedriveResponse:
        """Start executions of the sequence that this execution belongs to again, from the job
        *from_* on. Those that succeeded stay. *downstream*: below it, dead ones
        and those that an executor skipped start again too. *definition*: "run" refuses with a
        conflict if a job that starts again has changed what it does since its run started.
        *dry_run*: return the plan and change nothing.
        """
        body = {
            "from": from_,
            "downstream": downstream,
            "definition": definition,
            "dryRun": dry_run,
            "reason": reason,
        }
        path = f"{_execution(execution_id)}/chain/redrive"
        return self._post(SequenceRedriveResponse, path, without_none(body), idempotency_key)

    def read_log(
        self,
        execution_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> LogResponse:
        """Return the next lines of the log. `limit`: 1 to 1000. `attempt`: only this attempt."""
        query = {"cursor": cursor, "limit": limit, "attempt": attempt}
        return self._read(LogResponse, f"{_execution(execution_id)}/logs", query)

    def log(
        self, execution_id: str, *, attempt: int | None = None, follow: bool = False
    ) -> Iterator[LogLineResponse]:
        """Iterate over the lines of the log; with *follow* until the execution has ended."""
        cursor = None
        while True:
            page = self.read_log(execution_id, cursor=cursor, limit=_LINES, attempt=attempt)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return
            if not page.items and not page.ended:
                if not follow:
                    return
                self._sleep(CANCEL_CHECK_EVERY)

    def cancel_execution(
        self, execution_id: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> ExecutionResponse:
        """Cancel an execution. A running script is ended by its worker within seconds."""
        return self._act_on(execution_id, "cancel", reason, idempotency_key)

    def redrive_execution(
        self, execution_id: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> ExecutionResponse:
        """Redrive a DEAD execution: it is PENDING again, with new attempts. Or make the next
        attempt of a PENDING one now, which waits until its `retry_at`.
        """
        return self._act_on(execution_id, "redrive", reason, idempotency_key)

    def replay_execution(
        self, execution_id: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> ExecutionResponse:
        """Start an execution that sends the latest request of an HTTP callback again."""
        return self._act_on(execution_id, "replay", reason, idempotency_key)

    def _act_on(
        self, execution_id: str, what: str, reason: str | None, idempotency_key: str | None
    ) -> ExecutionResponse:
        path = f"{_execution(execution_id)}/{what}"
        return self._post(
            ExecutionResponse, path, without_none({"reason": reason}), idempotency_key
        )

    def redrive_pool(
        self,
        pool: str,
        *,
        from_: Instant | None = None,
        to: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> RedrivenResponse:
        """Redrive up to *limit* (1 to 100) dead executions of a pool. Pass the `cursor` of the
        response to the next call to continue.
        """
        body = without_none(
            {"from": from_, "to": to, "limit": limit, "cursor": cursor, "reason": reason}
        )
        path = f"/v1/pools/{segment(pool)}/redrive"
        return self._post(RedrivenResponse, path, body, idempotency_key)


def _has_ended(execution: ExecutionResponse) -> bool:
    return execution.state not in {state for state in RunState if not state.ended}


def _execution(execution_id: str) -> str:
    return f"/v1/executions/{segment(execution_id)}"
