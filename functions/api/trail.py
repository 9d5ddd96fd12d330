"""Events of the audit chain that are not writes of a job, run or key: uploads and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from functions.api.app import now, services, telemetry
from functions.api.audit import header_of, operation_of, who
from functions.api.changing import Changing, changed_by
from nextfire.domain.change import MAX_TEXT
from nextfire.domain.instants import isoformat


def description(event: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks for what, as an event of the audit chain shows it: nothing of the body, and of the
    headers the idempotency key only.
    """
    context = event["requestContext"]
    identity, found = who(event), operation_of(event)
    described = {
        "tenant": identity and identity.tenant,
        "principal": identity and identity.principal,
        "operation": found and found[0],
        "resource": {name: text[:MAX_TEXT] for name, text in found[1].items()} if found else None,
        "at": isoformat(now()),
        "requestId": context.get("requestId"),
        "sourceIp": context["http"].get("sourceIp"),
        "idempotencyKey": (header_of(event, "idempotency-key") or "")[:MAX_TEXT] or None,
    }
    return {name: value for name, value in described.items() if value is not None}


def note(request_id: str, **more: Any) -> None:  # noqa: ANN401 — any JSON
    """Put what the present request does into the audit chain, though it writes no job, run or key.

    Raises:
        UnavailableError: It is not known whether it is there.
    """
    if (text := changed_by(**more)) is not None:
        services().requests.note(request_id, text, now())


def note_refusal(event: Mapping[str, Any], answer: Mapping[str, Any], request: Changing) -> None:
    """Put a request that would have changed something, and was refused, into the audit chain. The
    answer stands if that fails: nothing was changed.

    Requests beyond a limit are left out: a refusal must cost less than what it refuses.
    """
    status = int(answer["statusCode"])
    refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    refused = refused and status != HTTPStatus.TOO_MANY_REQUESTS
    if not refused or operation_of(event) is None:
        return
    try:
        request_id = str(event["requestContext"].get("requestId"))
        services().requests.note(request_id, request.text(status=status), now())
    except Exception:  # noqa: BLE001 — whatever it is
        telemetry.logger.exception("refusal not in the audit chain", path=event["rawPath"])
