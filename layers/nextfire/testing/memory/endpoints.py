"""Endpoints of callbacks in memory."""

from __future__ import annotations

import threading

from nextfire.domain.call_flow import CallFlow
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ports.pages import Page
from nextfire.testing.memory.pages import listed


class MemoryEndpointStore:
    """`EndpointStore`. `reads` and `writes`: the number of calls, refused writes included."""

    def __init__(self) -> None:
        self.items: dict[EndpointKey, Endpoint] = {}
        self.flows: dict[EndpointKey, CallFlow] = {}
        self.reads = 0
        self.writes = 0
        self._broken: set[EndpointKey] = set()
        self._lock = threading.Lock()

    def spoil(self, key: EndpointKey) -> None:
        """Make the item of an endpoint undecodable."""
        self._broken.add(key)

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:
        del consistent
        with self._lock:
            self.reads += 1
            if key in self._broken:
                raise UndecodableError("endpoint does not decode")
            return self.items.get(key)

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        with self._lock:
            self.writes += 1
            stored = self.items.get(to.key)
            if (stored.version if stored else 0) != was.version:
                return False
            self.items[to.key] = to
            return True

    def flow(self, key: EndpointKey) -> CallFlow | None:
        with self._lock:
            self.reads += 1
            return self.flows.get(key)

    def replace_flow(self, was: CallFlow, to: CallFlow) -> bool:
        with self._lock:
            self.writes += 1
            stored = self.flows.get(to.key)
            if (stored.version if stored else 0) != was.version:
                return False
            self.flows[to.key] = to
            return True

    def list(self, tenant: str, pool: str, *, cursor: str | None, limit: int) -> Page[Endpoint]:
        with self._lock:
            found = {
                key.destination: each
                for key, each in self.items.items()
                if (key.pool, key.tenant) == (pool, tenant)
            }
            broken = {k.destination for k in self._broken if (k.pool, k.tenant) == (pool, tenant)}
        return listed(found, cursor, limit, broken=broken, problem="endpoint does not decode")
