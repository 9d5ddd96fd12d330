"""The problem and the remedy of each invalid field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nextfire.domain.policies import MAX_RETRY_DELAY_MS, MAX_WINDOW_SEC, RETRIED
from nextfire.domain.schedule import MAX_EXCEPT_DATES, ScheduleType
from nextfire.domain.target import MAX_ENV

_MIN_SIMILARITY = 0.6
"""Minimum similarity, from 0 to 1, of a name that is suggested instead of another."""
_VALUE_ERROR = "Value error, "
"""Prefix that pydantic adds to the messages of our validators."""
_WHOLE_NUMBER = "Use a whole number without quotes. For example `60`."
_MISFIRE = 'misfire is an object, for example `{"policy": "RUN_ALL"}`.'
_OVERLAP = 'overlap is a string, for example `"SKIP"`.'
_WINDOW = f"Use 1 to {MAX_WINDOW_SEC} seconds, or omit it for no window. For example `3600`."
_STATES = ", ".join(RETRIED)
_AUTH = (
    "Use a `type`: bearer, basic, apiKey, oauth2, sigv4 or oidc."
    ' For example `{"type": "bearer", "token": {"secret": "NAME"}}`.'
)
_REMEDIES = {
    "type": f"Use one of {', '.join(ScheduleType)}. For example `CRON`.",
    "misfire.relevancyWindowSec": _WINDOW,
    "misfire": _MISFIRE,
    "retryPolicy": (
        'retryPolicy is an object, for example `{"maxAttempts": 5, "backoff": "FIXED"}`.'
    ),
    "retryPolicy.maxAttempts": (
        "A run has 1 to 100 attempts; unlimited retries are not supported. For example `5`."
    ),
    "retryPolicy.initialDelayMs": (
        f"Use a whole number of milliseconds from 0 to {MAX_RETRY_DELAY_MS}. For example `10000`."
    ),
    "retryPolicy.maxDelayMs": (
        f"Use a whole number of milliseconds from 0 to {MAX_RETRY_DELAY_MS}. For example `3600000`."
    ),
    "retryPolicy.retryOn": 'retryOn is an object, for example `{"states": ["TIMED_OUT"]}`.',
    "retryPolicy.retryOn.states": f'Use a list of {_STATES}. For example `["TIMED_OUT"]`.',
    "retryPolicy.retryOn.exitCodes": (
        "Use a list of 1 to 64 exit codes: 0 to 255, or -64 to -1 for signals. Omit it for all."
        " For example `[75]`."
    ),
    "exceptDates": (
        f"Use a list of at most {MAX_EXCEPT_DATES} dates, each as YYYY-MM-DD. For example"
        ' `["2030-12-25"]`.'
    ),
    "taskId": (
        "Use 1 to 64 letters, digits, hyphens and underscores; start with a letter or a digit."
    ),
    "labels": 'Use an object of strings. For example `{"team": "billing"}`.',
    "scopes": 'Use a list of read, write and admin. For example `["write"]`.',
    "jobs": "Use a list of 1 to 100 jobs, each as for POST /v1/jobs.",
    "target": 'For example `{"handler": "report"}`.',
    "target.handler": (
        "Use the name of a script, not a path: letters, digits, `_`, `.` and `-`, starting with a"
        " letter or a digit. For example `report` or `report.zip`. A suffix `@sha256:DIGEST` with"
        " 64 hexadecimal digits pins the script to its bytes."
    ),
    "target.http.auth": _AUTH,
    "sha256": "Use 64 lower-case hexadecimal digits, as `sha256sum FILE` prints them.",
    "signature": "Use an ed25519 signature, see `nextfire scripts push --sign`.",
    "size": "Use the size of the file in bytes, 1 to 10485760: executors accept no larger script.",
    "target.script": "For example `s3://BUCKET/pools/POOL/TENANT/report.py`.",
    "target.env": (
        f"Use an object of at most {MAX_ENV} variables. "
        'For example `{"LOG_LEVEL": "debug", "API_KEY": {"secret": "billing/key"}}`.'
    ),
}
"""Remedies by field, for fields that have one remedy for all errors."""
_PROBLEMS = {
    ("target.http.auth", "union_tag_not_found"): "`type` is missing",
    ("target.http.auth", "union_tag_invalid"): "unknown `type`",
    ("target.handler", "string_pattern_mismatch"): "not the name of a script of the pool",
    ("target.script", "string_pattern_mismatch"): "not an s3:// URL",
    ("exceptDates", "string_pattern_mismatch"): "not a date",
    ("retryPolicy.retryOn.exitCodes", "too_short"): "an empty list",
    ("taskId", "string_pattern_mismatch"): (
        "not the name of a script: without a target, taskId names the script"
    ),
    ("retryPolicy.retryOn.states", "literal_error"): f"not one of {_STATES}",
}
"""Own messages for some errors of pydantic, by field and error type."""
_IN_JSON = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "list_type": "Input should be a valid array",
    "tuple_type": "Input should be a valid array",
    "extra_forbidden": "unknown field",
    "missing": "required field is missing",
}
"""Messages in JSON terms for errors that pydantic words in Python terms."""
ENV = ("target", "env")
_ENV_NAME = "Use letters, digits and `_`; do not start with a digit. For example `API_KEY`."
_ENV_VALUE = (
    'Use a string of at most 4096 characters, or `{"secret": "NAME"}`, or `{"parameter": "NAME"}`.'
)
_REFERENCE = (
    "Use a name below the tenant's prefix: segments of letters, digits and `_+=@.-`, separated by"
    " `/`; no segment starts with a dot. For example `billing/api-key`."
)
_INDEX = re.compile(r"\.[0-9]+$")
_OF_RESPONSES = ("revision", "nextFireAt", "createdAt", "updatedAt", "upcoming", "lastRun")
_ELSEWHERE = {
    "jobId": "A job keeps its id: omit this field.",
    "id": "Did you mean `jobId`?",
    "tz": "Did you mean `timezone`?",
    "tags": "Did you mean `labels`?",
    **dict.fromkeys(("except", "exclude", "holidays", "skip"), "Did you mean `exceptDates`?"),
    "command": "Write a script that starts the command, and name it as target.handler.",
    "state": "Use POST /v1/jobs/{jobId}/pause or /resume, or DELETE the job.",
    "policy": 'It is misfire.policy: `{"misfire": {"policy": "RUN_ALL"}}`.',
    "relevancyWindowSec": (
        'It is misfire.relevancyWindowSec: `{"misfire": {"relevancyWindowSec": 3600}}`.'
    ),
    **dict.fromkeys(_OF_RESPONSES, "It is a field of responses only: omit it."),
}
"""Remedies for fields that belong elsewhere."""


def problem_text(fault: ErrorDetails) -> str:
    field, kind = ".".join(map(str, fault["loc"])), fault["type"]
    if kind == "string_pattern_mismatch" and fault["loc"][:2] == ENV:
        return "not the name of a variable" if fault["loc"][-1] == "[key]" else "not a reference"
    if kind == "string_type" and fault["loc"][:2] == ENV:
        return "neither a string nor a reference"
    if kind == "too_short" and fault.get("ctx", {}).get("actual_length") == 0:
        return "an empty list"
    ours = _PROBLEMS.get((_INDEX.sub("", field), kind))
    return ours or _IN_JSON.get(kind) or fault["msg"].removeprefix(_VALUE_ERROR)


def closest(name: str, known: Mapping[str, str], similarity: float) -> str | None:
    """The remedy for an unknown *name*: the closest of *known*, if its *similarity* is at least
    this, from 0 to 1. *known*: names by how they are compared with *name*.
    """
    from difflib import get_close_matches  # noqa: PLC0415 — slow to import, seldom needed

    like = get_close_matches(name, known, 1, similarity)
    return f"Did you mean `{known[like[0]]}`?" if like else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The remedy for an unknown *name*: the closest of *known*, if one is similar."""
    spelled = {each.lower(): each for each in known}
    return closest(name.lower().replace("_", ""), spelled, _MIN_SIMILARITY)


