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
from nextfire.client.models import (
    Answer,
    Backfill,
    Batch,
    Execution,
    ExecutionPage,
    Health,
    Job,
    JobDetail,
    JobPage,
    JobRequest,
    Key,
    KeyPage,
    Log,
    LogLine,
    Many,
    NewKey,
    PreviewRequest,
    Quotas,
    Redriven,
    Rotated,
    Script,
    ScriptPage,
    ScriptVersionPage,
    UpcomingList,
    Upload,
    given,
    sent,
)
from nextfire.domain.backfill import Order
from nextfire.domain.job import JobState
from nextfire.domain.keys import Scope
from nextfire.domain.run import RunState

TIMEOUT = 30.0
"""Seconds; API Gateway itself gives up on the API after 30."""
RETRIES = 3
CANCEL_CHECK_EVERY = 1.0
"""Seconds between two looks at a log to which nothing was added."""
_PAGE = 100
_LINES = 1000
_ABSENT: Any = object()

A = TypeVar("A", bound=Answer)
Item = TypeVar("Item", bound=Answer)
Item_co = TypeVar("Item_co", bound=Answer, covariant=True)
Instant = datetime | str
"""An aware instant, or its ISO 8601 text."""


class Page(Protocol[Item_co]):
    """Some of a listing."""

    @property
    def items(self) -> Sequence[Item_co]: ...

    @property
    def cursor(self) -> str | None: ...


