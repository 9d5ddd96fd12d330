"""Files and texts that hold jobs, payloads and labels."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from nextfire.domain.json_text import reject_constant
from nextfire_cli.documents import Document

SEVERAL = "For several jobs use nextfire apply (a pipeline) or nextfire jobs create-many"


def read_job(file: str) -> Document:
    """Return the job document in *file*, JSON or YAML; ``-``: standard input."""
    document = _read_any(file)
    if isinstance(document, list):
        raise typer.BadParameter(f"{file} is a list. {SEVERAL}", param_hint="--file")
    if not isinstance(document, dict):
        raise typer.BadParameter(
            f"{file} does not contain a job. The shortest job is "
            '{"type": "MANUAL", "target": {"handler": "hello"}}',
            param_hint="--file",
        )
    return document


def read_jobs(file: str) -> list[Document]:
    """Return the job documents in *file*, JSON or YAML: a list, or an object with a list `jobs`."""
    found = _read_any(file)
    jobs = found.get("jobs") if isinstance(found, dict) else found
    if not isinstance(jobs, list) or not jobs:
        problem = f"{file} has no list of jobs. For one job use nextfire jobs create"
        raise typer.BadParameter(problem, param_hint="--file")
    for number, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise typer.BadParameter(f"jobs[{number}] is not a JSON object", param_hint="--file")
    return jobs


def read_payload(text: str, flag: str = "--payload") -> object:
    """Return the JSON value *text*, or that in the file FILE if *text* is ``@FILE``."""
    if text.startswith("@"):
        text = _read(text[1:], flag)
    try:
        return _read_json(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"not JSON: {error}. Write '{{\"key\": 1}}', or @file.", param_hint=flag
        ) from error


def read_labels(pairs: Sequence[str], flag: str = "--label") -> dict[str, str]:
    """Return the labels *pairs*, each ``key=value``.

    Raises:
        typer.BadParameter: A pair has another form, or a key has two values.
    """
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(
                f"{pair!r} is not key=value, such as team=etl", param_hint=flag
            )
        if labels.setdefault(key, value) != value:
            raise typer.BadParameter(f"{key} is given twice", param_hint=flag)
    return labels


def listed_labels(pairs: Sequence[str] | None) -> list[str] | None:
    """Return the labels *pairs* of a listing as the API takes them, each ``key:value``; None
    without any. Raises as `read_listed_labels`.
    """
    return [f"{key}:{value}" for key, value in read_listed_labels(pairs or ()).items()] or None


def read_listed_labels(pairs: Sequence[str]) -> dict[str, str]:
    """Return the labels *pairs* of a listing, which the API takes as ``key:value,key:value``.

    Raises:
        typer.BadParameter: As for `read_labels`; or a label cannot be written so.
    """
    labels = read_labels(pairs)
    if any(":" in key or "," in key + value for key, value in labels.items()):
        problem = "a listing takes no key with a colon, and no comma"
        raise typer.BadParameter(problem, param_hint="--label")
    return labels


def read_documents(file: str) -> list[object]:
    """Return the documents in *file*, JSON or YAML; ``-``: standard input."""
    import yaml  # noqa: PLC0415 — slow to import, and seldom needed

    from nextfire_cli.yaml_text import read_yaml  # noqa: PLC0415 — imports it

    text = _read(file, "--file")
    try:
        # YAML does not allow tabs, which JSON may be indented with.
        is_json = text.lstrip().startswith(("{", "["))
        if is_json:
            return [_read_json(text)]
        # The members of YAML's objects may have names of other types.
        return [_read_json(json.dumps(each)) for each in read_yaml(text)]
    except (ValueError, TypeError, yaml.YAMLError) as error:
        why = str(error).replace('"<unicode string>"', file)  # PyYAML's name of a text
        raise typer.BadParameter(
            f"{file} is neither JSON nor YAML: {why}", param_hint="--file"
        ) from error


def _read_json(text: str) -> object:
    """Parse *text* as the API does.

    Raises:
        ValueError: *text* is not JSON; a number is infinite or not a number; a name occurs twice in
            an object; a text has half a surrogate pair; or it is nested too deeply.
    """
    try:
        found = json.loads(text, parse_constant=reject_constant, object_pairs_hook=_object)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return found


def _object(pairs: list[tuple[str, object]]) -> Document:
    found: Document = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} occurs twice in one object")
        found[name] = value
    return found


def _read_any(file: str) -> object:
    documents = read_documents(file)
    if len(documents) > 1:
        problem = f"{file} contains {len(documents)} documents instead of one"
        raise typer.BadParameter(problem, param_hint="--file")
    return documents[0] if documents else None


def _read(file: str, flag: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"cannot read {file}: {why}", param_hint=flag) from error
