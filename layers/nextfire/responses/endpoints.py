"""Responses about endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from nextfire.domain.endpoints import Endpoint, EndpointState
from nextfire.domain.ports.pages import Page
from nextfire.responses.base import UNREADABLE, ApiResponse, field, one_line


class EndpointResponse(ApiResponse):
    """A destination of HTTP callbacks from one pool. CLOSED: executions call it. OPEN: it is down;
    executions wait, except one probe per interval. PAUSED by a user: executions wait.
    """

    # of(endpoint, now)
    pool: str = field(lambda endpoint, _: endpoint.key.pool)
    destination: str = field(
        lambda endpoint, _: endpoint.key.destination, description="`host:port`."
    )
    state: EndpointState
    failures: int = field(description="Consecutive failed calls. 5 open the endpoint.")
    opened_at: datetime | None = field(description="Start of the outage, if OPEN.")
    probe_at: datetime | None = field(description="Earliest instant of the next probe, if OPEN.")
    failed_probes: int | None = field(
        lambda endpoint, _: (
            endpoint.failed_probes if endpoint.state is EndpointState.OPEN else None
        ),
        description="Probes without a response so far, if OPEN.",
    )
    not_before: datetime | None = field(
        lambda endpoint, now: (
            endpoint.not_before if endpoint.not_before and endpoint.not_before > now else None
        ),
        description="End of the Retry-After of a response 429. Executions wait until then.",
    )
    per_minute: int | None = field(
        lambda endpoint, _: endpoint.limit.per_minute,
        description="Limit of calls per minute, if there is one.",
    )
    parallel: int | None = field(
        lambda endpoint, _: endpoint.limit.parallel,
        description="Limit of calls at the same time, if there is one.",
    )
    pause_reason: str | None
    paused_at: datetime | None
    changed_at: datetime | None = field(
        description="Last change. Absent if no call has failed in the last 30 days."
    )

    @property
    def reason(self) -> str | None:
        """Why the stored endpoint cannot be decoded, if `state` is UNREADABLE."""
        return self.document.get("reason")


class UnreadableEndpoint(ApiResponse):
    """A stored endpoint that cannot be decoded. Executions call it as if it were CLOSED."""

    pool: str = field(lambda found: found.identity.partition("/")[0])
    destination: str = field(lambda found: found.identity.partition("/")[2])
    state: Literal["UNREADABLE"] = field(lambda _: UNREADABLE)
    reason: str = field(lambda found: one_line(found.problem))


def _items(page: Page[Endpoint], now: datetime) -> list[ApiResponse]:
    readable = [EndpointResponse.of(each, now) for each in page.items]
    unreadable = [UnreadableEndpoint.of(each) for each in page.unreadable]
    return sorted([*readable, *unreadable], key=lambda each: str(each.document["destination"]))


class EndpointPage(ApiResponse):
    """Endpoints that failed or changed in the last 30 days, are paused or have a limit, ordered by
    pool and destination. A page may hold fewer items than `limit`: if `cursor` is present, there
    may be more.
    """

    # of(page, now)
    items: list[EndpointResponse] = field(
        _items, schema=list[EndpointResponse | UnreadableEndpoint]
    )
    cursor: str | None
