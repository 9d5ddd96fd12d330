"""Errors of calls, with a problem and a remedy.

ClientError               base class
├── MissingError          what was looked up without asking the API for its id does not exist
├── InvalidValueError     a value was found invalid before it was sent
├── NotEndedError         an execution did not end while it was waited for
├── UnreachableError      no response was received
└── ApiError              the API or the gateway rejected the request
    ├── Unauthorized        401
    ├── Forbidden           403
    ├── NotFound            404
    ├── Conflict            409
    ├── PreconditionFailed  412
    ├── Invalid             400, 405, 413, 422, and any other 4xx
    ├── RateLimited         429
    └── Unavailable         5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from nextfire.dataclass import dataclass

MAYBE_DONE = "The request may have been carried out: look before you repeat it."
TRY_AGAIN = "Try again in a moment."


def _restored(kind: type[ClientError], *args: object) -> ClientError:
    return kind.__new__(kind, *args)


def problem_document(status: HTTPStatus, detail: str) -> dict[str, Any]:
    """Return the problem document with which the API would report an error of a caller."""
    return {"status": status, "type": "about:blank", "title": status.phrase, "detail": detail}


class ClientError(Exception):
    """An error of a call, with its problem and a remedy."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Build the error.

        Args:
            problem: One or two sentences.
            remedy: What the caller can do, in sentences; may contain line breaks.
        """
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled as calls of their class with `args`, which the classes here do not
        # take. A process pool whose task raises an error that cannot be read hangs or breaks.
        return _restored, (type(self), *self.args), self.__dict__

    def document(self) -> dict[str, Any]:
        """Return the error as JSON, in the form of the API's problem documents."""
        return {"title": self.problem, "detail": self.remedy}


class MissingError(ClientError):
    """Something that was looked up without asking the API for its id does not exist."""

    def document(self) -> dict[str, Any]:
        return problem_document(HTTPStatus.NOT_FOUND, str(self))


class InvalidValueError(ClientError):
    """A value was found invalid before it was sent to the API."""

    def document(self) -> dict[str, Any]:
        return {"status": HTTPStatus.UNPROCESSABLE_ENTITY.value, **super().document()}


class NotEndedError(ClientError):
    """An execution did not end while it was waited for. `state`: its state then."""

    def __init__(self, execution_id: str, state: str, timeout: float) -> None:
        self.state = state
        super().__init__(
            f"{execution_id} is {state}: it has not ended within {timeout:g} s.",
            "It continues. Wait longer, or end it with cancel_execution.",
        )


class UnreachableError(ClientError):
    """No response was received. `maybe_done`: the request may have been executed."""

    def __init__(self, problem: str, remedy: str, *, maybe_done: bool) -> None:
        self.maybe_done = maybe_done
        super().__init__(problem, remedy)


@dataclass(frozen=True, slots=True)
class Fault:
    """An invalid field: its value, the problem, and how to fix it."""

    field: str
    value: str | None
    problem: str
    remedy: str

    def __str__(self) -> str:
        got = "" if self.value in {None, "absent"} else f" (got {self.value})"
        return f"{self.field}: {self.problem}{got}. {self.remedy}".strip()


class ApiError(ClientError):
    """The API rejected the request with a problem document (RFC 9457), or the gateway rejected it.

    `status`: the HTTP status. `title`, `detail`: the problem and the remedy. `errors`: the invalid
    fields. `request_id`: identifies the request in the gateway's log. `retry_after`: seconds after
    which a retry may succeed. `quota`: name of the exceeded quota. `by_gateway`: the gateway
    responded instead of the API. `body`: the problem document.
    """

    def __init__(
        self,
        status: int,
        body: Mapping[str, Any],
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
        by_gateway: bool = False,
    ) -> None:
        self.status = status
        self.body = dict(body)
        self.title = str(body.get("title") or "The API refused")
        self.detail = str(body.get("detail") or "")
        errors = body.get("errors")
        listed = errors if isinstance(errors, list) else ()
        self.errors = [_fault(each) for each in listed if isinstance(each, dict)]
        self.request_id = request_id
        self.retry_after = retry_after
        self.quota: str | None = body.get("quota")
        self.by_gateway = by_gateway
        # The detail repeats the errors in one text.
        remedy = "\n".join(map(str, self.errors)) or self.detail
        super().__init__(f"{self.title} ({status}).", remedy)

    def document(self) -> dict[str, Any]:
        return {"status": self.status, **self.body}


