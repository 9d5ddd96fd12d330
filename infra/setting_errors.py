"""Errors about settings, for people."""

import re
from collections.abc import Sequence
from datetime import timedelta

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from infra.setting_types import iso8601
from infra.settings import Settings
from nextfire.domain.remedies import problem_text, remedy_for

INVALID = "Invalid settings in cdk.json (or in -c options):"
_BOUND = re.compile(r"datetime\.timedelta\((days|seconds)=([0-9]+)\)")
_WITH_REMEDY = {"extra_forbidden", "literal_error", "enum"}
"""Errors whose message does not say what was probably meant."""
_DURATION = "not an ISO 8601 duration. For example `P30D` or `PT90S`."
_OWN = {"time_delta_parsing": _DURATION, "time_delta_type": _DURATION}


def explain(error: ValidationError) -> str:
    """Return *error*, of settings, as a line for each invalid key. It has no values: some are
    secret.
    """
    lines = [INVALID]
    faults = error.errors(include_url=False)
    for fault in faults:
        if fault["type"] == "too_short" and _has_invalid_value(fault["loc"], faults):
            continue
        said = _OWN.get(fault["type"]) or _BOUND.sub(_in_iso8601, problem_text(fault))
        if fault["type"] in _WITH_REMEDY:
            said = f"{said}. {remedy_for(fault, Settings)}"
        key = ".".join(map(str, fault["loc"]))
        lines.append(f"  {key}: {said}" if key else f"  {said}")
    return "\n".join(lines)


def _in_iso8601(found: re.Match[str]) -> str:
    """A bound that is a duration, which Pydantic shows as Python code."""
    unit, number = found.groups()
    return f"P{number}D" if unit == "days" else iso8601(timedelta(seconds=int(number)))


def _has_invalid_value(loc: tuple[int | str, ...], faults: Sequence[ErrorDetails]) -> bool:
    """Whether one of *faults* is about a value in the list at *loc*, of which Pydantic counts the
    valid ones only.
    """
    return any(fault["loc"] != loc and fault["loc"][: len(loc)] == loc for fault in faults)