class Client:
    """Calls one nextfire API. It may be used by several threads at once.

    Its methods are the API's operations, by their ids (docs/reference/api.md); and `jobs`,
    `executions`, `all_executions`, `keys`, `scripts`, `log`, which go through all pages; and
    `push_script`.
    Answers are views of JSON documents (`nextfire.client.models`).

    What fails in passing (429, 502 to 504, a lost connection) is tried again by itself, with
    growing waits, at least as long as the answer asks for. A POST bears an `Idempotency-Key`, by
    default a new one, so that it is done once however often it is sent. What cannot be repeated
    without another answer (a DELETE; a change with `if_match`) is sent again only if it certainly
    was not carried out.

    Every method raises `ApiError` where the API refuses (by status: `NotFound`, `Conflict`,
    `PreconditionFailed`, `Invalid`, `RateLimited`, `Unauthorized`, `Forbidden`, `Unavailable`),
    `UnreachableError` where no answer comes, else `ClientError`.

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
        """Finds out where the API is and what says who calls, as the command `nextfire` does.

        Args:
            endpoint: The API's URL, without ``/v1``. Default: ``NEXTFIRE_ENDPOINT``, else the local
                stack of the working folder.
            key: An API key, with its endpoint. Default: ``NEXTFIRE_API_KEY``, else that of the
                user's file for this endpoint (docs/operate/identity.md). The local stack of a
                folder gets its own key only.
            auth: ``keys``, ``iam`` (a SigV4 signature of the caller's AWS credentials) or ``jwt``
                (a token, from ``NEXTFIRE_TOKEN``). Default: ``NEXTFIRE_AUTH``, else what there is,
                in the order keys, jwt, iam.
            profile: The AWS profile that signs.
            region: The API's AWS region. Default: the one that the endpoint tells.
            timeout: Seconds for an answer; no retry begins later than that after a call's begin.
            retries: How often a call is tried again, at most.
            transport: Stands in for the network.
            sleep: Waits between tries.
            monotonic: The clock of `timeout`.

        Raises:
            ClientError: It is not known where the API is, or what says who calls.
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
        """Close its connections."""
        self._caller.close()

    @property
    def endpoint(self) -> str:
        """Where the API is."""
        return self._caller.endpoint

    # The API itself

    def get_health(self) -> Health:
        """Whether the API is there, and its clock."""
        return self._read(Health, "/v1/health")

    def get_description(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return self._read(Answer, "/v1/openapi.json").document

    # Jobs

    def create_job(
        self, job: JobRequest | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Job:
        """A new job, as a `JobRequest` or as its JSON document in the long or the short form. When
        this returns, the job is stored, and its first occurrence with it.

        Raises:
            Conflict: There is a job of that id.
        """
        return self._post(Job, "/v1/jobs", sent(job), idempotency_key)

    def create_jobs(
        self,
        jobs: Sequence[JobRequest | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> Batch:
        """1 to 100 new jobs, each as `create_job` takes it. What became of each is in `results`, in
        their order: one that is bad hinders no other.
        """
        body = {"jobs": [sent(job) for job in jobs]}
        return self._post(Batch, "/v1/jobs:batch", body, idempotency_key)

    def pause_jobs(
        self,
        labels: Mapping[str, str],
        *,
        reason: str | None = None,
        until: Instant | None = None,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Many:
        """Pause the jobs that have all *labels*, some of them a call: with the answer's
        `progress_token` the next call goes on.
        """
        more = {"reason": reason, "until": until, "progressToken": progress_token}
        body = {"labels": dict(labels), **given(more)}
        return self._post(Many, "/v1/jobs:pause", body, idempotency_key)

    def resume_jobs(
        self,
        labels: Mapping[str, str],
        *,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Many:
        """Resume the jobs that have all *labels*, as `pause_jobs` pauses them."""
        body = {"labels": dict(labels), **given({"progressToken": progress_token})}
        return self._post(Many, "/v1/jobs:resume", body, idempotency_key)

    def cancel_jobs(
        self,
        labels: Mapping[str, str],
        *,
        progress_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Many:
        """Cancel the jobs that have all *labels* for good, as `pause_jobs` pauses them."""
        body = {"labels": dict(labels), **given({"progressToken": progress_token})}
        return self._post(Many, "/v1/jobs:cancel", body, idempotency_key)

    def list_jobs(
        self,
        *,
        state: JobState | str | None = None,
        label: str | Sequence[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobPage:
        """A page of the tenant's jobs, by id. `label`: ``key:value``; of several: all. `name`: how
        their names begin. `limit`: 1 to 100.
        """
        query = {"state": state, "label": label, "name": name, "limit": limit, "cursor": cursor}
        return self._read(JobPage, "/v1/jobs", query)

    def jobs(
        self,
        *,
        state: JobState | str | None = None,
        label: str | Sequence[str] | None = None,
        name: str | None = None,
    ) -> Iterator[Job]:
        """All jobs that `list_jobs` would list."""
        return pages(partial(self.list_jobs, state=state, label=label, name=name))

    def get_job(self, job_id: str) -> JobDetail:
        """The job, with its last run and its next occurrences."""
        return self._read(JobDetail, _job(job_id))

    def put_job(
        self,
        job_id: str,
        job: JobRequest | Mapping[str, Any],
        *,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> Job:
        """The job as it is to be: created, or changed to it. `if_match`: only if it is still what
        that `etag` was of. `if_none_match`: ``*``, only if there is none.

        Raises:
            PreconditionFailed: It is not so.
        """
        conditions = {"If-Match": if_match, "If-None-Match": if_none_match}
        return self._send(Job, "PUT", _job(job_id), sent(job), conditions)

    def change_job(
        self, job_id: str, changes: Mapping[str, Any], *, if_match: str | None = None
    ) -> Job:
        """The job with *changes*, a JSON merge patch (RFC 7396) of its document: None takes a field
        back to its default.

        Raises:
            PreconditionFailed: It is not what the etag `if_match` was of.

        Example:
            job = nextfire.get_job("nightly")
            nextfire.change_job("nightly", {"priority": "HIGH"}, if_match=job.etag)
        """
        return self._send(Job, "PATCH", _job(job_id), changes, {"If-Match": if_match})

    def delete_job(self, job_id: str, *, if_match: str | None = None) -> Job:
        """Cancel the job for good. What is due later does not run; its history stays."""
        return self._delete(Job, _job(job_id), {"If-Match": if_match})

    def pause_job(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        until: Instant | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """The job, PAUSED: nothing due later runs, until it is resumed, or *until* then."""
        body = given({"reason": reason, "until": until})
        return self._post(Job, f"{_job(job_id)}/pause", body, idempotency_key, if_match)

    def drain_job(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """The job, PAUSED: DRAINING until what was under way has ended."""
        body = given({"reason": reason})
        return self._post(Job, f"{_job(job_id)}/drain", body, idempotency_key, if_match)

    def resume_job(
        self, job_id: str, *, if_match: str | None = None, idempotency_key: str | None = None
    ) -> Job:
        """The job, ACTIVE again; its misfire policy decides over what was due in the pause."""
        return self._post(Job, f"{_job(job_id)}/resume", {}, idempotency_key, if_match)

    def run_job(
        self,
        job_id: str,
        *,
        payload: Any = _ABSENT,  # noqa: ANN401 — any JSON
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Execution:
        """The execution of a job that runs now, beside its schedule. `payload`: in place of the
        job's; None, too.
        """
        body = given({"reason": reason})
        if payload is not _ABSENT:
            body["payload"] = payload
        return self._post(Execution, f"{_job(job_id)}/run", body, idempotency_key)

    def skip_next(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """The job, of which the next occurrence will not run."""
        body = given({"reason": reason})
        return self._post(Job, f"{_job(job_id)}/skip-next", body, idempotency_key, if_match)

    def undo_skip_next(self, job_id: str, *, if_match: str | None = None) -> Job:
        """The job, of which that occurrence will run after all."""
        return self._delete(Job, f"{_job(job_id)}/skip-next", {"If-Match": if_match})

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
    ) -> Backfill:
        """The backfill that goes on: the job's occurrences of the past, from `from_` on and before
        `to`, run if they have no record. More than `max` are refused.
        """
        body = given({"from": from_, "to": to, "max": max, "order": order, "reason": reason})
        return self._post(Backfill, f"{_job(job_id)}/backfill", body, idempotency_key, if_match)

    def stop_backfill(self, job_id: str, *, if_match: str | None = None) -> Job:
        """The job, whose backfill begins nothing more."""
        return self._delete(Job, f"{_job(job_id)}/backfill", {"If-Match": if_match})

    def list_upcoming(self, job_id: str, *, count: int | None = None) -> UpcomingList:
        """The job's next occurrences, *count* of them: 1 to 100; none unless it is ACTIVE."""
        return self._read(UpcomingList, f"{_job(job_id)}/upcoming", {"count": count})

    def preview_schedule(
        self,
        schedule: PreviewRequest | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
    ) -> UpcomingList:
        """The occurrences that a job with this schedule would have. Nothing is stored, so no
        Idempotency-Key is made up.
        """
        path, key = "/v1/schedules/preview", {"Idempotency-Key": idempotency_key}
        return self._send(UpcomingList, "POST", path, sent(schedule), key)

    # Executions

    def list_executions(
        self, job_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ExecutionPage:
        """A page of the job's executions, the latest scheduled first. `limit`: 1 to 100."""
        query = {"limit": limit, "cursor": cursor}
        return self._read(ExecutionPage, f"{_job(job_id)}/executions", query)

    def executions(self, job_id: str) -> Iterator[Execution]:
        """All executions of the job, the latest scheduled first."""
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
        """A page of executions across jobs: those scheduled from *from_* (default: a day before
        *to*) and before *to* (default: now), job by job. With `state` DEAD and no `job_id`: those
        that died in that time, the latest death first. `limit`: 1 to 100.
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
    ) -> Iterator[Execution]:
        """All that `list_all_executions` would list."""
        ask = partial(self.list_all_executions, state=state, job_id=job_id, pool=pool)
        return pages(partial(ask, from_=from_, to=to))

    def get_execution(self, execution_id: str) -> Execution:
        """The execution, or what its occurrence waits for."""
        return self._read(Execution, _execution(execution_id))

    def read_log(
        self,
        execution_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> Log:
        """The next lines of the execution's log. `limit`: 1 to 1000. `attempt`: only of that."""
        query = {"cursor": cursor, "limit": limit, "attempt": attempt}
        return self._read(Log, f"{_execution(execution_id)}/logs", query)

    def log(
        self, execution_id: str, *, attempt: int | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """The lines there are; with *follow* also those to come, until the execution has ended."""
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
    ) -> Execution:
        """The execution, CANCELLED; or RUNNING still, and its worker will end it in seconds."""
        path = f"{_execution(execution_id)}/cancel"
        return self._post(Execution, path, given({"reason": reason}), idempotency_key)

    def redrive_execution(
        self, execution_id: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> Execution:
        """The DEAD execution, PENDING again with new attempts."""
        path = f"{_execution(execution_id)}/redrive"
        return self._post(Execution, path, given({"reason": reason}), idempotency_key)

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
    ) -> Upload:
        """Where a script of *size* bytes and that digest (hexadecimal) may be PUT. `push_script`
        does both. *signature*: in base64, stored with it.
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
        return self._post(Upload, "/v1/scripts/uploads", body, idempotency_key)

    def push_script(
        self,
        handler: str,
        source: bytes,
        *,
        pool: str | None = None,
        signature: str | None = None,
    ) -> Upload:
        """Have *source* be the script that jobs of *pool* (default: ``default``) call *handler*; an
        archive is called by its name with ``.zip``. *signature*: ed25519, in base64.
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
        """A page of the tenant's scripts, by pool and name. `limit`: 1 to 100."""
        query = {"pool": pool, "limit": limit, "cursor": cursor}
        return self._read(ScriptPage, "/v1/scripts", query)

    def scripts(self, *, pool: str | None = None) -> Iterator[Script]:
        """All scripts that `list_scripts` would list."""
        return pages(partial(self.list_scripts, pool=pool))

    def list_script_versions(
        self, pool: str, handler: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ScriptVersionPage:
        """A page of the versions of a script, the latest first. `limit`: 1 to 100."""
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
    ) -> Redriven:
        """Redrive up to *limit* (1 to 100) of the pool's dead executions; with the answer's
        `cursor` it goes on.
        """
        body = given({"from": from_, "to": to, "limit": limit, "cursor": cursor, "reason": reason})
        return self._post(Redriven, f"/v1/pools/{segment(pool)}/redrive", body, idempotency_key)

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
    ) -> NewKey:
        """A new API key; its text is in `key`, and shown this once. `cidrs`: the networks it may be
        used from. `labels`: the labels that a job must have to be reached with it.
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
        return self._post(NewKey, "/v1/keys", body, idempotency_key)

    def list_keys(self, *, limit: int | None = None, cursor: str | None = None) -> KeyPage:
        """A page of the tenant's API keys, by id. `limit`: 1 to 100."""
        return self._read(KeyPage, "/v1/keys", {"limit": limit, "cursor": cursor})

    def keys(self) -> Iterator[Key]:
        """All API keys of the tenant, those that are good no more included."""
        return pages(self.list_keys)

    def get_key(self, key_id: str) -> Key:
        """The API key, without its text."""
        return self._read(Key, _api_key(key_id))

    def revoke_key(self, key_id: str) -> Key:
        """The API key, REVOKED: within a minute it opens nothing."""
        return self._delete(Key, _api_key(key_id), {})

    def rotate_key(
        self,
        key_id: str,
        *,
        expires_in_sec: int | None = None,
        overlap_sec: int | None = None,
        idempotency_key: str | None = None,
    ) -> Rotated:
        """A `new` key like this one, the `old`, which ends after the overlap."""
        body = given({"expiresInSec": expires_in_sec, "overlapSec": overlap_sec})
        return self._post(Rotated, f"{_api_key(key_id)}/rotate", body, idempotency_key)

    # Quotas

    def get_quotas(self) -> Quotas:
        """What the tenant may have at most, and what it uses of that."""
        return self._read(Quotas, "/v1/quotas")

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
        told = given(headers)
        again = not told.keys() & {"If-Match", "If-None-Match"}
        return model(*self._caller.call(method, path, body=body, headers=told, again=again))

    def _delete(self, model: type[A], path: str, headers: Mapping[str, str | None]) -> A:
        return model(*self._caller.call("DELETE", path, headers=given(headers), again=False))


def pages(ask: Callable[..., Page[Item]]) -> Iterator[Item]:
    """All items of a listing, asked for page by page with `limit` and `cursor`."""
    cursor = None
    while True:
        page = ask(limit=_PAGE, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if not cursor:
            return


def up_to(limit: int, ask: Callable[..., Page[Item]]) -> tuple[list[Item], bool]:
    """A listing's first items, at most *limit*, and whether there may be more."""
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


def _api_key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"


def _key(endpoint: str, key: str | None) -> str | None:
    if key is not None:
        return access.checked_key(key, "`key`")
    return access.find_key(endpoint, None)


def _stack_signature(stack: access.LocalStack) -> httpx.Auth:
    from nextfire.client import signing  # noqa: PLC0415 — boto3 takes a second

    session = signing.session_of(stack.access_key, stack.secret_key, stack.region)
    return signing.signature(session, stack.endpoint, stack.region)


def _signature(endpoint: str, profile: str | None, region: str | None) -> httpx.Auth:
    from nextfire.client import signing  # noqa: PLC0415 — boto3 takes a second

    return signing.signature(signing.callers_session(profile, region), endpoint, region)
