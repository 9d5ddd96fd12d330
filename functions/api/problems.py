"""Errors as RFC 9457 problem details: what went wrong, in which field, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from nextfire.domain.errors import (
    BeyondQuotaError,
    ChangedError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NextfireError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
)
from nextfire.domain.invalid_fields import invalid_fields
from nextfire.responses.problems import InvalidField, Problem

MEDIA_TYPE = "application/problem+json"


class MalformedError(NextfireError):
    """The request cannot be parsed."""


class ModelValidationError(NextfireError):
    """A document does not match its model."""

    def __init__(self, errors: list[ErrorDetails], model: type[BaseModel]) -> None:
        self.errors = errors
        self.model = model
        super().__init__(f"not a {model.__name__}")


class MissingScopeError(ForbiddenError):
    """The caller lacks the scope *needed*."""

    def __init__(self, needed: str) -> None:
        super().__init__(
            f"This request needs the scope `{needed}`, which your key, token or role does not "
            "have. Use one that has it."
        )


def problem(
    status: HTTPStatus,
    detail: str,
    errors: list[InvalidField] | None = None,
    *,
    title: str | None = None,
    quota: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    """Respond with a problem document. *errors*: the invalid fields. *title*: replaces the phrase
    of the status. *quota*: the quota that is exceeded.
    """
    document = Problem.of(
        type="about:blank",
        title=title or status.phrase,
        status=status,
        detail=detail,
        quota=quota,
        errors=errors or None,
    ).document
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {"Retry-After": "1", **(headers or {})}
    return Response(status, MEDIA_TYPE, json.dumps(document, ensure_ascii=False), headers)


def problem_of(error: NextfireError, place: str = "") -> Response[str]:
    """The problem response for *error*. *place*: position of the invalid document in the body."""
    if isinstance(error, ModelValidationError):
        return from_validation(error.errors, error.model, place)
    if isinstance(error, InvalidInputError):
        error = error.about(f"{place}.{error.field}") if place else error
        quota = error.quota if isinstance(error, BeyondQuotaError) else None
        invalid = [InvalidField.of(error)]
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), invalid, quota=quota)
    if isinstance(error, QuotaUsedUpError):
        return problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            str(error),
            title="Quota used up",
            quota=error.quota,
            headers={"Retry-After": str(error.retry_after)},
        )
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    for family, answer in (
        (MalformedError, HTTPStatus.BAD_REQUEST),
        (ForbiddenError, HTTPStatus.FORBIDDEN),
        (NotFoundError, HTTPStatus.NOT_FOUND),
        (ConflictError, HTTPStatus.CONFLICT),
        (ChangedError, HTTPStatus.PRECONDITION_FAILED),
        (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    ):
        if isinstance(error, family):
            status = answer
    return problem(status, str(error))


def unreadable(why: str) -> Response[str]:
    """The problem response for a stored item that cannot be decoded."""
    detail = (
        f"The stored item cannot be decoded: {why}. It is kept unchanged, does not run and does "
        "not block anything else. If a newer release wrote it, use that release. If it was changed "
        "by hand, correct it in its table."
    )
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, title="Stored item is unreadable")


def from_validation(
    errors: list[ErrorDetails], model: type[BaseModel] | None, place: str = ""
) -> Response[str]:
    """The problem response for validation *errors*. *model*: the model of the body, or of its part
    at *place*; provides the names of known fields.
    """
    found = invalid_fields(errors, model, place)
    detail = " ".join(map(str, found))
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY, detail, [InvalidField.of(each) for each in found]
    )
