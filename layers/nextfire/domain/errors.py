"""What can go wrong, in four families with one meaning each at the API and at the queue.

    NextfireError
    ├── InvalidInputError      400/422 at the API; at the queue: to the dead-letter queue, at once
    │   ├── BeyondQuotaError   422 too, with the quota's name: no waiting helps
    │   └── UndecodableError   a stored item or a message that cannot be read; kept, alarmed,
    │                          blocks nothing
    ├── ForbiddenError         403; the caller may not do this
    ├── NotFoundError          404; at the queue: acknowledged and logged
    ├── ConflictError          409; the caller decides
    │   └── ChangedError       412; what the caller knew is not so any more
    ├── QuotaUsedUpError       429, with the quota's name and `Retry-After`
    └── UnavailableError       503; at the queue: this record fails and comes again

Anything else is a defect: 500, this record fails, an alarm rings.
"""

from __future__ import annotations

import json


class NextfireError(Exception):
    """The base of every error that this package raises on purpose."""


class InvalidInputError(NextfireError):
    """A value that cannot be used, told with its field and what to do about it."""

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        """Build the error.

        Args:
            field: The field as the caller spells it, e.g. ``target.pool``.
            value: The offending value; shortened in the message.
            problem: What is wrong with it, without a full stop.
            remedy: What the caller can do, a whole sentence.
        """
        self.field = field
        self.value = shorten(value)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{field}: {problem} (got {self.value}). {remedy}")

    def about(self, field: str) -> InvalidInputError:
        """The same, told of *field*: what the caller calls it."""
        told = InvalidInputError(field, None, self.problem, self.remedy)
        told._say(self.value)
        return told

    def _say(self, value: str) -> None:
        self.value = value
        self.args = (f"{self.field}: {self.problem} (got {value}). {self.remedy}",)


class BeyondQuotaError(InvalidInputError):
    """A value that the tenant's *quota* does not allow, whenever it comes."""

    def __init__(self, quota: str, field: str, value: object, problem: str, remedy: str) -> None:
        self.quota = quota
        super().__init__(field, value, problem, remedy)

    def about(self, field: str) -> BeyondQuotaError:
        told = BeyondQuotaError(self.quota, field, None, self.problem, self.remedy)
        told._say(self.value)
        return told


class UndecodableError(NextfireError):
    """A stored item or a message that does not read as what it should be."""


class ForbiddenError(NextfireError):
    """The caller may not do this."""


class NotFoundError(NextfireError):
    """No such thing, or not this tenant's."""

    def __init__(
        self, noun: str, identity: str, remedy: str = "List yours to see their ids."
    ) -> None:
        self.noun = noun
        self.identity = identity
        super().__init__(f"There is no {noun} {identity!r}. {remedy}")


class ConflictError(NextfireError):
    """The thing is not in a state that allows this."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}")


class ChangedError(ConflictError):
    """The thing is not as the caller expected it to be: somebody else was first."""


class QuotaUsedUpError(NextfireError):
    """The tenant has as much as its *quota* allows; *retry_after*: in how many seconds to ask
    again, if nothing is done about it.
    """

    def __init__(self, quota: str, problem: str, remedy: str, *, retry_after: int) -> None:
        self.quota = quota
        self.retry_after = retry_after
        super().__init__(f"{problem}. {remedy}")


class UnavailableError(NextfireError):
    """A store or a queue refused or did not answer; the request may have happened. Try again."""


def shorten(value: object, limit: int = 120) -> str:
    """*value*, a text in quotes and anything else as JSON, cut to *limit* characters."""
    if isinstance(value, str):
        text = repr(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else text[: limit - 1] + "…"
