"""Builds the request of an HTTP callback."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from pydantic import JsonValue

from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.json_text import compact_json
from nextfire.domain.run import Run
from nextfire.targets.http.document import HttpCall
from nextfire.targets.http.messages import Request
from nextfire.targets.http.signing import signature_headers
from nextfire.targets.template import context_of, render

_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})


def _user_agent() -> str:
    try:
        return f"nextfire/{version('nextfire')}"
    except PackageNotFoundError:  # a function has the modules only
        return "nextfire"


USER_AGENT = _user_agent()


def body_of(call: HttpCall, job: Job, run: Run) -> bytes:
    """The body: the rendered template, or the payload. GET, HEAD and DELETE have none by default.

    Raises:
        TemplateError: The template cannot be rendered for the payload of this run.
    """
    context = context_of(job, run)
    if call.body is None:
        return b"" if call.method in _WITHOUT_BODY else _encode(context["payload"])
    rendered = render(call.body, context)
    return rendered.encode(errors="replace") if isinstance(rendered, str) else _encode(rendered)


def request_of(
    call: HttpCall,
    job: Job,
    run: Run,
    *,
    secrets: Sequence[str],
    auth: Mapping[str, str],
    now: datetime,
) -> Request:
    """The request of an attempt. A replay sends the earlier one, with a new trace.

    *secrets*: the resolved `sign`; *auth*: headers of `auth`.

    Raises:
        TemplateError: As for `body_of`.
        InvalidInputError: A signing secret is invalid.
    """
    shown = run.shown
    body = body_of(call, job, shown)
    execution_id = shown.key.execution_id
    headers = {"User-Agent": USER_AGENT}
    if body:
        headers["Content-Type"] = "application/json"
    headers = _replaced(headers, call.headers)
    headers |= {
        "Idempotency-Key": execution_id,
        "Nextfire-Execution-Id": execution_id,
        "Nextfire-Attempt": str(shown.attempt),
        "Nextfire-Scheduled-At": isoformat(shown.key.scheduled_at),
        "Nextfire-Job-Id": job.key.job_id,
    }
    digest = _digest(call, headers, body)
    headers["traceparent"] = traceparent(run)
    if secrets:
        headers |= signature_headers(secrets, execution_id=execution_id, body=body, now=now)
    return Request(call.method, call.url, _replaced(headers, auth), body, digest)


def _digest(call: HttpCall, headers: Mapping[str, str], body: bytes) -> str:
    """SHA-256, its first 32 digits, of the request without what differs each time: its trace,
    signatures and authentication. The version in our User-Agent may differ, too.
    """
    same = {name: value for name, value in headers.items() if value != USER_AGENT}
    parts = json.dumps([call.method, call.url, same], sort_keys=True).encode()
    return hashlib.sha256(parts + b"\n" + body).hexdigest()[:32]


def traceparent(run: Run) -> str:
    """W3C trace context: one trace per execution, one span per attempt."""
    trace = hashlib.sha256(run.key.execution_id.encode()).hexdigest()[:32]
    span = hashlib.sha256(f"{run.key.execution_id}#{run.fence}".encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-01"


def _replaced(headers: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """*headers* and *own*, which win, whatever their case."""
    names = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in names} | dict(own)


def _encode(value: JsonValue) -> bytes:
    return compact_json(value).encode(errors="replace")
