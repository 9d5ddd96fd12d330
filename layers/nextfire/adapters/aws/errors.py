"""Classifies AWS errors, independent of the client that raises them.

Adapters write `except refused() as error` and `except unanswered() as error`: Python evaluates the
classes when an exception arrives. A botocore exception can arrive only after botocore was imported,
so this module does not import it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, cast

from nextfire.domain.errors import UnavailableError

_log = logging.getLogger(__name__)

EXPIRED_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
    }
)
"""Error codes after which the same request may succeed with other credentials. SQS uses
`InvalidClientTokenId` where DynamoDB uses `UnrecognizedClientException`.
"""

TRANSIENT_CODES = EXPIRED_CREDENTIALS | {
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "KMS.ThrottlingException",
    "KmsThrottled",
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
"""Error codes after which the same request may succeed later; among them all that botocore retries.
"""

_TRANSIENT_STATUS = frozenset({408, 429})
"""The same for responses of gateways and proxies, which have no code: a timeout, a throttle."""

CONDITION_FAILED = "ConditionalCheckFailedException"
"""The error code of a write whose condition does not hold."""


class RefusedError(Exception):
    """AWS returned an error. `response` has the shape of botocore's `ClientError.response`."""

    def __init__(self, response: Mapping[str, Any], operation: str) -> None:
        error = response.get("Error", {})
        super().__init__(
            f"An error occurred ({error.get('Code', 'Unknown')}) when calling the {operation} "
            f"operation: {error.get('Message', '')}"
        )
        self.response = response
        self.operation_name = operation


class HasResponse(Protocol):
    """A `RefusedError`, or botocore's `ClientError`."""

    @property
    def response(self) -> Any: ...


class UnansweredError(Exception):
    """No valid response arrived: connection failed, timed out, or response unreadable."""


class TooLateError(UnansweredError):
    """`SEND_WITHIN` had passed before the request was sent, or sent again. So it was not sent."""


SEND_WITHIN = 20.0
"""Seconds of the wall clock after the start of a call, in which the client sends its requests.

A due entry's bucket is computed before the call, and watchers close it 30 s after its minute. A
machine can sleep in the middle of a call, and new credentials can take minutes.
"""


def require_in_time(begun_at: float) -> None:
    """Call this just before a request is sent. *begun_at*: start of the call (`time.time`).

    Raises:
        TooLateError: See its docstring.
    """
    age = time.time() - begun_at
    if age > SEND_WITHIN:
        raise TooLateError(f"The call began {age:.0f} s ago, so its request was not sent")


def refused() -> tuple[type[RefusedError], ...]:
    """Exception classes that mean: AWS returned an error."""
    return (RefusedError, *_botocore("ClientError"))


def unanswered() -> tuple[type[UnansweredError], ...]:
    """Exception classes that mean: no valid response arrived."""
    return (UnansweredError, *_botocore("BotoCoreError"))


def failed() -> tuple[type[Exception], ...]:
    """The classes of both, and `UnavailableError`, into which adapters translate transient ones."""
    return (UnavailableError, *refused(), *unanswered())


def _botocore(name: str) -> tuple[Any, ...]:
    module = sys.modules.get("botocore.exceptions")
    # While another thread imports the module, its classes may not exist yet.
    found = getattr(module, name, None)
    return () if found is None else (cast("type[Any]", found),)


def error_code(error: HasResponse) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def is_transient(error: HasResponse) -> bool:
    """Whether the same request may succeed later."""
    return (
        error_code(error) in TRANSIENT_CODES
        or _status(error) in _TRANSIENT_STATUS
        or is_server_error(error)
    )


def is_server_error(error: HasResponse) -> bool:
    """Whether the service failed, so that the request may have had its effect."""
    return _status(error) >= 500  # noqa: PLR2004 — the server errors of HTTP


def _status(error: HasResponse) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class TransactionConflictError(UnavailableError):
    """A concurrent transaction touched the same item. Nothing was written."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate transient AWS errors into `UnavailableError`; raise all others unchanged.

    Args:
        what: Name of the operation for the error message, for example ``"claim run"``.
    """
    try:
        yield
    except refused() as error:
        if is_transient(error):
            conflict = error_code(error) == "TransactionConflictException"
            kind = TransactionConflictError if conflict else UnavailableError
            raise kind(f"{what}: {error_code(error) or error}. Try again.") from error
        raise
    except unanswered() as error:
        # The text may contain an endpoint or a path: log it, but do not return it to callers.
        _log.warning("%s: %s: %s", what, type(error).__name__, error)
        raise UnavailableError(f"{what}: {type(error).__name__}. Try again.") from error


class ConditionalWrite:
    """A write to DynamoDB that is made only if its condition holds."""

    def __init__(self) -> None:
        self.made = True
        self.found: dict[str, Any] = {}
        """The item that failed the condition, if it exists and the request asks for it."""


@contextmanager
def conditional(what: str) -> Iterator[ConditionalWrite]:
    """As `translated`, for one conditional write. That its condition fails is not an error."""
    write = ConditionalWrite()
    try:
        with translated(what):
            yield write
    except refused() as error:
        if error_code(error) != CONDITION_FAILED:
            raise
        write.made, write.found = False, dict(error.response.get("Item") or {})
