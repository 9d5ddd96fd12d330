"""Errors as RFC 9457 problem details: what went wrong, in which field, and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from functions.api.remedies import ENV, problem_text, remedy_for
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
    shorten,
)
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire.responses.problems import InvalidField, Problem

MEDIA_TYPE = "application/problem+json"
_MAX_ERRORS = 20
_MAX_VALUE_CHARS = 120


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
            f"This request needs the scope `{needed}`, which your key or token does not have. "
            "Use one that has it."
        )


_MAY_BE_SECRET = frozenset({"auth", "headers", "sign", "tls"})
"""Members of `target.http` in which a secret may have been written instead of a reference."""


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
    invalid: dict[str, InvalidField] = {}  # by its part of the detail
    for fault in _relevant(errors):
        field = ".".join(filter(None, [place, *map(str, fault["loc"])])) or "body"
        value = "absent" if _absent(fault) else _shown(fault["input"])
        if _is_secret(fault["loc"]) and value != "absent":
            value = "hidden"
        # The remedy of our own validators is more specific.
        remedy = fault.get("ctx", {}).get("remedy") or remedy_for(fault, model)
        text = f"{field}: {(wrong := problem_text(fault))} (got {value}). {remedy}"
        if text not in invalid:
            invalid[text] = InvalidField.of(field=field, value=value, problem=wrong, remedy=remedy)
        if len(invalid) == _MAX_ERRORS:
            break  # a body can have 30,000 errors, and each costs CPU
    detail = " ".join(invalid)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, [*invalid.values()])


def _relevant(faults: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """*faults* without misleading ones. The value of a variable has three possible forms: only
    errors of the intended form are kept. "Too short" is dropped for a list whose items are invalid.
    """
    within = {fault["loc"][:-1] for fault in faults}
    text, secret, parameter = (
        "constrained-str", SecretReference.__name__, ParameterReference.__name__,
    )  # fmt: skip
    given: dict[str, object] = {}
    for fault in faults:
        if fault["loc"][:2] == ENV and len(fault["loc"]) == 4 and fault["loc"][3] == text:  # noqa: PLR2004
            given[str(fault["loc"][2])] = fault["input"]
    for fault in faults:
        loc = fault["loc"]
        if fault["type"] == "too_short" and loc in within:
            continue
        if loc[:2] != ENV or len(loc) < 4 or loc[3] == "[key]":  # noqa: PLR2004
            yield fault
            continue
        value = given.get(str(loc[2]))
        form = text
        if isinstance(value, dict) and value.keys() & {"secret", "parameter"}:
            form = secret if "secret" in value else parameter
        if loc[3] == form:
            yield {**fault, "loc": (*loc[:3], *loc[4:])}


def _is_secret(loc: tuple[int | str, ...]) -> bool:
    """Whether the value at *loc* may be a secret that a reference should replace."""
    return any(name in _MAY_BE_SECRET for name in loc) and "http" in loc


def _shown(value: object) -> str:
    """*value*, shortened: a string as our own errors show it, anything else as JSON."""
    if isinstance(value, str):
        return shorten(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


def _absent(fault: ErrorDetails) -> bool:
    return fault["type"] == "missing" or (
        fault["type"] == "schedule_form" and fault["input"] is None
    )
