"""Errors about settings, for people."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from infra.settings import Settings
from nextfire.domain.remedies import problem_text, remedy_for

_WITH_REMEDY = {"extra_forbidden", "literal_error", "enum"}
"""Errors whose message does not say what was probably meant."""
_OWN = {"time_delta_parsing": "not an ISO 8601 duration. For example `P30D` or `PT90S`."}


def explain(error: ValidationError) -> str:
    """Return *error*, of settings, as a line for each invalid key. It has no values: some are
    secret.
    """
    lines = ["Invalid settings in cdk.json (or in -c options):"]
    faults = error.errors(include_url=False)
    for fault in faults:
        if fault["type"] == "too_short" and _has_invalid_value(fault["loc"], faults):
            continue
        said = _OWN.get(fault["type"]) or problem_text(fault)
        if fault["type"] in _WITH_REMEDY:
            said = f"{said}. {remedy_for(fault, Settings)}"
        key = ".".join(map(str, fault["loc"]))
        lines.append(f"  {key}: {said}" if key else f"  {said}")
    return "\n".join(lines)


def _has_invalid_value(loc: tuple[int | str, ...], faults: Sequence[ErrorDetails]) -> bool:
    """Whether one of *faults* is about a value in the list at *loc*, of which Pydantic counts the
    valid ones only.
    """
    return any(fault["loc"] != loc and fault["loc"][: len(loc)] == loc for fault in faults)
