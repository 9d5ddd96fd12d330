"""Every field of a job has a description, a flag, a row in the output, and one in the reference."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from docs import job_reference
from functions.api import openapi
from nextfire_cli import render
from nextfire_cli.flags import FLAGS, WITHOUT_FLAG
from nextfire_cli.job_fields import JOB_FIELDS, JobField

each_field = pytest.mark.parametrize("field", JOB_FIELDS.values(), ids=list(JOB_FIELDS))


@each_field
def test_a_field_has_a_description(field: JobField) -> None:
    assert field.description.endswith(".")


def test_a_field_has_a_flag_or_a_reason_why_not() -> None:
    with_flag = {flag.path for flag in FLAGS}

    assert with_flag | WITHOUT_FLAG.keys() == JOB_FIELDS.keys()
    assert not with_flag & WITHOUT_FLAG.keys()


@each_field
def test_a_field_is_shown_by_get(field: JobField) -> None:
    defaults = document({path: each.default for path, each in JOB_FIELDS.items()})
    changed = document(
        {path: each.default for path, each in JOB_FIELDS.items()} | {field.path: another(field)}
    )

    assert shown(changed) != shown(defaults)


@each_field
def test_a_field_is_in_the_reference(field: JobField) -> None:
    assert f"| `{field.path}` |" in job_reference.page()


def test_the_example_of_a_job_has_every_field_with_a_default() -> None:
    [example] = openapi.description()["components"]["schemas"]["JobResponse"]["examples"]

    for path, field in JOB_FIELDS.items():
        value = example
        for name in path.split("."):
            value = value.get(name)
        assert field.default is None or value is not None, path


def document(values: dict[str, Any]) -> dict[str, Any]:
    """A job with *values* by path; None: absent."""
    job: dict[str, Any] = {"jobId": "nightly"}
    for path, value in values.items():
        *parents, name = path.split(".")
        inner = job
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is not None:
            inner[name] = value
    return job


def another(field: JobField) -> object:
    """A value of *field* other than its default."""
    if "enum" in field.value:
        one = next(each for each in field.value["enum"] if each != field.default)
    else:
        one = field.value.get("maximum", "x")
    if field.path == "after":
        return [{"job": one}]
    if field.is_list:
        return [one]
    return {"x": "y"} if field.is_object else one


def shown(job: dict[str, Any]) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as printed:
        console.print(render.job(job))
    return re.sub(r"\s+", " ", printed.get())
