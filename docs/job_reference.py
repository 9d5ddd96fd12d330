"""Writes the table of fields in docs/reference/job.md from the model."""  # noqa: INP001 - see reference.py

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from functions.api.job_requests import JobRequest
from nextfire_cli.job_fields import JobField, fields_of

PAGE = Path(__file__).with_name("reference") / "job.md"
_BEGIN = "<!-- The fields, written by `make docs`. -->\n"
_END = "<!-- End of the fields. -->\n"
_MORE = {
    "type": "../guide/schedules.md",
    "dst": "../guide/schedules.md#daylight-saving-time",
    "exceptDates": "../guide/schedules.md#dates-without-occurrences",
    "retryPolicy.retryOn.states": "../guide/runs.md#attempts-and-retries",
    "priority": "../guide/policies.md#dispatch-order",
    "misfire.policy": "../guide/policies.md#misfire",
    "overlap": "../guide/policies.md#overlap",
    "labels": "../guide/operating-jobs.md#many-jobs-at-a-time",
}
"""Pages that explain more than the description."""


def page() -> str:
    """Return the whole page: the table of fields between what is written by hand."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n" + "\n".join(_rows()) + f"\n\n{_END}{after}"


def _rows() -> Iterator[str]:
    yield "| field | meaning | default | bounds |\n|---|---|---|---|"
    fields = fields_of(JobRequest)
    for field in sorted(fields.values(), key=lambda each: each.path != "jobId"):
        more = f" [More]({_MORE[field.path]})." if field.path in _MORE else ""
        meaning = field.description + more
        bounds = "; ".join(_bounds(field.schema))
        yield f"| `{field.path}` | {_cell(meaning)} | {_default(field)} | {_cell(bounds)} |"


def _default(field: JobField) -> str:
    if field.is_required:
        return "required"
    if field.default is None:
        return "none"
    if isinstance(field.default, list):
        return f"`{', '.join(field.default)}`"
    return f"`{field.default if isinstance(field.default, str) else json.dumps(field.default)}`"


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    """The values that *schema* allows."""
    if "enum" in schema:
        yield ", ".join(schema["enum"])
    yield from _range(schema, "minimum", "maximum", "")
    yield from _range(schema, "minLength", "maxLength", " characters")
    yield from _range(schema, "minItems", "maxItems", " items")
    yield from _range(schema, "minProperties", "maxProperties", " members")
    if "pattern" in schema and "maxLength" not in schema:
        yield f"`{schema['pattern']}`"
    if "anyOf" in schema:
        forms = ("; ".join(_bounds(each)) for each in schema["anyOf"])
        yield ", or ".join(filter(None, forms))
    parts = {"each": schema.get("items"), "names": schema.get("propertyNames")}
    for values in (
        schema.get("additionalProperties"),
        *schema.get("patternProperties", {}).values(),
    ):
        parts["values"] = values
    for name, part in parts.items():
        if isinstance(part, dict):
            yield from (f"{name} {text}" for text in _bounds(part))


def _range(schema: Mapping[str, Any], least: str, most: str, unit: str) -> Iterator[str]:
    low, high = schema.get(least), schema.get(most)
    if high is not None:
        yield f"at most {high:,}{unit}" if low is None else f"{low:,} to {high:,}{unit}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
