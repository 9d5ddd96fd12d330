"""Forms of the output: for people, or for programs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from nextfire_cli.escaping import escaped_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Output(StrEnum):
    """The values of the option --output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


_LISTS = ("items", "results", "runs")
_NAMES = (
    "context",
    "executionId",
    "jobId",
    "keyId",
    "endpoint",
    "handler",
    "version",
    "messageId",
    "name",
    "destination",
    "versionId",
    "number",
)


def replace_unencodable() -> None:
    """Print characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def to_json(document: object, indent: int | None = None) -> str:
    """*document* as JSON, in ASCII unless standard output is UTF-8; harmless to a terminal."""
    utf_8 = str(sys.stdout.encoding).lower().replace("-", "") == "utf8"
    return escaped_json(json.dumps(document, indent=indent, ensure_ascii=not utf_8))


def print_view(console: Console, view: RenderableType, *, soft_wrap: bool) -> None:
    """Print *view*, without the spaces that fill the lines of a table."""
    with console.capture() as captured:
        console.print(view, crop=False, soft_wrap=soft_wrap)
    typer.echo(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE), nl=False, color=True)


def names(document: object) -> Iterator[str]:
    """The id of each thing in *document*: of its items, or of itself."""
    if not isinstance(document, dict):
        return
    found = next((document[name] for name in _LISTS if isinstance(document.get(name), list)), None)
    for each in [document] if found is None else found:
        if (name := _name(each)) is not None:
            yield name


def _name(each: Any) -> str | None:  # noqa: ANN401 — any JSON
    if not isinstance(each, dict):
        return None
    if isinstance(each.get("job"), dict):  # a result of a batch
        each = each["job"]
    return next((str(each[name]) for name in _NAMES if name in each), None)
