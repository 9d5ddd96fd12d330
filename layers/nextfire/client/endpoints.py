"""Operations on the endpoints of HTTP callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nextfire.client.calls import segment
from nextfire.client.operations import Operations, pages
from nextfire.client.requests import without_none
from nextfire.responses.endpoints import EndpointPage, EndpointResponse


class EndpointOperations(Operations):
    """The methods of `Client` for endpoints of HTTP callbacks."""

    def list_endpoints(
        self, *, pool: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> EndpointPage:
        """Return a page of the endpoints that failed, or are paused or limited, by pool and
        destination.
        `limit`: 1 to 100.
        """
        query = {"pool": pool, "limit": limit, "cursor": cursor}
        return self._read(EndpointPage, "/v1/endpoints", query)

    def endpoints(self, *, pool: str | None = None) -> Iterator[EndpointResponse]:
        """Iterate over all endpoints that `list_endpoints` lists."""
        return pages(partial(self.list_endpoints, pool=pool))

    def get_endpoint(self, pool: str, destination: str) -> EndpointResponse:
        """Return an endpoint. *destination*: ``host`` or ``host:port``; the default port is 443."""
        return self._read(EndpointResponse, _endpoint(pool, destination))

    def pause_endpoint(
        self,
        pool: str,
        destination: str,
        *,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> EndpointResponse:
        """Pause an endpoint: executions of the pool that call it wait until it is resumed."""
        path = f"{_endpoint(pool, destination)}/pause"
        return self._post(EndpointResponse, path, without_none({"reason": reason}), idempotency_key)

    def resume_endpoint(
        self, pool: str, destination: str, *, idempotency_key: str | None = None
    ) -> EndpointResponse:
        """Resume an endpoint that is PAUSED or OPEN."""
        path = f"{_endpoint(pool, destination)}/resume"
        return self._post(EndpointResponse, path, {}, idempotency_key)

    def limit_endpoint(
        self,
        pool: str,
        destination: str,
        *,
        per_minute: int | None = None,
        parallel: int | None = None,
        idempotency_key: str | None = None,
    ) -> EndpointResponse:
        """Limit the calls of an endpoint by all executions of the pool: per minute (1 to 6000), and
        at the same time (1 to 100). A limit that is None is removed.
        """
        path = f"{_endpoint(pool, destination)}/limit"
        limits = without_none({"perMinute": per_minute, "parallel": parallel})
        return self._post(EndpointResponse, path, limits, idempotency_key)


def _endpoint(pool: str, destination: str) -> str:
    return f"/v1/endpoints/{segment(pool)}/{segment(destination)}"
