"""Job documents from flags and files."""

from typing import Any

import typer

from nextfire.domain.when import WhenDocument
from nextfire_cli.documents import Document
from nextfire_cli.flag_kinds import merged
from nextfire_cli.flags import FLAGS, WHEN
from nextfire_cli.job_fields import JOB_FIELDS
from nextfire_cli.job_files import read_job

SCHEDULE_FIELDS = frozenset(
    field.alias or name for name, field in WhenDocument.model_fields.items()
)
"""Fields of a job document that make up its schedule."""
SCHEDULE_FLAGS = [flag for flag in FLAGS if flag.path in SCHEDULE_FIELDS]


def definition(file: str | None = None, **typed: Any) -> Document:  # noqa: ANN401 - any flag
    """Return the job document in *file*, overridden by flags. *typed*: the values of flags, by
    `Flag.parameter`. Fields that neither sets are absent.

    Raises:
        typer.BadParameter: A value is invalid, or flags contradict each other.
    """
    document = read_job(file) if file else {}
    for path, value in _changes(typed).items():
        *parents, name = path.split(".")
        inner = document
        for parent in parents:
            inner[parent] = _object(inner.get(parent))
            inner = inner[parent]
        by_name = JOB_FIELDS[path].is_object
        inner[name] = {**_object(inner.get(name)), **value} if by_name else value
    return document


def _changes(typed: Document) -> Document:
    """Return the values that flags set, by the path of the field."""
    changes: Document = {}
    for flag in FLAGS:
        given = typed.get(flag.parameter)
        if given is None or given == []:
            continue
        value: Any = flag.value(given)
        if flag.path in changes:  # by another flag
            if not flag.field.is_object:
                raise typer.BadParameter("use only one of them", param_hint=WHEN)
            value = merged(changes[flag.path], value, flag)
        if flag.type:
            changes["type"] = flag.type.value
        changes[flag.path] = value
    return changes


def _object(value: object) -> Document:
    return dict(value) if isinstance(value, dict) else {}
