"""The API over HTTP. Documents go in and come out as the API defines them."""

from collections.abc import Generator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from nextfire_cli.errors import ApiError, CliError

Document = dict[str, Any]
PAGE = 100
"""The longest page that is asked for."""
LINES = 1000
"""The longest page of a log."""
TIMEOUT = 30.0
"""Seconds; API Gateway itself gives up on the API after 30."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

# API Gateway answers these itself, as {"message": …}, when a request does not reach the API.
_GATEWAY: Mapping[int, tuple[str, str]] = {
    401: (
        "The endpoint does not know who calls",
        "It takes neither this key or token nor this signature. See --auth.",
    ),
    404: ("The endpoint has no such route", "Check --endpoint: it is the URL without /v1."),
    413: ("The request is too large", "Keep the payload under 64 KiB; put more into S3."),
    429: ("Too many requests", "Wait a moment and try again."),
    503: ("The API is not available", "Try again in a moment."),
    504: (
        "The API did not answer in time",
        "The request may have been carried out: look before you repeat it.",
    ),
}
_REFUSED = {
    "key": (
        "The endpoint refused this API key",
        """It is wrong, expired or revoked. Make another with `nextfire keys create`, by a key
that is good still, or with --first, by AWS credentials.
An API that is deployed with auth=iam wants signed requests: --auth iam.""",
    ),
    "token": (
        "The endpoint refused this token",
        "It has expired, or is not of the issuer and the audience that the API was deployed with.",
    ),
    "iam": (
        "The endpoint refused these credentials",
        """An API that takes keys wants one in NEXTFIRE_API_KEY. One that is deployed with auth=iam
