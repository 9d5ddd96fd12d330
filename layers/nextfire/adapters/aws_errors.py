"""What an error of AWS means, whichever client raises it.

An adapter catches by `except refused() as error` and `except unanswered() as error`: Python
evaluates the classes when an exception arrives. An exception of botocore can only arrive once
botocore is loaded, so nothing here imports it.
"""

from __future__ import annotations

import logging
import sys
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
"""The error codes that mean: the same request may succeed with other credentials. SQS uses
`InvalidClientTokenId` where DynamoDB uses `UnrecognizedClientException`.
"""

TRANSIENT_CODES = EXPIRED_CREDENTIALS | {
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "KMS.ThrottlingException",
    "KmsThrottled",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
"""The error codes that mean: the same request may succeed later."""


class RefusedError(Exception):
    """AWS answered with an error. `response` has the form of botocore's `ClientError.response`."""

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
    """No valid answer arrived: no connection, no response in time, or an unreadable one."""


def refused() -> tuple[type[RefusedError], ...]:
    """The classes of "AWS answered with an error"."""
    return (RefusedError, *_botocore("ClientError"))


def unanswered() -> tuple[type[UnansweredError], ...]:
    """The classes of "no valid answer arrived"."""
    return (UnansweredError, *_botocore("BotoCoreError"))


def failed() -> tuple[type[Exception], ...]:
    """The classes of both, and of what an adapter makes of them if it may pass."""
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
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_code(error) in TRANSIENT_CODES or status >= 500  # noqa: PLR2004 — a server error


class ContendedError(UnavailableError):
    """Others wrote the same item in the same moment: nothing was written."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise an error of AWS that may pass by itself as `UnavailableError`, any other unchanged.

    Args:
        what: The request, for the message, e.g. ``"claim run"``.
    """
    try:
        yield
    except refused() as error:
        if is_transient(error):
            raise UnavailableError(f"{what}: {error_code(error) or error}. Try again.") from error
        raise
    except unanswered() as error:
        # Its text may hold an endpoint or a path, which concerns only who reads the log.
        _log.warning("%s: %s: %s", what, type(error).__name__, error)
        raise UnavailableError(f"{what}: {type(error).__name__}. Try again.") from error
