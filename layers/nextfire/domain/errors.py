"""Errors, and what each means at the API and at the queue.

    NextfireError
    ├── InvalidInputError      422
    │   └── BeyondQuotaError   422, with the quota's name: waiting does not help
    ├── UndecodableError       a stored item or message that does not decode; kept, with an alarm,
    │   │                      without blocking others. 500; a message: dead-letter queue
    │   └── UnknownVersionError   a message of a newer version; it stays in the queue
    ├── ForbiddenError         403; the caller lacks the permission
    ├── NotFoundError          404; at the queue: acknowledged and logged
    ├── ConflictError          409; the caller decides
    │   └── ChangedError       412; the resource has changed
    ├── QuotaUsedUpError       429, with the quota's name and `Retry-After`
    └── UnavailableError       503; at the queue: the record fails and is redelivered
        └── NotSettledError    at the queue only, as above

Any other exception is a defect: 500; the record fails and an alarm is raised.
"""

from __future__ import annotations

import json


class NextfireError(Exception):
    """Base class of all errors that this package raises deliberately."""


class InvalidInputError(NextfireError):
    """An invalid value, with its field, the problem and a remedy."""

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        """Build the error.

        Args:
            field: The field in the caller's spelling, e.g. ``target.pool``.
            value: The invalid value; truncated in the message.
            problem: What is wrong with it; no full stop.
            remedy: What the caller can do; a full sentence.
        """
        self.field = field
        self.value = shorten(value)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{field}: {problem} (got {self.value}). {remedy}")

    def about(self, field: str) -> InvalidInputError:
        """Return the same error for *field*, the caller's name of the field."""
        renamed = InvalidInputError(field, None, self.problem, self.remedy)
        renamed._say(self.value)
        return renamed

    def _say(self, value: str) -> None:
        self.value = value
        self.args = (f"{self.field}: {self.problem} (got {value}). {self.remedy}",)


class BeyondQuotaError(InvalidInputError):
    """A value that the tenant's *quota* never allows."""

    def __init__(self, quota: str, field: str, value: object, problem: str, remedy: str) -> None:
        self.quota = quota
        super().__init__(field, value, problem, remedy)

    def about(self, field: str) -> BeyondQuotaError:
        renamed = BeyondQuotaError(self.quota, field, None, self.problem, self.remedy)
        renamed._say(self.value)
        return renamed


class UndecodableError(NextfireError):
    """A stored item or a message does not decode."""


class UnknownVersionError(UndecodableError):
    """A message has a later *version* than this code knows."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(
            f"the message has version {version}, which this version of nextfire does not know: "
            "update the executors of the pool"
        )


class ForbiddenError(NextfireError):
    """The caller lacks the permission."""


class NotFoundError(NextfireError):
    """The resource does not exist, or belongs to another tenant."""

    def __init__(
        self, noun: str, identity: str, remedy: str = "List yours to see their ids."
    ) -> None:
        self.noun = noun
        self.identity = identity
        super().__init__(f"{noun[0].upper()}{noun[1:]} {identity!r} was not found. {remedy}")


class ConflictError(NextfireError):
    """The state of the resource does not allow the request."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}")


class ChangedError(ConflictError):
    """The resource has changed since the caller read it."""


class QuotaUsedUpError(NextfireError):
    """The tenant's *quota* is used up. *retry_after*: seconds until a retry may succeed."""

    def __init__(self, quota: str, problem: str, remedy: str, *, retry_after: int) -> None:
        self.quota = quota
        self.retry_after = retry_after
        super().__init__(f"{problem}. {remedy}")


class UnavailableError(NextfireError):
    """A store or queue rejected the request or did not answer. It may have taken effect: retry."""


class NotSettledError(UnavailableError):
    """The outcome of a run is recorded, and what follows from it is not done. The redelivery of its
    message repeats it.
    """


def invalid_cursor(cursor: str) -> InvalidInputError:
    """The error for a *cursor* that the listing did not return."""
    problem, remedy = "not a cursor of this listing", "Use a cursor that a listing returned."
    return InvalidInputError("cursor", cursor, problem, remedy)


def shorten(value: object, limit: int = 120) -> str:
    """Return *value*, strings quoted and other values as JSON, truncated to *limit* characters."""
    if isinstance(value, str):
        text = repr(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else text[: limit - 1] + "…"
