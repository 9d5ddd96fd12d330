"""Requests with an idempotency key, in SQLite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.request_items import (
    decode_request,
    encode_key,
    encode_request,
    seconds,
)
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import REQUESTS
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import cut
from nextfire.domain.ports.requests import KeptRequest


class SqliteRequestStore:
    """`RequestStore` in *database*. `remove_expired` removes expired requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        name = _id(tenant, key)
        with self._database.writing("begin request") as connection:
            existing = REQUESTS.get(connection, name)
            if existing is not None and not _is_expired(existing, now):
                return decode_request(existing)
            item = encode_request(KeptRequest(fingerprint, now, None))
            REQUESTS.put(connection, encode_key(name) | item)
            return None

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        def finished(kept: KeptRequest) -> KeptRequest:
            return kept if kept.answer is not None else replace(kept, answer=answer)

        kept = self._change("finish request", _id(tenant, key), began_at, finished)
        return answer if kept is None or kept.answer is None else kept.answer

    def refuse(self, tenant: str, key: str, began_at: datetime) -> str | None:
        def refused(kept: KeptRequest) -> KeptRequest:
            return kept if kept.answer is not None else replace(kept, refused=True)

        kept = self._change("refuse request", _id(tenant, key), began_at, refused)
        return None if kept is None else kept.answer

    def _change(
        self,
        what: str,
        name: str,
        began_at: datetime,
        do: Callable[[KeptRequest], KeptRequest],
    ) -> KeptRequest | None:
        """Change the request *name*. Returns None if it is not the one that began at *began_at*."""
        with self._database.writing(what) as connection:
            item = REQUESTS.get(connection, name)
            kept = None if item is None else _decoded(item)
            if kept is None or kept.at != cut(began_at):
                return None
            kept = do(kept)
            REQUESTS.put(connection, encode_key(name) | encode_request(kept))
            return kept


def _is_expired(item: Item, now: datetime) -> bool:
    return int(item.get("expires_at", {}).get("N", 0)) <= seconds(now)


def _decoded(item: Item) -> KeptRequest | None:
    try:
        return decode_request(item)
    except UndecodableError:
        return None


def _id(tenant: str, key: str) -> str:
    # Tenant names do not contain the separator.
    return f"{tenant}#{key}"
