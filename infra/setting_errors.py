"""Errors about settings, for people."""

from pydantic import ValidationError

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
    for fault in error.errors(include_url=False):
        said = _OWN.get(fault["type"]) or problem_text(fault)
        if fault["type"] in _WITH_REMEDY:
            said = f"{said}. {remedy_for(fault, Settings)}"
        key = ".".join(map(str, fault["loc"]))
        lines.append(f"  {key}: {said}" if key else f"  {said}")
    return "\n".join(lines)