wants credentials with execute-api:Invoke on it, in its region; see --profile and --region.""",
    ),
}
"""403, by what the request carried."""
_GATEWAY_DEFAULT = (
    "The API failed",
    "Try again; if it stays so, look into the log of its function.",
)


def is_local(endpoint: str) -> bool:
    """Whether *endpoint* is on this machine."""
    return httpx.URL(endpoint).host in LOOPBACK


class Bearer(httpx.Auth):
    """Sends *text*, an API key or a token, with each request."""

    def __init__(self, text: str, kind: str = "key") -> None:
        self._text = text
        self.kind = kind

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._text}"
        yield request


class Client:
    """Calls one endpoint. Each method raises `ApiError` where the API refuses, else `CliError`."""

    def __init__(
        self, endpoint: str, auth: httpx.Auth, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._http = httpx.Client(auth=auth, transport=transport, timeout=TIMEOUT)
        self._kind = auth.kind if isinstance(auth, Bearer) else "iam"

    def health(self) -> Document:
        return self._call("GET", "/v1/health")

    def create_job(self, definition: Document) -> Document:
        return self._call("POST", "/v1/jobs", body=definition)

    def job(self, job_id: str) -> Document:
        return self._call("GET", f"/v1/jobs/{quote(job_id, safe='')}")

    def jobs(self, *, limit: int) -> tuple[list[Document], bool]:
        """The tenant's jobs, at most *limit*, and whether there may be more."""
        return self._items("/v1/jobs", limit)

    def upcoming(self, job_id: str, *, count: int) -> list[Document]:
        """A job's next occurrences, at most *count* (1 to 100)."""
        path = f"/v1/jobs/{quote(job_id, safe='')}/upcoming?count={count}"
        items: list[Document] = self._call("GET", path)["items"]
        return items

    def preview(self, schedule: Document) -> list[Document]:
        """The occurrences that a job with this *schedule* would have."""
        items: list[Document] = self._call("POST", "/v1/schedules/preview", body=schedule)["items"]
        return items

    def update_job(self, job_id: str, changes: Document) -> Document:
        return self._call("PATCH", f"/v1/jobs/{quote(job_id, safe='')}", body=changes)

    def cancel_job(self, job_id: str) -> Document:
        return self._call("DELETE", f"/v1/jobs/{quote(job_id, safe='')}")

    def pause_job(self, job_id: str, reason: str | None, until: str | None = None) -> Document:
        given = {"reason": reason, "until": until}
        body = {name: value for name, value in given.items() if value is not None}
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/pause", body=body)

    def drain_job(self, job_id: str, reason: str | None) -> Document:
        body = {} if reason is None else {"reason": reason}
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/drain", body=body)

    def resume_job(self, job_id: str) -> Document:
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/resume", body={})

    def run_job(self, job_id: str, asked: Document) -> Document:
        """The execution that there is now; *asked*: ``payload`` and ``reason``."""
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/run", body=asked)

    def skip_next(self, job_id: str, reason: str | None) -> Document:
        body = {} if reason is None else {"reason": reason}
        return self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/skip-next", body=body)

    def undo_skip_next(self, job_id: str) -> Document:
        return self._call("DELETE", f"/v1/jobs/{quote(job_id, safe='')}/skip-next")

    def executions(self, job_id: str, *, limit: int) -> tuple[list[Document], bool]:
        """A job's newest executions, newest first, at most *limit*; whether there may be more."""
        return self._items(f"/v1/jobs/{quote(job_id, safe='')}/executions", limit)

    def execution(self, execution_id: str) -> Document:
        return self._call("GET", _execution(execution_id))

    def find_executions(self, *, limit: int, **wanted: str | None) -> tuple[list[Document], bool]:
        """Executions of any job; *wanted*: ``state``, ``jobId``, ``pool``, ``from`` and ``to``."""
        given = {name: value for name, value in wanted.items() if value is not None}
        return self._items("/v1/executions", limit, given)

    def log(self, execution_id: str, *, cursor: str | None, attempt: int | None) -> Document:
        """The next page of an execution's log."""
        params = {"limit": str(LINES)}
        if cursor is not None:
            params["cursor"] = cursor
        if attempt is not None:
            params["attempt"] = str(attempt)
        return self._call("GET", _with(f"{_execution(execution_id)}/logs", params))

    def cancel_execution(self, execution_id: str, reason: str | None) -> Document:
        body = {} if reason is None else {"reason": reason}
        return self._call("POST", f"{_execution(execution_id)}/cancel", body=body)

    def redrive_execution(self, execution_id: str, reason: str | None) -> Document:
        body = {} if reason is None else {"reason": reason}
        return self._call("POST", f"{_execution(execution_id)}/redrive", body=body)

    def redrive_pool(self, pool: str, asked: Document) -> Document:
        """Redrive some dead executions of *pool*; asked again with its `cursor` it goes on."""
        return self._call("POST", f"/v1/pools/{quote(pool, safe='')}/redrive", body=asked)

    def create_key(self, asked: Document) -> Document:
        """The new key; its text is under `key`, and told this once."""
        return self._call("POST", "/v1/keys", body=asked)

    def keys(self, *, limit: int) -> tuple[list[Document], bool]:
        """The tenant's API keys, at most *limit*, and whether there may be more."""
        return self._items("/v1/keys", limit)

    def revoke_key(self, key_id: str) -> Document:
        return self._call("DELETE", f"/v1/keys/{quote(key_id, safe='')}")

    def rotate_key(self, key_id: str, asked: Document) -> Document:
        """A new key like *key_id*, which ends: both, under `new` and `old`."""
        return self._call("POST", f"/v1/keys/{quote(key_id, safe='')}/rotate", body=asked)

    def _items(
        self, path: str, limit: int, given: Mapping[str, str] | None = None
    ) -> tuple[list[Document], bool]:
        items: list[Document] = []
        cursor = None
        while len(items) < limit:
            params = {**(given or {}), "limit": str(min(PAGE, limit - len(items)))}
            if cursor:
                params["cursor"] = cursor
            page = self._call("GET", _with(path, params))
            items += page["items"]
            cursor = page.get("cursor")
            if not cursor:
                break
        return items, cursor is not None

    def _call(self, method: str, path: str, *, body: Document | None = None) -> Document:
        try:
            response = self._http.request(method, self._endpoint + path, json=body)
        except httpx.TimeoutException as error:
            raise CliError(
                f"{self._endpoint} did not answer within {TIMEOUT:.0f} s.",
                "The request may have been carried out: look before you repeat it.",
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CliError(f"Cannot reach {self._endpoint}: {error}.", self._remedy()) from error
        return _document(response, self._kind)

    def _remedy(self) -> str:
        if is_local(self._endpoint):
            return "The local stack is not up: start it with `nextfire up`."
        return "Check --endpoint (or NEXTFIRE_ENDPOINT) and the network."


def _execution(execution_id: str) -> str:
    return f"/v1/executions/{quote(execution_id, safe='')}"


def _with(path: str, params: Mapping[str, str]) -> str:
    # As a signature has it: a space is %20, never a plus.
    return f"{path}?{urlencode(params, quote_via=quote, safe='')}"


def _document(response: httpx.Response, kind: str) -> Document:
    try:
        body: object = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = None
    if response.is_success and body is not None:
        return body
    if response.is_success:
        raise CliError(
            f"{response.url.copy_with(query=None)} answered {response.status_code} without JSON.",
            "Is this the endpoint of a nextfire API?",
        )
    if body is not None and "title" in body:
        raise ApiError(response.status_code, body)
    refused = response.status_code == HTTPStatus.FORBIDDEN
    title, remedy = (
        _REFUSED[kind] if refused else _GATEWAY.get(response.status_code, _GATEWAY_DEFAULT)
    )
    said = (body or {}).get("message") or HTTPStatus(response.status_code).phrase
    raise ApiError(response.status_code, {"title": title, "detail": f"It said: {said}. {remedy}"})
