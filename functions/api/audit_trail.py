"""Events of the audit chain that are not writes of a job, run or key: uploads and rejections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from functions.api.audit import header_of, operation_of, who
from functions.api.current_request import CurrentRequest, changed_by
from functions.api.services import Services, now, services, telemetry
from nextfire.domain.change import MAX_TEXT
from nextfire.domain.instants import isoformat

_BURST = 20
_REJECTIONS_PER_SECOND = 1.0


class RejectionBudget:
    """A token bucket for the rejections that a process puts into the audit chain, so that a caller
    whose requests are all rejected cannot fill the chain. *monotonic*: a clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tokens = float(_BURST)
        self._filled_at = monotonic()
        self._omitted = 0

    def take(self) -> int | None:
        """Return the number of rejections omitted since the last recorded one; None to omit this
        one, too.
        """
        now_at = self._monotonic()
        gained = (now_at - self._filled_at) * _REJECTIONS_PER_SECOND
        self._tokens = min(_BURST, self._tokens + gained)
        self._filled_at = now_at
        if self._tokens < 1:
            self._omitted += 1
            return None
        self._tokens -= 1
        omitted, self._omitted = self._omitted, 0
        return omitted

    def add_omitted(self, count: int) -> None:
        """Count rejections that could not be recorded."""
        self._omitted += count


@lru_cache(maxsize=1)
def rejection_budget(_services: Services) -> RejectionBudget:
    """The budget of this process, which has one `Services`."""
    return RejectionBudget()


def description(event: Mapping[str, Any]) -> dict[str, Any]:
    """The caller and the operation, as an event of the audit chain shows them. Contains nothing of
    the body, and of the headers only the idempotency key.
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
    """Record the current request in the audit chain, although it writes no job, run or key.

    Raises:
        UnavailableError: The event may or may not have been recorded.
    """
    if (text := changed_by(**more)) is not None:
        services().note_change(request_id, text, now())


def note_rejection(
    event: Mapping[str, Any], answer: Mapping[str, Any], request: CurrentRequest
) -> None:
    """Record a rejected request to change something in the audit chain. If that fails, the response
    is sent anyway: nothing was changed.

    Requests beyond a rate limit (429) are not recorded, because a rejection must cost less than the
    request. Neither are rejections beyond the `RejectionBudget` of the process; the next recorded
    one shows their number.
    """
    status = int(answer["statusCode"])
    refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    refused = refused and status != HTTPStatus.TOO_MANY_REQUESTS
    if not refused or operation_of(event) is None:
        return
    budget: RejectionBudget | None = None
    omitted: int | None = None
    try:
        budget = rejection_budget(services())
        if (omitted := budget.take()) is None:
            return
        more = {"omitted": omitted} if omitted else {}
        request_id = str(event["requestContext"].get("requestId"))
        services().note_change(request_id, request.text(status=status, **more), now())
    except Exception:  # noqa: BLE001 — any error
        if budget is not None and omitted is not None:
            budget.add_omitted(omitted + 1)
        telemetry.logger.exception("refusal not in the audit chain", path=event["rawPath"])
