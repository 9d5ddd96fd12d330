"""What goes wrong with a call, and what to do about it.

ClientError               what is wrong, and what to do about it
├── UnreachableError      no answer came
└── ApiError              the API, or the gateway before it, refused
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
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MAYBE_DONE = "The request may have been carried out: look before you repeat it."
_VALUE_ERROR = "Value error, "
"""What pydantic puts before a validator's own words."""


class ClientError(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Build the error.

        Args:
            problem: A whole sentence or two.
            remedy: What the caller can do; whole sentences, lines allowed.
        """
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}".strip())

    def document(self) -> dict[str, Any]:
        """As JSON, in the form of the API's own problems."""
        return {"title": self.problem, "detail": self.remedy}


class UnreachableError(ClientError):
    """No answer came. `maybe_done`: the request may have been carried out all the same."""

    def __init__(self, problem: str, remedy: str, *, maybe_done: bool) -> None:
        self.maybe_done = maybe_done
        super().__init__(problem, remedy)


@dataclass(frozen=True, slots=True)
class Fault:
    """One offending field: what was given, what is wrong with it, and what to do."""

    field: str
    value: str | None
    problem: str
    remedy: str

    def __str__(self) -> str:
        got = "" if self.value is None else f" (got {self.value})"
        return f"{self.field}: {self.problem}{got}. {self.remedy}".strip()


class ApiError(ClientError):
    """The API refused, by a problem document (RFC 9457); or the gateway before it did.

    `status`: HTTP's. `title`, `detail`: what went wrong, and what to do. `errors`: the offending
    fields. `request_id`: what to look for in the gateway's log. `retry_after`: seconds after which
    it may go better. `quota`: the tenant's quota that refuses it, by its name. `by_gateway`: the
    API was not asked, or did not answer. `body`: the problem document.
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
        self.errors = [_fault(each) for each in body.get("errors") or ()]
        self.request_id = request_id
        self.retry_after = retry_after
        self.quota: str | None = body.get("quota")
        self.by_gateway = by_gateway
        # The detail says the same as the errors, in one breath.
        remedy = "\n".join(map(str, self.errors)) or self.detail
        super().__init__(f"{self.title} ({status}).", remedy)

    def document(self) -> dict[str, Any]:
        return {"status": self.status, **self.body}


class Unauthorized(ApiError):
    """Nothing says who calls, or nothing that this endpoint takes."""


class Forbidden(ApiError):
    """The key, token or signature is not good, or does not allow this."""


class NotFound(ApiError):
    """There is no such thing, or it is another tenant's."""


class Conflict(ApiError):
    """The thing is not in a state that allows this."""


class PreconditionFailed(ApiError):
    """What `if_match` or `if_none_match` asked for does not hold: somebody was faster."""


class Invalid(ApiError):
    """What is asked for makes no sense: see `errors`."""


class RateLimited(ApiError):
    """Too much: wait as long as `retry_after` says. `quota` names the tenant's quota; it is None
    where the gateway counts all requests.
    """


class Unavailable(ApiError):
    """The API failed, or was not there."""


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
    """What API Gateway answers without asking the API: when, and what to do about it."""

    title: str
    remedy: str


BY_GATEWAY: Mapping[int, ByGateway] = {
    400: ByGateway("The gateway cannot read the request", "Check the URL and the headers."),
    401: ByGateway(
        "The endpoint does not know who calls",
        "It takes neither this key or token nor this signature. See `auth` (--auth).",
    ),
    403: ByGateway(
        "The endpoint refused this caller", "The key, token or signature is not good here."
    ),
    404: ByGateway(
        "The endpoint has no such route", "Check the endpoint (--endpoint): the URL without /v1."
    ),
    413: ByGateway("The request is too large", "Keep the payload under 64 KiB; put more into S3."),
    429: ByGateway("Too many requests", "Wait a moment and try again."),
    500: ByGateway("The API failed", "Try again; if it stays so, look into the authorizer's log."),
    503: ByGateway(
        "The API is not available, or did not answer in time",
        f"Try again in a moment. {MAYBE_DONE}",
    ),
    504: ByGateway("The API did not answer in time", MAYBE_DONE),
}
"""What API Gateway answers by itself, by its status, as ``{"message": …}``."""
_DEFAULT = ByGateway(
    "The API failed", "Try again; if it stays so, look into the log of its function."
)
_REFUSED = {
    "key": ByGateway(
        "The endpoint refused this API key",
        """It is wrong, expired or revoked. Make another with `nextfire keys create`, by a key
that is good still, or with --first, by AWS credentials.
An API that is deployed with auth=iam wants signed requests: --auth iam.""",
    ),
    "token": ByGateway(
        "The endpoint refused this token",
        "It has expired, or is not of the issuer and the audience that the API was deployed with.",
    ),
    "iam": ByGateway(
        "The endpoint refused these credentials",
        """An API that takes keys wants one in NEXTFIRE_API_KEY. One that is deployed with auth=iam
wants credentials with execute-api:Invoke on it, in its region; see --profile and --region.""",
    ),
}
"""403, by what the request carried."""


def error_of(
    status: int,
    body: Mapping[str, Any] | None,
    *,
    carried: str,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """The error that an answer is.

    Args:
        status: HTTP's, 300 or more.
        body: The answer's JSON object, if it has one.
        carried: What said who calls: ``key``, ``token`` or ``iam``.
        request_id: The gateway's.
        retry_after: Seconds, if the answer says any.
    """
    kind = _KINDS.get(
        status, Unavailable if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Invalid
    )
    by_gateway = body is None or "title" not in body
    if body is None or "title" not in body:
        found = BY_GATEWAY.get(status, _DEFAULT)
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
        str(error.get("problem", "")).removeprefix(_VALUE_ERROR),
        str(error.get("remedy", "")),
    )
