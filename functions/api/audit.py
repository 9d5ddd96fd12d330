"""Audit events: one log line for each request that changes something or was rejected."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic.alias_generators import to_camel

from functions.api.app import app
from functions.api.body import read_body
from functions.api.identity import Identity
from functions.api.operation import SCOPE
from functions.api.request_record import RequestRecord
from functions.api.resolver_parts import path_of, routes_of
from functions.api.services import identify_event, now, telemetry
from nextfire.domain.document import is_same_json
from nextfire.domain.errors import ForbiddenError, NextfireError
from nextfire.domain.instants import isoformat
from nextfire.domain.keys import Scope
from nextfire.responses.executions import ExecutionResponse
from nextfire.responses.jobs import JobResponse
from nextfire.responses.keys import KeyResponse

EVENT = "audit"
MAX_DOCUMENT_CHARS = 8_000
"""Maximum length of `before` and of `after` as JSON. A longer document is summarized."""
_MAX_TEXT_CHARS = 300
_MAX_IDS = 100
_CHANGES = {"POST", "PUT", "PATCH", "DELETE"}
_IDS = ("jobId", "executionId", "keyId")
_KEY = "idempotency-key"
_HIDDEN = frozenset(
    {
        *("payload", "params", "result", "stdout", "stderr"),  # input and output of scripts
        *("auth", "tls", "body", "input"),  # of calls
        "key",  # the text of an API key
        *("url", "uploadUrl", "downloadUrl", "headers", "fields", "secret", "token", "password"),
    }
)
"""Fields that may hold a secret. The event shows only their presence and size."""
_ASKED = (
    *("jobId", "taskId", "name", "labels", "allJobs", "reason", "until", "from", "to"),
    *("limit", "scopes", "handler", "pool", "size", "sha256", "progressToken"),
)
"""Request fields that the event shows. They never hold a secret."""
_NEVER_SECRET = frozenset({"labels"})
_EXPLAINED = {
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS,
}
"""Statuses whose `detail` states the cause. For others, it may repeat input of the caller."""


def audit(event: Mapping[str, Any], answer: Mapping[str, Any], seen: RequestRecord) -> None:
    """Write the audit event of a request, unless it only reads."""
    try:
        record = audit_event(event, answer, seen)
        if record is not None:
            # Independent of the log level and of the format of the logger.
            sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")
    except Exception:  # noqa: BLE001 — any error
        # The request has taken effect: return its response anyway.
        telemetry.logger.exception("no audit event", path=event["rawPath"])


def audit_event(
    event: Mapping[str, Any], answer: Mapping[str, Any], seen: RequestRecord
) -> dict[str, Any] | None:
    """The caller, the operation, and the state before and after. None if the request only reads or
    the route does not exist.

    Args:
        event: The event of the gateway, in payload format 2.0.
        answer: The response.
        seen: The items that the request read and wrote.
    """
    found = operation_of(event)
    if found is None:
        return None
    name, given = found
    http, context = event["requestContext"]["http"], event["requestContext"]
    caller = who(event)
    body, status = json.loads(answer["body"]), HTTPStatus(answer["statusCode"])
    done = status < HTTPStatus.BAD_REQUEST
    # A replay makes another execution: `after` has its id.
    resource = ({each: body[each] for each in _IDS if each in body} if done else {}) | given
    before, after = _before(given, seen), body if done else None
    record: dict[str, Any] = {
        "event": EVENT,
        "at": isoformat(now()),
        "tenant": caller and caller.tenant,
        "principal": caller and caller.principal,
        "operation": name,
        "resource": resource,
        "status": int(status),
        "problem": body.get("detail") if status in _EXPLAINED else None,
        "request": None if resource.keys() & set(_IDS) else _request(event, status),
        "jobs": None if "jobId" in resource else sorted(seen.written) or None,
        "before": before and _bounded(_without_secrets(before)),
        "after": after and _bounded(_without_secrets(after)),
        "changed": _changed(before, after),
        "idempotencyKey": header_of(event, _KEY),
        "requestId": context.get("requestId"),
        "sourceIp": http.get("sourceIp"),
        "userAgent": http.get("userAgent"),
    }
    return {name: _shortened(value) for name, value in record.items() if value is not None}


def operation_of(event: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The operation id and the path parameters. None for reads and unknown routes."""
    http = event["requestContext"]["http"]
    method, path = http["method"].upper(), path_of(app, event["rawPath"])
    if method not in _CHANGES:
        return None
    for route in routes_of(app):
        found = route.rule.match(path) if route.method == method else None
        if found is not None:
            if (route.openapi_extensions or {}).get(SCOPE) == Scope.READ.value:
                return None
            given = {to_camel(each): value for each, value in found.groupdict().items()}
            return to_camel(route.func.__name__), given
    return None


