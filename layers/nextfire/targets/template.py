"""Templates: JSON values whose texts have placeholders such as `{{payload.customer.id}}`.

A placeholder is a path of names and list indexes into the context: `payload`, `run`, `job` and, for
jobs with parents, `upstream`. A text that is a single placeholder becomes the value; in a longer
text, texts are inserted as they are and other values as compact JSON. Expressions, filters and
escapes are not supported: put a text with literal braces into the payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import JsonValue

from nextfire.domain.edges import Edge, Which
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.json_text import compact_json
from nextfire.domain.run import Run

MAX_RENDERED_BYTES = 1024 * 1024
"""Maximum size of a rendered value as JSON."""
MAX_DEPTH = 64
_INDEX_DIGITS = 10
_PLACEHOLDER = re.compile(r"\{\{([^{}]{1,256})\}\}")
"""Blanks around the path are part of the match: a pattern for them takes cubic time."""


class TemplateError(ValueError):
    """A template that cannot be rendered. The text names the placeholder and the remedy."""


def context_of(job: Job, run: Run) -> dict[str, JsonValue]:
    """The values that placeholders can name, for an attempt of *run*."""
    definition = job.definition
    payload = definition.payload if run.payload is None else json.loads(run.payload)
    upstream = {} if run.upstream is None else {"upstream": json.loads(run.upstream)}
    return upstream | {
        "payload": payload,
        "run": {
            "executionId": run.key.execution_id,
            "attempt": run.attempt,
            "scheduledAt": isoformat(run.key.scheduled_at),
        },
        "job": {"id": job.key.job_id, "tenant": job.key.tenant},
    }


class _Anything(dict[str, JsonValue]):
    """A value that is not known yet, such as a result: it has every member."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, _name: str) -> JsonValue:
        return self


def example_context(payload: JsonValue, parents: Iterable[Edge] = ()) -> dict[str, JsonValue]:
    """A context with *payload* and the runs of *parents*, to check a template before a run exists.
    With `all`, how many runs a parent has is not known.
    """
    one: dict[str, JsonValue] = {"state": "SUCCEEDED", "executionId": "", "result": _Anything()}
    upstream: dict[str, JsonValue] = {
        edge.job: {"runs": _Anything()} if edge.which is Which.ALL else one for edge in parents
    }
    run: dict[str, JsonValue] = {
        "executionId": "job.20260101T000000000Z-0000000000000000",
        "attempt": 1,
        "scheduledAt": "2026-01-01T00:00:00Z",
    }
    context: dict[str, JsonValue] = {"upstream": upstream} if upstream else {}
    return context | {"payload": payload, "run": run, "job": {"id": "job", "tenant": "tenant"}}


def render(value: JsonValue, context: Mapping[str, JsonValue]) -> JsonValue:
    """Return *value* with its placeholders replaced by values of *context*.

    Raises:
        TemplateError: A placeholder names nothing, or the result is too large or nested too deeply.
    """
    return _Rendering(context).value(value, MAX_DEPTH)


class _Rendering:
    """One rendering; counts the bytes of inserted values before they are joined."""

    def __init__(self, context: Mapping[str, JsonValue]) -> None:
        self._context = context
        self._left = MAX_RENDERED_BYTES

    def value(self, value: JsonValue, depth: int) -> JsonValue:
        if depth == 0:
            raise TemplateError(f"the template is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.value(each, depth - 1) for each in value]
        if isinstance(value, dict):
            return {
                self._inserted(name): self.value(each, depth - 1) for name, each in value.items()
            }
        return value

    def _text(self, text: str) -> JsonValue:
        whole = _PLACEHOLDER.fullmatch(text)
        if whole is not None:
            found = lookup(self._context, whole[1].strip())
            self._take(compact_json(found))
            return found
        return self._inserted(text)

    def _inserted(self, text: str) -> str:
        self._take(text)
        return _PLACEHOLDER.sub(self._insert, text)

    def _insert(self, match: re.Match[str]) -> str:
        found = lookup(self._context, match[1].strip())
        text = found if isinstance(found, str) else compact_json(found)
        self._take(text)
        return text

    def _take(self, text: str) -> None:
        self._left -= len(text.encode(errors="surrogatepass"))
        if self._left < 0:
            raise TemplateError(
                f"the rendered template has more than {MAX_RENDERED_BYTES} bytes: "
                "put the data into S3 and its address into the payload"
            )


def lookup(context: Mapping[str, JsonValue], path: str) -> JsonValue:
    """Return the value at *path*, such as `payload.items.0.id`.

    Raises:
        TemplateError: Nothing is there. Names the nearest path.
    """
    found: Any = dict(context)
    parts = path.split(".")
    for number, part in enumerate(parts):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif (
            isinstance(found, list)
            and len(part) < _INDEX_DIGITS
            and part.isdecimal()
            and int(part) < len(found)
        ):
            found = found[int(part)]
        else:
            raise TemplateError(_unknown(path, parts[:number], found, part))
    return found  # type: ignore[no-any-return]


def _unknown(path: str, before: list[str], found: object, part: str) -> str:
    names = [str(name) for name in found] if isinstance(found, dict) else []
    near = get_close_matches(part, names[:1000], 1)
    place = ".".join(before)
    if near:
        hint = f"did you mean {{{{{'.'.join([*before, near[0]])}}}}}?"
    elif names:
        hint = f"{f'{place} has' if place else 'available:'} {', '.join(sorted(names)[:8])}"
    else:
        hint = f"{place} has no members"
    return f"unknown placeholder {{{{{path}}}}}: {hint}"
