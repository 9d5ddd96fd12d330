"""Show, pause, resume and limit endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from nextfire.domain import endpoints
from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.domain.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    invalid_cursor,
)
from nextfire.domain.pool_names import NO_POOL, available
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.pages import Page

_TRIES = 8
"""More than the number of writes that executors make in a row."""
_CURSOR = re.compile(r"([a-z0-9-]+)\.([A-Za-z0-9_:-]*)")


class ManageEndpoints:
    """A tenant's endpoints. The tenant comes from the caller's identity, never from the request."""

    def __init__(self, store: EndpointStore, pools: Collection[str]) -> None:
        self._store = store
        self._pools = pools

    def get(self, key: EndpointKey) -> Endpoint:
        """Return the endpoint. One that is not stored is CLOSED: no call of it failed lately.

        Raises:
            NotFoundError: The pool does not exist.
            UndecodableError: The stored item is not a valid endpoint.
        """
        self._check_pool(key.pool)
        return self._store.get(key, consistent=True) or Endpoint(key)

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[Endpoint]:
        """Return a page of *tenant*'s stored endpoints, by pool and destination; with *pool*, only
        of this pool. The identities of unreadable items are ``<pool>/<destination>``. A page may be
        shorter than *limit*.

        Raises:
            InvalidInputError: Invalid *cursor* or unknown *pool*.
        """
        if pool is not None and pool not in self._pools:
            raise InvalidInputError("pool", pool, NO_POOL, available(self._pools))
        pools = sorted(self._pools) if pool is None else [pool]
        if not pools:
            return Page([], None)
        number, inner = (0, None) if cursor is None else _read_cursor(cursor, pools)
        page = self._store.list(tenant, pools[number], cursor=inner, limit=limit)
        while not (page.items or page.unreadable or page.cursor) and number + 1 < len(pools):
            number += 1
            page = self._store.list(tenant, pools[number], cursor=None, limit=limit)
        after = f"{pools[number]}.{page.cursor}" if page.cursor else None
        if after is None and number + 1 < len(pools):
            after = f"{pools[number + 1]}."
        found = pools[number]
        named = [replace(each, identity=f"{found}/{each.identity}") for each in page.unreadable]
        return Page(page.items, after, named)

    def pause(self, key: EndpointKey, reason: str | None, now: datetime) -> Endpoint:
        """Hold all runs that call the endpoint until it is resumed. Idempotent.

        Raises:
            NotFoundError: The pool does not exist.
            UnavailableError: Executors changed the endpoint at the same time, several times.
        """
        return self._change(key, lambda current: endpoints.paused(current, reason, now))

    def resume(self, key: EndpointKey, now: datetime) -> Endpoint:
        """Close the endpoint, whether a user paused it or failures opened it. Idempotent.

        Raises:
            NotFoundError: The pool does not exist.
            UnavailableError: Executors changed the endpoint at the same time, several times.
        """
        return self._change(key, lambda current: endpoints.resumed(current, now))

    def limit(self, key: EndpointKey, limit: CallLimit, now: datetime) -> Endpoint:
        """Set the limit of the endpoint's calls, in place of the one it has. Idempotent.

        Raises:
            NotFoundError: The pool does not exist.
            UnavailableError: Executors changed the endpoint at the same time, several times.
        """
        return self._change(key, lambda current: endpoints.limited(current, limit, now))

    def _change(self, key: EndpointKey, change: Callable[[Endpoint], Endpoint]) -> Endpoint:
        for _ in range(_TRIES):
            current = self.get(key)
            changed = change(current)
            if changed is current or self._store.replace(current, changed):
                return changed
        raise UnavailableError(
            f"The endpoint {key.destination} changes too often at the moment. Try again."
        )

    def _check_pool(self, pool: str) -> None:
        if pool not in self._pools:
            raise NotFoundError("pool", pool, available(self._pools))


def _read_cursor(cursor: str, pools: Sequence[str]) -> tuple[int, str | None]:
    """The index of the pool in *cursor*, and the cursor of the store; None: start of the pool."""
    match = _CURSOR.fullmatch(cursor)
    if match is None or match[1] not in pools:
        raise invalid_cursor(cursor)
    return pools.index(match[1]), match[2] or None