def _fields(
    model: type[BaseModel] | None, path: Sequence[int | str]
) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of an object at *path* in a document of *model*, with their names."""
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
        yield from ((field.alias or name, field) for name, field in each.model_fields.items())


def _within(
    known: Iterable[str], model: type[BaseModel] | None, path: Sequence[int | str]
) -> str | None:
    """The remedy for an unknown field at *path* that one of the *known* objects next to it has."""
    *outer, own = path
    found = (name for name in known if own in dict(_fields(model, [*outer, name])))
    return next((f"Did you mean `{name}.{own}`?" for name in found), None)


def _purpose(model: type[BaseModel] | None, path: Sequence[int | str]) -> str | None:
    """The description and an example of the field at *path*, if its declaration has both."""
    *outer, own = path or ("",)
    for name, field in _fields(model, outer):
        if name == own and field.description and field.examples:
            example = field.examples[0]
            shown = example if isinstance(example, str) else json.dumps(example)
            return f"{field.description} For example `{shown}`."
    return None


def _required(model: type[BaseModel] | None, path: Sequence[int | str]) -> dict[str, object]:
    """An example of each required field of the object at *path* that has one."""
    found = (each for each in _fields(model, path) if each[1].is_required() and each[1].examples)
    return {name: field.examples[0] for name, field in found if field.examples}


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def remedy_for(fault: ErrorDetails, model: type[BaseModel] | None) -> str:
    """How to fix *fault*: an example if the message already states what is allowed."""
    kind, context, field = fault["type"], fault.get("ctx", {}), ".".join(map(str, fault["loc"]))
    if kind == "extra_forbidden" and field in _ELSEWHERE:
        return _ELSEWHERE[field]
    if kind == "extra_forbidden":
        known = [name for name, _ in _fields(model, fault["loc"][:-1])]
        like = nearest(str(fault["loc"][-1]), known) or _within(known, model, fault["loc"])
        return like or "Omit this field, or check its spelling in the documentation."
    if (remedy := _REMEDIES.get(_INDEX.sub("", field))) and kind != "enum":
        return remedy
    if fault["loc"][:2] == ENV and kind != "extra_forbidden":
        if fault["loc"][-1] == "[key]":
            return _ENV_NAME
        return _ENV_VALUE if len(fault["loc"]) == 3 else _REFERENCE  # noqa: PLR2004
    if field == "overlap" and not isinstance(fault["input"], str):
        return _OVERLAP
    if kind in {"enum", "literal_error"}:
        expected = str(context["expected"])  # True, or texts in quotes
        allowed = expected.split("'")[1::2] or [expected.lower()]
        like = nearest(fault["input"], allowed) if isinstance(fault["input"], str) else None
        return like or f"Use one of these values. For example `{allowed[0]}`."
    if (bound := context.get("ge", context.get("le"))) is not None:
        return f"For example `{bound}`."
    if kind in {"string_too_short", "string_too_long"}:
        return f"Its length is {len(fault['input'])}."
    if kind == "model_type" and (members := _required(model, fault["loc"])):
        return f"Use a JSON object. For example `{json.dumps(members)}`."
    purpose = _purpose(model, fault["loc"])
    remedies = {
        "missing": purpose or "Add this field.",
        "string_pattern_mismatch": purpose,
        "int_parsing": _WHOLE_NUMBER,
        "int_type": _WHOLE_NUMBER,
        "int_from_float": _WHOLE_NUMBER,
        "model_type": "Use a JSON object, or omit the field.",
        "json_invalid": "Use surrogates (\\ud800 to \\udfff) in pairs only.",
    }
    return remedies.get(kind) or "Use a value of the type that the message names."