class Unauthorized(ApiError):
    """The request has no credentials, or none that this endpoint accepts."""


class Forbidden(ApiError):
    """The key, token or signature is invalid or lacks the permission."""


class NotFound(ApiError):
    """The resource does not exist, or belongs to another tenant."""


class Conflict(ApiError):
    """The state of the resource does not allow the request."""


class PreconditionFailed(ApiError):
    """The condition `if_match` or `if_none_match` does not hold: the resource has changed."""


class Invalid(ApiError):
    """The request is invalid; see `errors`."""


class RateLimited(ApiError):
    """Too many requests: wait for `retry_after` seconds. `quota`: name of the tenant's quota; None
    for the gateway's limit on all requests.
    """


class Unavailable(ApiError):
    """The API failed or was not available."""


_KINDS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    429: RateLimited,
}


@dataclass(frozen=True, slots=True)
class ByGateway:
    """A response of API Gateway itself: its title and the remedy."""

    title: str
    remedy: str


BY_GATEWAY: Mapping[int, ByGateway] = {
    400: ByGateway("The gateway cannot read the request", "Check the URL and the headers."),
    401: ByGateway(
        "The endpoint cannot identify the caller",
        """It accepts neither this key or token nor this signature. Another kind may be needed:
auth="keys", auth="iam" or auth="jwt".""",
    ),
    403: ByGateway(
        "The endpoint refused this caller", "The key, token or signature is not valid here."
    ),
    404: ByGateway("The endpoint has no such route", "Check endpoint=URL: the URL without /v1."),
    413: ByGateway("The request is too large", "Keep the payload under 64 KiB; put more into S3."),
    429: ByGateway("Too many requests", "Wait a moment and try again."),
    500: ByGateway("The API failed", "Try again. If it persists, see the authorizer's log."),
    503: ByGateway(
        "The API is not available, or did not answer in time",
        f"Try again in a moment. {MAYBE_DONE}",
    ),
    504: ByGateway("The API did not answer in time", MAYBE_DONE),
}
"""Responses of API Gateway itself, ``{"message": …}``, by status."""
_REDIRECT = ByGateway(
    "The endpoint redirects the request",
    "Redirects are not followed. Check endpoint=URL: its host, and https://.",
)
_DEFAULT = ByGateway("The API failed", "Try again. If it persists, see the log of its function.")
_REFUSED = {
    "key": ByGateway(
        "The endpoint refused this API key",
        """It is wrong, expired or revoked. Create another with `nextfire keys create`, which
needs a valid key, or with --first AWS credentials.
An API that is deployed with auth=iam needs signed requests: auth="iam".""",
    ),
    "token": ByGateway(
        "The endpoint refused this token",
        "It has expired, or its issuer or audience is not that of the API.",
    ),
    "iam": ByGateway(
        "The endpoint refused these credentials",
        """An API with keys needs one in NEXTFIRE_API_KEY. One that is deployed with auth=iam needs
credentials with execute-api:Invoke on it, in its region; see profile=NAME and region=NAME.""",
    ),
}
"""Status 403, by the kind of credentials in the request."""


def error_of(
    status: int,
    body: Mapping[str, Any] | None,
    *,
    carried: str,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """Return the error for a response.

    Args:
        status: The HTTP status, 300 or more.
        body: The JSON object of the response, if it has one.
        carried: Kind of credentials in the request: ``key``, ``token`` or ``iam``.
        request_id: The gateway's id of the request.
        retry_after: Seconds, if the response has the header.
    """
    kind = _KINDS.get(
        status, Unavailable if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Invalid
    )
    by_gateway = body is None or "title" not in body
    if body is None or "title" not in body:
        unknown = _REDIRECT if status < HTTPStatus.BAD_REQUEST else _DEFAULT
        found = BY_GATEWAY.get(status, unknown)
        if status == HTTPStatus.FORBIDDEN:
            found = _REFUSED.get(carried, found)
        said = (body or {}).get("message") or _phrase(status)
        body = {"title": found.title, "detail": f"It said: {said}. {found.remedy}"}
    return kind(status, body, request_id=request_id, retry_after=retry_after, by_gateway=by_gateway)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return str(status)


def _fault(error: Mapping[str, Any]) -> Fault:
    return Fault(
        str(error.get("field", "")),
        str(error["value"]) if "value" in error else None,
        str(error.get("problem", "")),
        str(error.get("remedy", "")),
    )
