"""Errors as RFC 9457 problem details: what went wrong, in which field, and what to do."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NextfireError,
    NotFoundError,
    UnavailableError,
    shorten,
)

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20


class MalformedError(NextfireError):
    """The request cannot be read at all."""


def problem(
    status: HTTPStatus, detail: str, errors: list[dict[str, str]] | None = None
) -> Response[str]:
    """A problem document. *errors* tell each offending field with its value, problem and remedy."""
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
    }
    if errors:
        document["errors"] = errors
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(status, MEDIA_TYPE, json.dumps(document, ensure_ascii=False), headers)


def problem_of(error: NextfireError) -> Response[str]:
    """The problem that *error* is for the caller."""
    if isinstance(error, InvalidInputError):
        fault = {
            "field": error.field,
            "value": error.value,
            "problem": error.problem,
            "remedy": error.remedy,
        }
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), [fault])
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    for family, answer in (
        (MalformedError, HTTPStatus.BAD_REQUEST),
        (NotFoundError, HTTPStatus.NOT_FOUND),
        (ConflictError, HTTPStatus.CONFLICT),
        (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    ):
        if isinstance(error, family):
            status = answer
    return problem(status, str(error))


def from_validation(error: ValidationError) -> Response[str]:
    """The problem that a document which does not fit its model is."""
    faults = [
        {
            "field": ".".join(str(part) for part in fault["loc"]) or "body",
            "value": "absent" if _absent(fault) else shorten(fault["input"]),
            "problem": fault["msg"],
            # Our own validators know better what would do.
            "remedy": fault.get("ctx", {}).get("remedy") or _remedy(fault["type"]),
        }
        for fault in error.errors(include_url=False)[:_MOST_ERRORS]
    ]
    detail = "; ".join(f"{fault['field']}: {fault['problem']}" for fault in faults)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, faults)


def _absent(fault: ErrorDetails) -> bool:
    return fault["type"] == "missing" or (
        fault["type"] == "schedule_form" and fault["input"] is None
    )


def _remedy(kind: str) -> str:
    remedies = {
        "missing": "Add this field.",
        "extra_forbidden": "Leave this field out; check its spelling against the documentation.",
        "enum": "Use one of the values named.",
    }
    return remedies.get(kind, "Give a value of the kind named.")