def _request(event: Mapping[str, Any], status: HTTPStatus) -> dict[str, Any] | None:
    """The request fields to show. None for an invalid request: its fields may hold anything."""
    if status >= HTTPStatus.BAD_REQUEST and status not in _EXPLAINED - {HTTPStatus.FORBIDDEN}:
        return None
    text = event.get("body") or "{}"
    try:
        if event.get("isBase64Encoded"):
            text = base64.b64decode(text).decode()
        sent = read_body(text)
    except (ValueError, NextfireError):  # a request beyond a rate limit: its body was not read
        return None
    return _bounded({each: sent[each] for each in _ASKED if each in sent}) or None


def who(event: Mapping[str, Any]) -> Identity | None:
    """The caller, or None if unknown."""
    try:
        return identify_event(event)
    except (ForbiddenError, PermissionError):
        return None


def _before(given: Mapping[str, str], seen: RequestRecord) -> dict[str, Any] | None:
    if run := seen.runs.get(given.get("executionId", "")):
        return ExecutionResponse.of(run).document
    if key := seen.keys.get(given.get("keyId", "")):
        return KeyResponse.of(key, now()).document
    if job := seen.jobs.get(given.get("jobId", "")):
        return JobResponse.of(job, now()).document
    return None


def _changed(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Any:  # noqa: ANN401
    """Names of the fields that differ, if both documents describe the same item."""
    if before is None or after is None:
        return None
    of = next(each for each in ("executionId", "jobId", "keyId") if each in before)
    if after.get(of) != before[of] or (of == "jobId" and "executionId" in after):
        return None
    names = {*before, *after}
    return sorted(each for each in names if not is_same_json(before.get(each), after.get(each)))


def _without_secrets(value: Any) -> Any:  # noqa: ANN401 — any JSON
    if isinstance(value, dict):
        return {
            name: inner
            if name in _NEVER_SECRET
            else _references(inner)
            if name == "env" and isinstance(inner, dict)
            else _problem(inner)
            if name == "problem" and isinstance(inner, dict)
            else _hidden(inner)
            if name in _HIDDEN
            else _without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return value


def _references(env: Mapping[str, Any]) -> dict[str, Any]:
    """Keep references to secrets and parameters, and hide literal values."""
    return {
        name: value if isinstance(value, dict) else _hidden(value) for name, value in env.items()
    }


def _problem(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the status, and the detail if it cannot repeat input."""
    explained = problem["status"] in _EXPLAINED
    return {name: problem[name] for name in ("status", "detail") if explained or name == "status"}


def _hidden(value: object) -> dict[str, int]:
    return {"hiddenBytes": len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))}


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(document)) <= MAX_DOCUMENT_CHARS:
        return document
    return {name: _summary(value) for name, value in document.items()}


def _summary(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        named = [_name(each) for each in value[:_MAX_IDS]]
        return named if all(named) else {"omitted": len(value)}
    if isinstance(value, dict):
        return {"omitted": len(value)}
    return _shortened(value)


def _name(value: Any) -> str | None:  # noqa: ANN401
    """The id in *value*, or *value* itself if it is a string."""
    if isinstance(value, dict):
        value = value.get("job") or value  # of a batch
        value = next((value[each] for each in _IDS if each in value), None)
    return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else None


def _shortened(value: Any) -> Any:  # noqa: ANN401
    return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else value


def header_of(event: Mapping[str, Any], wanted: str) -> str | None:
    """The value of the header *wanted* (lower case)."""
    return next((v for name, v in event["headers"].items() if name.lower() == wanted), None)
