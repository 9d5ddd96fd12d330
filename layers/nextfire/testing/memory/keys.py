"""API keys in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date, datetime

from nextfire.domain.errors import UndecodableError
from nextfire.domain.keys import ApiKey, ending, revoked, used
from nextfire.domain.ports.pages import Page
from nextfire.testing.memory.pages import listed


class MemoryKeyStore:
    """`KeyStore`."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], ApiKey] = {}
        self._broken: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def spoil(self, tenant: str, key_id: str) -> None:
        """Make the item of a key undecodable."""
        self._broken.add((tenant, key_id))

    def create(self, key: ApiKey) -> bool:
        with self._lock:
            return self.items.setdefault((key.tenant, key.key_id), key) == key

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        if (tenant, key_id) in self._broken:
            raise UndecodableError("key does not decode")
        return self.items.get((tenant, key_id))

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        with self._lock:
            keys = {key_id: key for (of, key_id), key in self.items.items() if of == tenant}
        broken = {key_id for of, key_id in self._broken if of == tenant}
        return listed(keys, cursor, limit, broken=broken, problem="key does not decode")

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        return self._change(tenant, key_id, lambda key: revoked(key, now))

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        return self._change(tenant, key_id, lambda key: ending(key, at))

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        self._change(tenant, key_id, lambda key: used(key, day))

    def _change(self, tenant: str, key_id: str, do: Callable[[ApiKey], ApiKey]) -> ApiKey | None:
        with self._lock:
            key = self.items.get((tenant, key_id))
            if key is not None:
                key = self.items[tenant, key_id] = do(key)
            return key
