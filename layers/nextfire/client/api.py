"""The API of nextfire, as Python calls it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Self

import httpx2

from nextfire.client import access
from nextfire.client.auth import Auth
from nextfire.client.calls import Caller, Pace
from nextfire.client.contexts import Context
from nextfire.client.endpoints import EndpointOperations
from nextfire.client.errors import ClientError
from nextfire.client.executions import ExecutionOperations
from nextfire.client.jobs import JobOperations
from nextfire.client.keys import KeyOperations
from nextfire.client.scripts import ScriptOperations
from nextfire.responses.base import ApiResponse
from nextfire.responses.meta import Health
from nextfire.responses.quotas import QuotasResponse

TIMEOUT = 30.0
"""Seconds; API Gateway itself gives up on the API after 30."""
RETRIES = 3


class Client(
    JobOperations, ExecutionOperations, ScriptOperations, EndpointOperations, KeyOperations
):
    """A client of one nextfire API. Thread-safe; a forked process has its own connections.

    Its methods are the operations of the API, by operation id (docs/reference/api.md). In addition,
    `jobs`, `executions`, `all_executions`, `keys`, `scripts` and `log` iterate over all pages,
    `wait` waits for the end of an execution, and `push_script` uploads a script. Responses are
    views of JSON documents (`nextfire.responses`).

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
        auth: Auth | str | httpx2.Auth | None = None,
        profile: str | None = None,
        region: str | None = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the client; the command `nextfire` uses the same rules.

        Args:
            endpoint: The API's URL, without ``/v1``. Default: ``NEXTFIRE_ENDPOINT``, else that of
                the context ``NEXTFIRE_CONTEXT``, else the local stack of the working folder, else
                the current context of ``nextfire login``.
            key: An API key, with its endpoint. Default: ``NEXTFIRE_API_KEY``, else that of the
                context, else of the user's file for this endpoint (docs/operate/identity.md). The
                local stack of a folder gets its own key only.
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
            ClientError: No endpoint, no credentials, or an invalid *timeout*.
        """
        if not 0 < timeout < inf:
            raise ClientError(
                f"timeout: {timeout} is not a time to wait for a response.",
                f"Give seconds above 0, such as {TIMEOUT:.0f}.",
            )
        selected = None
        if not (endpoint := endpoint or access.from_environment(access.ENDPOINT)):
            selected = (
                access.named_context(None) or access.local_stack() or access.current_context()
            )
            endpoint = selected.endpoint if selected else None
        found = access.checked_endpoint(endpoint)
        if selected and (key is not None or isinstance(auth, httpx2.Auth)):
            place = "context" if isinstance(selected, Context) else "folder"
            raise ClientError(
                f"`key` or `auth` without an endpoint: the {place} selects {found}, which gets its"
                " own key only.",
                'Give the endpoint of the key, too: Client("https://…", key).',
            )
        if not isinstance(auth, httpx2.Auth):
            wanted = access.named(auth or (None if key else access.from_environment(access.AUTH)))
            if isinstance(selected, access.LocalEndpoint):
                sign = partial(_stack_signature, selected)
                auth = access.of_folder(wanted, selected.key_file, sign)
            else:
                of = selected or Context(found)
                wanted = wanted or of.auth
                names = profile or of.profile, region or of.region
                auth = access.who_calls(
                    found,
                    wanted,
                    key=partial(_key, found, key, of.key),
                    sign=partial(_signature, found, *names, instead=wanted is None),
                )
        pace = Pace(timeout, retries, sleep, monotonic)
        self._sleep, self._monotonic = sleep, monotonic
        self._caller = Caller(found, auth, pace, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    def outlast_outages(self, notice: Callable[[ClientError], None]) -> None:
        """Repeat reads until the API responds, once it has: `log` with ``follow=True`` then ends
        only with the execution or with an error that is not transient. *notice* gets each error of
        a read whose retries are used up; raise it there to end the read.
        """
        self._caller.on_outage = notice

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

    def get_quotas(self) -> QuotasResponse:
        """Return the tenant's quotas and their usage."""
        return self._read(QuotasResponse, "/v1/quotas")


def _key(endpoint: str, key: str | None, of_context: str | None) -> str | None:
    if key is not None:
        return access.checked_key(key, "`key`")
    return access.find_key(endpoint, None, of_context)


def _stack_signature(stack: access.LocalEndpoint) -> httpx2.Auth:
    from nextfire.client import signing  # noqa: PLC0415 — boto3 takes a second

    session = signing.session_of(stack.access_key, stack.secret_key, stack.region)
    return signing.signature(session, stack.endpoint, stack.region)


def _signature(
    endpoint: str, profile: str | None, region: str | None, *, instead: bool
) -> httpx2.Auth:
    """The signature of the caller. *instead*: of an API key, which was not found."""
    from nextfire.client import signing  # noqa: PLC0415 — boto3 takes a second

    try:
        return signing.signature(signing.callers_session(profile, region), endpoint, region)
    except ClientError as error:
        raise (access.without_credentials(endpoint, error) if instead else error) from error
