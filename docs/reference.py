"""Writes docs/reference/api.md from the OpenAPI document."""  # noqa: INP001 — a folder of pages

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from functions.api.openapi import description
from functions.api.openapi_texts import BY_THE_GATEWAY
from nextfire.client.errors import BY_GATEWAY

PAGE = Path(__file__).with_name("reference") / "api.md"
_AREAS = {
    "jobs": "Jobs",
    "many_jobs": "Many jobs at a time",
    "on_request": "Jobs, on request",
    "schedules": "Schedules",
    "executions": "Executions",
    "sequences": "Sequences",
    "scripts": "Scripts",
    "pools": "Pools",
    "endpoints": "Endpoints",
    "keys": "API keys",
    "quotas": "Quotas",
    "overview": "Overview",
    "meta": "The API itself",
}
_GATEWAYS = """\
API Gateway sends these responses itself if it rejects a request or gets no response from the API.
They are `{"message": "…"}`, not problem documents. `nextfire.Client` and the command report them
like any other error, with a remedy.
"""
_MARK = "written by `make docs`. -->\n"
_RENAMED = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Names that Python has from 3.13 on, by RFC 9110."""


def page() -> str:
    """The whole page: the part written by hand, up to the mark, and the part generated from the
    OpenAPI document.
    """
    document = description()
    schemas = document["components"]["schemas"]
    problem = json.dumps(schemas["Problem"]["examples"][0], indent=2)
    parts = [
        PAGE.read_text().partition(_MARK)[0] + _MARK,
        f"## Errors\n\nA problem document (RFC 9457):\n\n```json\n{problem}\n```\n",
        "\n".join(_errors(document)) + "\n",
        "### Responses of the gateway\n",
        _GATEWAYS,
        "\n".join(_gateways()) + "\n",
    ]
    for tag in sorted(_tags(document), key=lambda each: [*_AREAS, each].index(each)):
        parts.append(f"## {_AREAS.get(tag, tag)}\n")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag]:
                    parts.append("\n".join(_operation(method, path, operation)))
    parts.append("## Documents\n")
    for name, schema in sorted(schemas.items()):
        if "properties" in schema and not name.endswith("Patch"):
            parts.append("\n".join(_document(name, schema)))
    return "\n".join(parts)


def _tags(document: dict[str, Any]) -> set[str]:
    return {
        operation["tags"][0]
        for methods in document["paths"].values()
        for operation in methods.values()
    }


def _errors(document: dict[str, Any]) -> Iterator[str]:
    yield "| status | by | meaning |\n|---|---|---|"
    for name, response in document["components"]["responses"].items():
        by = [
            who
            for who, media in (("API", "application/problem+json"), ("gateway", "application/json"))
            if media in response["content"]
        ]
        status = HTTPStatus[name]
        yield f"| {_status(status)} | {', '.join(by)} | {response['description']} |"


def _gateways() -> Iterator[str]:
    yield "| status | when | what to do |\n|---|---|---|"
    for status, when in sorted(BY_THE_GATEWAY.items()):
        remedy = _cell(BY_GATEWAY[status].remedy)
        yield f"| {_status(status)} | {when} | {remedy} |"


def _status(status: HTTPStatus) -> str:
    return f"{int(status)} {_RENAMED.get(status, status.phrase)}"


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path}\n"
    scope = operation.get("x-nextfire-scope")
    more = operation.get("description", "").removesuffix(f"Needs the scope `{scope}`.")
    who = f"Scope: `{scope}`." if scope else "No credentials needed."
    yield f"{operation['summary']}. {more}{who}\n"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "| parameter | in | description |\n|---|---|---|"
        for each in parameters:
            what = " ".join(filter(None, [each.get("description"), _limits(each["schema"])]))
            yield f"| `{each['name']}` | {each['in']} | {_cell(what)} |"
        yield ""
    examples: list[Any] = [None]
    if body := operation.get("requestBody"):
        content = body["content"]["application/json"]
        optional = "" if body.get("required") else " (optional)"
        yield f"Body: {_kind(content['schema'])}{optional}.\n"
        examples = [each["value"] for each in content.get("examples", {}).values()] or [None]
    responses = [
        f"{status} {_kind(each['content']['application/json']['schema'])}: {each['description']}"
        for status, each in operation["responses"].items()
        if status.startswith("2")
    ]
    problems = [status for status in operation["responses"] if not status.startswith("2")]
    yield "Responses: " + " ".join(responses) + f" Errors: {', '.join(problems)}.\n"
    yield "```sh"
    for example in examples:
        yield _curl(method, path, example, open_to_all=scope is None)
    yield "```\n"


def _curl(method: str, path: str, body: object, *, open_to_all: bool) -> str:
    ids = {
        "{jobId}": "daily-invoices",
        "{executionId}": "daily-invoices.20260524T100000000Z-k3x9m2ab",
        "{pool}": "default",
        "{handler}": "report",
        "{destination}": "api.example.com:443",
        "{keyId}": "0f5f4b1f2f106f1c",
    }
    for name, value in ids.items():
        path = path.replace(name, value)
    query = "?state=DEAD" if path == "/v1/executions" else ""
    words = ["curl -sS"]
    if method != ("get" if body is None else "post"):
        words.append(f"-X {method.upper()}")
    words.append(f'"$URL{path}{query}"')
    if not open_to_all:
        words.append('-H "Authorization: Bearer $KEY"')
    if body is not None:
        words.append(f"-d {shlex.quote(json.dumps(body))}")
    return " ".join(words)


def _document(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if said := schema.get("description"):
        yield " ".join(said.split()) + "\n"
    if not schema["properties"]:
        return
    yield "| field | kind | |\n|---|---|---|"
    for field, given in schema["properties"].items():
        notes = [given.get("description", ""), _limits(given)]
        if field in schema.get("required", ()):
            notes.insert(0, "Always present." if name.endswith("Response") else "Required.")
        yield f"| `{field}` | {_kind(given)} | {_cell(' '.join(filter(None, notes)))} |"
    yield ""


def _kind(schema: dict[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name.endswith("Patch"):
            return f"any part of {_kind({'$ref': 'JobRequest'})}"
        found = description()["components"]["schemas"][name]
        if "enum" in found:
            return " ".join(f"`{value}`" for value in found["enum"])
        return f"[{name}](#{name.lower()})" if "properties" in found else "any JSON"
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("format") == "date-time":
        return "instant"
    return _KINDS.get(str(schema.get("type")), str(schema.get("type", "any JSON")))


_KINDS = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "['string', 'null']": "text",
}


def _limits(schema: dict[str, Any]) -> str:
    for each in schema.get("anyOf", ()):
        if each != {"type": "null"} and "anyOf" not in each:
            schema = each | {key: value for key, value in schema.items() if key != "anyOf"}
            break
    limits = []
    if "minimum" in schema or "maximum" in schema:
        limits.append(f"{schema.get('minimum', '')} to {schema.get('maximum', '')}.")
    if "maxLength" in schema:
        limits.append(f"At most {schema['maxLength']} characters.")
    if "default" in schema and schema["default"] is not None:
        limits.append(f"Default: `{json.dumps(schema['default'])}`.")
    return " ".join(limits)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
