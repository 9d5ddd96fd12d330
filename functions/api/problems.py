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
from nextfire.domain.job import MAX_WINDOW_SEC

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20
_MOST_OF_A_VALUE = 120
_WHOLE_NUMBER = "Give a whole number, unquoted. For example `60`."
_MISFIRE = 'misfire is an object, for example `{"policy": "RUN_ALL"}`.'
_OVERLAP = 'overlap is a text, for example `"SKIP"`.'
_WINDOW = f"1 to {MAX_WINDOW_SEC} seconds; leave it out for no window. For example `3600`."
_ELSEWHERE = {
    "jobId": "A job keeps its id; leave this field out.",
    "state": "Use POST /v1/jobs/{jobId}/pause or /resume, or DELETE the job.",
    "policy": 'It is misfire.policy: `{"misfire": {"policy": "RUN_ALL"}}`.',
    "relevancyWindowSec": (
        'It is misfire.relevancyWindowSec: `{"misfire": {"relevancyWindowSec": 3600}}`.'
    ),
}
"""Of fields that belong somewhere else: where."""


class MalformedError(NextfireError):
    """The request cannot be read at all."""


def problem(
    status: HTTPStatus,
    detail: str,
    errors: list[dict[str, str]] | None = None,
    *,
    title: str | None = None,
) -> Response[str]:
    """A problem document. *errors* tell each offending field with its value, problem and remedy;
    *title* says more than the status does by itself.
    """
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": title or status.phrase,
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


def unreadable(why: str) -> Response[str]:
    """The problem that a stored item is which does not decode."""
    detail = (
        f"What is stored does not read as what it should be: {why}. It is kept as it is, blocks "
        "nothing else, and nothing of it runs. An item written by a newer release is read by that "
        "release; one changed by hand has to be put right in its table."
    )
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, title="Stored item is unreadable")


def from_validation(error: ValidationError) -> Response[str]:
    """The problem that a document which does not fit its model is."""
    faults = [
        {
            "field": ".".join(str(part) for part in fault["loc"]) or "body",
            "value": "absent" if _absent(fault) else _shown(fault["input"]),
            "problem": fault["msg"],
            # Our own validators know better what would do.
            "remedy": fault.get("ctx", {}).get("remedy") or _remedy(fault),
        }
        for fault in error.errors(include_url=False)[:_MOST_ERRORS]
    ]
    detail = " ".join(
        f"{fault['field']}: {fault['problem']} (got {fault['value']}). {fault['remedy']}"
        for fault in faults
    )
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, faults)


def _shown(value: object) -> str:
    """*value* shortened: a text as our own errors show it, anything else as JSON."""
    if isinstance(value, str):
        return shorten(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_OF_A_VALUE else text[: _MOST_OF_A_VALUE - 1] + "…"


def _absent(fault: ErrorDetails) -> bool:
    return fault["type"] == "missing" or (
        fault["type"] == "schedule_form" and fault["input"] is None
    )


def _remedy(fault: ErrorDetails) -> str:
    """What would do instead; with an example where the fault itself says what is allowed."""
    kind, told, field = fault["type"], fault.get("ctx", {}), ".".join(map(str, fault["loc"]))
    if kind == "extra_forbidden" and field in _ELSEWHERE:
        return _ELSEWHERE[field]
    if field == "misfire.relevancyWindowSec":
        return _WINDOW
    if field == "misfire":
        return _MISFIRE
    if field == "overlap" and not isinstance(fault["input"], str):
        return _OVERLAP
    if kind == "enum":
        example = str(told["expected"]).split("'")[1]
        return f"Use one of the values named. For example `{example}`."
    if (bound := told.get("ge", told.get("le"))) is not None:
        return f"For example `{bound}`."
    remedies = {
        "missing": "Add this field.",
        "extra_forbidden": "Leave this field out; check its spelling against the documentation.",
        "int_parsing": _WHOLE_NUMBER,
        "int_type": _WHOLE_NUMBER,
        "int_from_float": _WHOLE_NUMBER,
        "model_type": "Give a JSON object, or leave the field out.",
    }
    return remedies.get(kind, "Give a value of the kind named.")
