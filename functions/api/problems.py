"""Errors as RFC 9457 problem details: what went wrong, in which field, and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, get_args

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
    shorten,
)
from nextfire.domain.job import (
    MAX_ENV,
    MAX_RETRY_DELAY_MS,
    MAX_WINDOW_SEC,
    RETRIED,
    ParameterReference,
    SecretReference,
)

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20
_MOST_OF_A_VALUE = 120
_LIKE = 0.6
"""Minimum similarity, from 0 to 1, of a name that is suggested instead of another."""
_VALUE_ERROR = "Value error, "
"""Prefix that pydantic adds to the messages of our validators."""
_WHOLE_NUMBER = "Give a whole number, unquoted. For example `60`."
_MISFIRE = 'misfire is an object, for example `{"policy": "RUN_ALL"}`.'
_OVERLAP = 'overlap is a text, for example `"SKIP"`.'
_WINDOW = f"1 to {MAX_WINDOW_SEC} seconds; leave it out for no window. For example `3600`."
_STATES = ", ".join(RETRIED)
_REMEDIES = {
    "misfire.relevancyWindowSec": _WINDOW,
    "misfire": _MISFIRE,
    "retryPolicy": (
        'retryPolicy is an object, for example `{"maxAttempts": 5, "backoff": "FIXED"}`.'
    ),
    "retryPolicy.maxAttempts": (
        "A run has 1 to 100 attempts; unlimited retries are not supported. For example `5`."
    ),
    "retryPolicy.initialDelayMs": (
        f"A whole number of milliseconds from 0 to {MAX_RETRY_DELAY_MS}. For example `10000`."
    ),
    "retryPolicy.maxDelayMs": (
        f"A whole number of milliseconds from 0 to {MAX_RETRY_DELAY_MS}. For example `3600000`."
    ),
    "retryPolicy.retryOn": 'retryOn is an object, for example `{"states": ["TIMED_OUT"]}`.',
    "retryPolicy.retryOn.states": f'A list of {_STATES}. For example `["TIMED_OUT"]`.',
    "retryPolicy.retryOn.exitCodes": (
        "A list of 1 to 64 exit codes from 0 to 255, or of signals from -64; leave it out for all."
        " For example `[75]`."
    ),
    "taskId": (
        "1 to 64 letters, digits, hyphens and underscores, beginning with a letter or a digit."
    ),
    "labels": 'An object of texts by name. For example `{"team": "billing"}`.',
    "scopes": 'A list of read, write and admin. For example `["write"]`.',
    "jobs": "A list of 1 to 100 jobs, each as for POST /v1/jobs.",
    "target": 'For example `{"handler": "report"}`.',
    "target.handler": (
        "A script is named by letters, digits, `_`, `.` and `-`, beginning with a letter or a"
        " digit; by no path. For example `report`, or `report.zip`. With `@sha256:` and the 64"
        " hexadecimal digits of a digest behind it, only those bytes run."
    ),
    "sha256": "64 hexadecimal digits, in lower case: what `sha256sum FILE` prints.",
    "signature": "An ed25519 signature in base64, 88 characters: `nextfire scripts push --sign`.",
    "size": "The bytes of the file, 1 to 10485760: a larger one no executor takes.",
    "target.script": "For example `s3://BUCKET/TENANT/report.py`.",
    "target.env": (
        f"An object of at most {MAX_ENV} variables. "
        'For example `{"LOG_LEVEL": "debug", "API_KEY": {"secret": "billing/key"}}`.'
    ),
}
"""Remedies by field, for fields that have one remedy for all errors."""
_PROBLEMS = {
    ("target.handler", "string_pattern_mismatch"): "not the name of a script of the pool",
    ("target.script", "string_pattern_mismatch"): "not an s3:// URL",
    ("retryPolicy.retryOn.exitCodes", "too_short"): "holds no exit code",
    ("taskId", "string_pattern_mismatch"): "not the name of a script, which it is without a target",
    ("retryPolicy.retryOn.states", "literal_error"): f"not one of {_STATES}",
}
"""Our messages for some errors of pydantic, by field and error type."""
_IN_JSON = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "list_type": "Input should be a valid array",
    "tuple_type": "Input should be a valid array",
}
"""Messages in JSON terms for errors that pydantic words in Python terms."""
_ENV = ("target", "env")
_ENV_NAME = "Use letters, digits and `_`, beginning with no digit. For example `API_KEY`."
_ENV_VALUE = (
    'A text of at most 4096 characters, or `{"secret": "NAME"}`, or `{"parameter": "NAME"}`.'
)
_REFERENCE = (
    "Names of letters, digits and `_+=@.-`, divided by `/`, below the tenant's own prefix: no"
    " segment begins with a dot. For example `billing/api-key`."
)
_INDEX = re.compile(r"\.[0-9]+$")
_ELSEWHERE = {
    "jobId": "A job keeps its id; leave this field out.",
    "state": "Use POST /v1/jobs/{jobId}/pause or /resume, or DELETE the job.",
    "policy": 'It is misfire.policy: `{"misfire": {"policy": "RUN_ALL"}}`.',
    "relevancyWindowSec": (
        'It is misfire.relevancyWindowSec: `{"misfire": {"relevancyWindowSec": 3600}}`.'
    ),
}
"""Remedies for fields that belong elsewhere."""


class MalformedError(NextfireError):
    """The request cannot be read at all."""


class UnfitError(NextfireError):
    """A document does not fit its model."""

    def __init__(self, errors: list[ErrorDetails], model: type[BaseModel]) -> None:
        self.errors = errors
        self.model = model
        super().__init__(f"no {model.__name__}")


class MissingScopeError(ForbiddenError):
    """The caller lacks the scope *needed*."""

    def __init__(self, needed: str) -> None:
        super().__init__(
            f"This needs the scope `{needed}`, which your key or token does not give. "
            "Use one that does."
        )


def problem(
    status: HTTPStatus,
    detail: str,
    errors: list[dict[str, str]] | None = None,
    *,
    title: str | None = None,
    quota: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    """Respond with a problem document. *errors*: field, value, problem and remedy of each invalid
    field. *title*: replaces the phrase of the status. *quota*: the quota that is exceeded.
    """
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": title or status.phrase,
        "status": int(status),
        "detail": detail,
    }
    if quota:
        document["quota"] = quota
    if errors:
        document["errors"] = errors
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {"Retry-After": "1", **(headers or {})}
    return Response(status, MEDIA_TYPE, json.dumps(document, ensure_ascii=False), headers)


def problem_of(error: NextfireError, place: str = "") -> Response[str]:
    """The problem response for *error*. *place*: position of the invalid document in the body."""
    if isinstance(error, UnfitError):
        return from_validation(error.errors, error.model, place)
    if isinstance(error, InvalidInputError):
        error = error.about(f"{place}.{error.field}") if place else error
        fault = {
            "field": error.field,
            "value": error.value,
            "problem": error.problem,
            "remedy": error.remedy,
        }
        quota = error.quota if isinstance(error, BeyondQuotaError) else None
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), [fault], quota=quota)
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
        f"What is stored does not read as what it should be: {why}. It is kept as it is, blocks "
        "nothing else, and nothing of it runs. An item written by a newer release is read by that "
        "release; one changed by hand has to be put right in its table."
    )
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, title="Stored item is unreadable")


def from_validation(
    errors: list[ErrorDetails], model: type[BaseModel] | None, place: str = ""
) -> Response[str]:
    """The problem that a request is of which *errors* were found. *model*: what its body should be,
    or what stands at *place* of it; of that it has its field names.
    """
    faults: list[dict[str, str]] = []
    for fault in _meant(errors):
        told = {
            "field": ".".join(filter(None, [place, *map(str, fault["loc"])])) or "body",
            "value": "absent" if _absent(fault) else _shown(fault["input"]),
            "problem": _problem(fault),
            # Our own validators know better what would do.
            "remedy": fault.get("ctx", {}).get("remedy") or _remedy(fault, model),
        }
        if told not in faults:
            faults.append(told)
        if len(faults) == _MOST_ERRORS:
            break  # a body has room for 30,000, and each takes its time
    detail = " ".join(
        f"{fault['field']}: {fault['problem']} (got {fault['value']}). {fault['remedy']}"
        for fault in faults
    )
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, faults)


def _meant(faults: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """*faults*, but of a variable's value, which may have three forms, only what is wrong with the
    one that was meant; and nothing of a list that is short only for what is wrong within.
    """
    within = {fault["loc"][:-1] for fault in faults}
    text, secret, parameter = (
        "constrained-str", SecretReference.__name__, ParameterReference.__name__,
    )  # fmt: skip
    given: dict[str, object] = {}
    for fault in faults:
        if fault["loc"][:2] == _ENV and len(fault["loc"]) == 4 and fault["loc"][3] == text:  # noqa: PLR2004
            given[str(fault["loc"][2])] = fault["input"]
    for fault in faults:
        loc = fault["loc"]
        if fault["type"] == "too_short" and loc in within:
            continue
        if loc[:2] != _ENV or len(loc) < 4 or loc[3] == "[key]":  # noqa: PLR2004
            yield fault
            continue
        value = given.get(str(loc[2]))
        form = text
        if isinstance(value, dict) and value.keys() & {"secret", "parameter"}:
            form = secret if "secret" in value else parameter
        if loc[3] == form:
            yield {**fault, "loc": (*loc[:3], *loc[4:])}


def _problem(fault: ErrorDetails) -> str:
    field, kind = ".".join(map(str, fault["loc"])), fault["type"]
    if kind == "string_pattern_mismatch" and fault["loc"][:2] == _ENV:
        return "not a variable's name" if fault["loc"][-1] == "[key]" else "not a reference"
    if kind == "string_type" and fault["loc"][:2] == _ENV:
        return "neither a text nor a reference"
    ours = _PROBLEMS.get((_INDEX.sub("", field), kind))
    return ours or _IN_JSON.get(kind) or fault["msg"].removeprefix(_VALUE_ERROR)


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The remedy for an unknown *name*: the closest of *known*, if one is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 — slow to import, seldom needed

    spelt = {each.lower(): each for each in known}
    like = get_close_matches(name.lower().replace("_", ""), spelt, 1, _LIKE)
    return f"Did you mean `{spelt[like[0]]}`?" if like else None


def _known(model: type[BaseModel] | None, path: Sequence[int | str]) -> Iterator[str]:
    """The names of the fields that an object at *path* in a document of *model* may have."""
    models = [model] if model else []
    for part in path:
        fields = [
            field
            for each in models
            for name, field in each.model_fields.items()
            if part == (field.alias or name)
        ]
        # Other parts are names of variables or indexes of a list.
        if fields:
            models = [inner for field in fields for inner in _models(field.annotation)]
    for each in models:
        yield from (field.alias or name for name, field in each.model_fields.items())


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _remedy(fault: ErrorDetails, model: type[BaseModel] | None) -> str:
    """How to fix *fault*; with an example if the message already states what is allowed."""
    kind, told, field = fault["type"], fault.get("ctx", {}), ".".join(map(str, fault["loc"]))
    if kind == "extra_forbidden" and field in _ELSEWHERE:
        return _ELSEWHERE[field]
    if kind == "extra_forbidden":
        like = nearest(str(fault["loc"][-1]), _known(model, fault["loc"][:-1]))
        return like or "Leave this field out; check its spelling against the documentation."
    if (remedy := _REMEDIES.get(_INDEX.sub("", field))) and kind not in {"missing", "enum"}:
        return remedy
    if fault["loc"][:2] == _ENV and kind != "extra_forbidden":
        if fault["loc"][-1] == "[key]":
            return _ENV_NAME
        return _ENV_VALUE if len(fault["loc"]) == 3 else _REFERENCE  # noqa: PLR2004
    if field == "overlap" and not isinstance(fault["input"], str):
        return _OVERLAP
    if kind == "enum":
        allowed = str(told["expected"]).split("'")[1::2]
        like = nearest(fault["input"], allowed) if isinstance(fault["input"], str) else None
        return like or f"Use one of the values named. For example `{allowed[0]}`."
    if (bound := told.get("ge", told.get("le"))) is not None:
        return f"For example `{bound}`."
    remedies = {
        "missing": "Add this field.",
        "int_parsing": _WHOLE_NUMBER,
        "int_type": _WHOLE_NUMBER,
        "int_from_float": _WHOLE_NUMBER,
        "model_type": "Give a JSON object, or leave the field out.",
        "json_invalid": "Write no half of a surrogate pair (\\ud800 to \\udfff) without the other.",
    }
    return remedies.get(kind, "Give a value of the kind named.")
