"""The API of nextfire, as Python calls it."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol, Self, TypeVar

import httpx

from nextfire.client import access
from nextfire.client.access import Auth
from nextfire.client.calls import Caller, Pace, segment
from nextfire.client.errors import ClientError
from nextfire.client.requests import JobRequest, PreviewRequest, given, sent
from nextfire.domain.backfill import Order
from nextfire.domain.keys import Scope
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.responses.base import ApiResponse
from nextfire.responses.endpoints import EndpointPage, EndpointResponse
from nextfire.responses.executions import (
    ExecutionPage,
    ExecutionResponse,
    LogLineResponse,
    LogResponse,
    RedrivenResponse,
)
from nextfire.responses.jobs import (
    BackfillResponse,
    JobDetail,
    JobPage,
    JobResponse,
    UpcomingList,
)
from nextfire.responses.keys import KeyPage, KeyResponse, NewKeyResponse, RotatedResponse
from nextfire.responses.many_jobs import BatchResponse, ManyResponse
from nextfire.responses.meta import Health
from nextfire.responses.quotas import QuotasResponse
from nextfire.responses.scripts import ScriptPage, ScriptResponse, ScriptVersionPage, UploadResponse

TIMEOUT = 30.0
"""Seconds; API Gateway itself gives up on the API after 30."""
RETRIES = 3
CANCEL_CHECK_EVERY = 1.0
"""Seconds between two looks at a log to which nothing was added."""
_PAGE = 100
_LINES = 1000
_ABSENT: Any = object()

A = TypeVar("A", bound=ApiResponse)
Item = TypeVar("Item", bound=ApiResponse)
Item_co = TypeVar("Item_co", bound=ApiResponse, covariant=True)
Instant = datetime | str
"""An aware instant, or its ISO 8601 text."""


class Page(Protocol[Item_co]):
    """One page of a listing."""

    @property
    def items(self) -> Sequence[Item_co]: ...

    @property
    def cursor(self) -> str | None: ...


class Client:
    """A client of one nextfire API. Thread-safe.

    Its methods are the operations of the API, by operation id (docs/reference/api.md). In addition,
    `jobs`, `executions`, `all_executions`, `keys`, `scripts` and `log` iterate over all pages, and
    `push_script` uploads a script. Responses are views of JSON documents
    (`nextfire.responses`).

    Transient failures (429, 502 to 504, a lost connection) are retried with growing delays, at
    least as long as `Retry-After`. POST requests carry an `Idempotency-Key`, by default a new one,
    so that retries take effect once. Requests that cannot be repeated safely (DELETE; a change with
    `if_match`) are retried only if they certainly did not take effect.

    Every method raises `ApiError` if the API rejects the request (by status: `NotFound`,
    `Conflict`, `PreconditionFailed`, `Invalid`, `RateLimited`, `Unauthorized`, `Forbidden`,
    `Unavailable`), `UnreachableError` without a response, and `ClientError` otherwise.

    Example:
        with Client() as nextfire:
            job = nextfire.create_job(
                {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "report"}}
            )
            print(job.job_id, job.next_fire_at)
            for run in nextfire.executions(job.job_id):
                print(run.scheduled_at, run.state)
    """

    def __init__(
        self,
        endpoint: str | None = None,
        key: str | None = None,
        *,
        auth: Auth | str | httpx.Auth | None = None,
        profile: str | None = None,
        region: str | None = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the client; the command `nextfire` uses the same rules.

        Args:
            endpoint: The API's URL, without ``/v1``. Default: ``NEXTFIRE_ENDPOINT``, else the local
                stack of the working folder.
            key: An API key, with its endpoint. Default: ``NEXTFIRE_API_KEY``, else that of the
                user's file for this endpoint (docs/operate/identity.md). The local stack of a
                folder gets its own key only.
            auth: ``keys``, ``iam`` (a SigV4 signature of the caller's AWS credentials) or ``jwt``
                (a token, from ``NEXTFIRE_TOKEN``). Default: ``NEXTFIRE_AUTH``, else the first
                available of keys, jwt, iam.
            profile: The AWS profile used for signing.
            region: The API's AWS region. Default: the one in the endpoint.
            timeout: Seconds for a response. No retry starts later than this after the call.
            retries: Maximum number of retries of a call.
            transport: Replaces the network, for tests.
            sleep: Sleeps between retries.
            monotonic: The clock of `timeout`.

        Raises:
            ClientError: No endpoint, or no credentials.
        """
        stack = None
        if not (endpoint := endpoint or access.from_environment(access.ENDPOINT)):
            stack = access.local_stack()
            endpoint = stack.endpoint if stack else None
        found = access.checked_endpoint(endpoint)
        if stack is not None and (key is not None or isinstance(auth, httpx.Auth)):
            raise ClientError(
                f"`key` or `auth` without an endpoint: the folder selects {found}, which gets its"
                " own key only.",
                'Give the endpoint of the key, too: Client("https://…", key).',
            )
        if not isinstance(auth, httpx.Auth):
            wanted = access.named(auth or (None if key else access.from_environment(access.AUTH)))
            if stack is not None:
                auth = access.of_folder(wanted, stack.key_file, partial(_stack_signature, stack))
            else:
                auth = access.who_calls(
                    found,
                    wanted,
                    key=partial(_key, found, key),
                    sign=partial(_signature, found, profile, region),
                )
        pace = Pace(timeout, retries, sleep, monotonic)
        self._sleep = sleep
        self._caller = Caller(found, auth, pace, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    @property
    def endpoint(self) -> str:
        """The URL of the API."""
        return self._caller.endpoint

    # The API itself

    def get_health(self) -> Health:
        """Return the health and the clock of the API."""
        return self._read(Health, "/v1/health")

    def get_description(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return self._read(ApiResponse, "/v1/openapi.json").document

    # Jobs

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
        labels: Mapping[str, str],
        *,
        reason: str | None = None,
        until: Instant | None = None,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> ManyResponse:
        """Pause the jobs that have all *labels*, in several calls: pass the `progress_token` of a
        response to the next call.
        """
        more = {"reason": reason, "until": until, "progressToken": progress_token}
        body = {"labels": dict(labels), **given(more)}
        return self._post(ManyResponse, "/v1/jobs:pause", body, idempotency_key)

    def resume_jobs(
        self,
        labels: Mapping[str, str],
        *,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> ManyResponse:
        """Resume the jobs that have all *labels*; calls as for `pause_jobs`."""
        body = {"labels": dict(labels), **given({"progressToken": progress_token})}
        return self._post(ManyResponse, "/v1/jobs:resume", body, idempotency_key)

    def cancel_jobs(
        self,
        labels: Mapping[str, str],
        *,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> ManyResponse:
        """Cancel the jobs that have all *labels* permanently; calls as for `pause_jobs`."""
        body = {"labels": dict(labels), **given({"progressToken": progress_token})}
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
        return self._read(JobDetail, _job(job_id))

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
        return self._send(JobResponse, "PUT", _job(job_id), sent(job), conditions)

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
        return self._send(JobResponse, "PATCH", _job(job_id), changes, {"If-Match": if_match})

    def delete_job(self, job_id: str, *, if_match: str | None = None) -> JobResponse:
        """Cancel a job permanently. Later occurrences do not run; its history is kept."""
        return self._delete(JobResponse, _job(job_id), {"If-Match": if_match})

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
        body = given({"reason": reason, "until": until})
        return self._post(JobResponse, f"{_job(job_id)}/pause", body, idempotency_key, if_match)

    def drain_job(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> JobResponse:
        """Pause a job. It has `draining` until its runs in progress have ended."""
        body = given({"reason": reason})
        return self._post(JobResponse, f"{_job(job_id)}/drain", body, idempotency_key, if_match)

    def resume_job(
        self, job_id: str, *, if_match: str | None = None, idempotency_key: str | None = None
    ) -> JobResponse:
        """Resume a job. Its misfire policy decides which missed occurrences run."""
        return self._post(JobResponse, f"{_job(job_id)}/resume", {}, idempotency_key, if_match)

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
        body = given({"reason": reason})
        if payload is not _ABSENT:
            body["payload"] = payload
        return self._post(ExecutionResponse, f"{_job(job_id)}/run", body, idempotency_key)

    def skip_next(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> JobResponse:
        """Skip the job's next occurrence."""
        body = given({"reason": reason})
        return self._post(JobResponse, f"{_job(job_id)}/skip-next", body, idempotency_key, if_match)

    def undo_skip_next(self, job_id: str, *, if_match: str | None = None) -> JobResponse:
        """Undo the skip of an occurrence."""
        return self._delete(JobResponse, f"{_job(job_id)}/skip-next", {"If-Match": if_match})

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
        body = given({"from": from_, "to": to, "max": max, "order": order, "reason": reason})
        path = f"{_job(job_id)}/backfill"
        return self._post(BackfillResponse, path, body, idempotency_key, if_match)

    def stop_backfill(self, job_id: str, *, if_match: str | None = None) -> JobResponse:
        """Stop the job's backfill: it starts no more runs."""
        return self._delete(JobResponse, f"{_job(job_id)}/backfill", {"If-Match": if_match})

    def list_upcoming(self, job_id: str, *, count: int | None = None) -> UpcomingList:
        """Return the next *count* occurrences, 1 to 100; empty unless the job is ACTIVE."""
        return self._read(UpcomingList, f"{_job(job_id)}/upcoming", {"count": count})

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

    # Executions

    def list_executions(
        self, job_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ExecutionPage:
        """Return a page of the job's executions, latest scheduled first. `limit`: 1 to 100."""
        query = {"limit": limit, "cursor": cursor}
        return self._read(ExecutionPage, f"{_job(job_id)}/executions", query)

    def executions(self, job_id: str) -> Iterator[ExecutionResponse]:
        """Iterate over all executions of the job, latest scheduled first."""
        return pages(partial(self.list_executions, job_id))

    def list_all_executions(
        self,
        *,
        state: RunState | str | None = None,
        job_id: str | None = None,
        pool: str | None = None,
        from_: Instant | None = None,
        to: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ExecutionPage:
        """Return a page of executions of all jobs, grouped by job: those scheduled at or after
        *from_* (default: a day before *to*) and before *to* (default: now). With `state` DEAD
        and without `job_id`: those that died in that time, latest death first. `limit`: 1 to
        100.
        """
        query = {"state": state, "jobId": job_id, "pool": pool, "from": from_, "to": to}
        return self._read(
            ExecutionPage, "/v1/executions", {**query, "limit": limit, "cursor": cursor}
        )

    def all_executions(
        self,
        *,
        state: RunState | str | None = None,
        job_id: str | None = None,
        pool: str | None = None,
        from_: Instant | None = None,
        to: Instant | None = None,
    ) -> Iterator[ExecutionResponse]:
        """Iterate over all executions that `list_all_executions` lists."""
        ask = partial(self.list_all_executions, state=state, job_id=job_id, pool=pool)
        return pages(partial(ask, from_=from_, to=to))

    def get_execution(self, execution_id: str) -> ExecutionResponse:
        """Return an execution, or what its occurrence waits for."""
        return self._read(ExecutionResponse, _execution(execution_id))

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
        path = f"{_execution(execution_id)}/cancel"
        return self._post(ExecutionResponse, path, given({"reason": reason}), idempotency_key)

    def redrive_execution(
        self, execution_id: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> ExecutionResponse:
        """Redrive a DEAD execution: it is PENDING again, with new attempts."""
        path = f"{_execution(execution_id)}/redrive"
        return self._post(ExecutionResponse, path, given({"reason": reason}), idempotency_key)

    # Scripts

    def upload_script(
        self,
        handler: str,
        *,
        size: int,
        sha256: str,
        pool: str | None = None,
        signature: str | None = None,
        idempotency_key: str | None = None,
    ) -> UploadResponse:
        """Return where a script of *size* bytes with the digest *sha256* (hexadecimal) can be PUT.
        `push_script` does both. *signature*: base64, stored with the script.
        """
        body = given(
            {
                "handler": handler,
                "size": size,
                "sha256": sha256,
                "pool": pool,
                "signature": signature,
            }
        )
        return self._post(UploadResponse, "/v1/scripts/uploads", body, idempotency_key)

    def push_script(
        self,
        handler: str,
        source: bytes,
        *,
        pool: str | None = None,
        signature: str | None = None,
    ) -> UploadResponse:
        """Upload *source* as the script *handler* of *pool* (default: ``default``). The name of an
        archive includes ``.zip``. *signature*: ed25519, base64.
        """
        digest = hashlib.sha256(source).hexdigest()
        upload = self.upload_script(
            handler, size=len(source), sha256=digest, pool=pool, signature=signature
        )
        self._caller.put(upload.upload_url, upload.headers, source)
        return upload

    def list_scripts(
        self, *, pool: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> ScriptPage:
        """Return a page of the tenant's scripts, by pool and name. `limit`: 1 to 100."""
        query = {"pool": pool, "limit": limit, "cursor": cursor}
        return self._read(ScriptPage, "/v1/scripts", query)

    def scripts(self, *, pool: str | None = None) -> Iterator[ScriptResponse]:
        """Iterate over all scripts that `list_scripts` lists."""
        return pages(partial(self.list_scripts, pool=pool))

    def list_script_versions(
        self, pool: str, handler: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ScriptVersionPage:
        """Return a page of the versions of a script, newest first. `limit`: 1 to 100."""
        path = f"/v1/scripts/{segment(pool)}/{segment(handler)}/versions"
        return self._read(ScriptVersionPage, path, {"limit": limit, "cursor": cursor})

    # Pools

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
        body = given({"from": from_, "to": to, "limit": limit, "cursor": cursor, "reason": reason})
        path = f"/v1/pools/{segment(pool)}/redrive"
        return self._post(RedrivenResponse, path, body, idempotency_key)

    # Endpoints

    def list_endpoints(
        self, *, pool: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> EndpointPage:
        """Return a page of the endpoints that failed or were paused, by pool and destination.
        `limit`: 1 to 100.
        """
        query = {"pool": pool, "limit": limit, "cursor": cursor}
        return self._read(EndpointPage, "/v1/endpoints", query)

    def endpoints(self, *, pool: str | None = None) -> Iterator[EndpointResponse]:
        """Iterate over all endpoints that `list_endpoints` lists."""
        return pages(partial(self.list_endpoints, pool=pool))

    def get_endpoint(self, pool: str, destination: str) -> EndpointResponse:
        """Return an endpoint. *destination*: ``host`` or ``host:port``; the default port is 443."""
        return self._read(EndpointResponse, _endpoint(pool, destination))

    def pause_endpoint(
        self,
        pool: str,
        destination: str,
        *,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> EndpointResponse:
        """Pause an endpoint: executions of the pool that call it wait until it is resumed."""
        path = f"{_endpoint(pool, destination)}/pause"
        return self._post(EndpointResponse, path, given({"reason": reason}), idempotency_key)

    def resume_endpoint(
        self, pool: str, destination: str, *, idempotency_key: str | None = None
    ) -> EndpointResponse:
        """Resume an endpoint that is PAUSED or OPEN."""
        path = f"{_endpoint(pool, destination)}/resume"
        return self._post(EndpointResponse, path, {}, idempotency_key)

    # API keys

    def create_key(
        self,
        name: str,
        scopes: Sequence[Scope | str],
        *,
        expires_in_sec: int | None = None,
        cidrs: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> NewKeyResponse:
        """Create an API key. Its text is in `key`, and returned only once. `cidrs`: networks from
        which it may be used. `labels`: it reaches only jobs with these labels.
        """
        body = given(
            {
                "name": name,
                "scopes": [*map(str, scopes)],
                "expiresInSec": expires_in_sec,
                "cidrs": None if cidrs is None else [*cidrs],
                "labels": None if labels is None else {**labels},
            }
        )
        return self._post(NewKeyResponse, "/v1/keys", body, idempotency_key)

    def list_keys(self, *, limit: int | None = None, cursor: str | None = None) -> KeyPage:
        """Return a page of the tenant's API keys, by id. `limit`: 1 to 100."""
        return self._read(KeyPage, "/v1/keys", {"limit": limit, "cursor": cursor})

    def keys(self) -> Iterator[KeyResponse]:
        """Iterate over all API keys of the tenant, including expired and revoked ones."""
        return pages(self.list_keys)

    def get_key(self, key_id: str) -> KeyResponse:
        """Return an API key, without its text."""
        return self._read(KeyResponse, _api_key(key_id))

    def revoke_key(self, key_id: str) -> KeyResponse:
        """Revoke an API key. Takes effect within a minute."""
        return self._delete(KeyResponse, _api_key(key_id), {})

    def rotate_key(
        self,
        key_id: str,
        *,
        expires_in_sec: int | None = None,
        overlap_sec: int | None = None,
        idempotency_key: str | None = None,
    ) -> RotatedResponse:
        """Create a `new` key like this one, which is `old` and expires after the overlap."""
        body = given({"expiresInSec": expires_in_sec, "overlapSec": overlap_sec})
        return self._post(RotatedResponse, f"{_api_key(key_id)}/rotate", body, idempotency_key)

    # Quotas

    def get_quotas(self) -> QuotasResponse:
        """Return the tenant's quotas and their usage."""
        return self._read(QuotasResponse, "/v1/quotas")

    # How they are sent

    def _read(self, model: type[A], path: str, query: Mapping[str, object] | None = None) -> A:
        return model(*self._caller.call("GET", path, query=given(query or {})))

    def _post(
        self,
        model: type[A],
        path: str,
        body: Mapping[str, Any],
        idempotency_key: str | None,
        if_match: str | None = None,
    ) -> A:
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        if if_match is not None:
            headers["If-Match"] = if_match
        return model(*self._caller.call("POST", path, body=body, headers=headers))

    def _send(
        self,
        model: type[A],
        method: str,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str | None],
    ) -> A:
        sent_headers = given(headers)
        again = not sent_headers.keys() & {"If-Match", "If-None-Match"}
        return model(*self._caller.call(method, path, body=body, headers=sent_headers, again=again))

    def _delete(self, model: type[A], path: str, headers: Mapping[str, str | None]) -> A:
        return model(*self._caller.call("DELETE", path, headers=given(headers), again=False))


def pages(ask: Callable[..., Page[Item]]) -> Iterator[Item]:
    """Iterate over all items of a listing, page by page, with `limit` and `cursor`."""
    cursor = None
    while True:
        page = ask(limit=_PAGE, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if not cursor:
            return


def up_to(limit: int, ask: Callable[..., Page[Item]]) -> tuple[list[Item], bool]:
    """Return the first items of a listing, at most *limit*, and whether more may exist."""
    items: list[Item] = []
    cursor = None
    while len(items) < limit:
        page = ask(limit=min(_PAGE, limit - len(items)), cursor=cursor)
        items += page.items
        cursor = page.cursor
        if not cursor:
            break
    return items, bool(cursor)


def _job(job_id: str) -> str:
    return f"/v1/jobs/{segment(job_id)}"


def _execution(execution_id: str) -> str:
    return f"/v1/executions/{segment(execution_id)}"


def _endpoint(pool: str, destination: str) -> str:
    return f"/v1/endpoints/{segment(pool)}/{segment(destination)}"


def _api_key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"


def _key(endpoint: str, key: str | None) -> str | None:
    if key is not None:
        return access.checked_key(key, "`key`")
    return access.find_key(endpoint, None)


def _stack_signature(stack: access.LocalEndpoint) -> httpx.Auth:
    from nextfire.client import signing  # noqa: PLC0415 — boto3 takes a second

    session = signing.session_of(stack.access_key, stack.secret_key, stack.region)
    return signing.signature(session, stack.endpoint, stack.region)


def _signature(endpoint: str, profile: str | None, region: str | None) -> httpx.Auth:
    from nextfire.client import signing  # noqa: PLC0415 — boto3 takes a second

    return signing.signature(signing.callers_session(profile, region), endpoint, region)
