"""API keys in SQLite."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.key_items import decode_api_key, encode_api_key
from nextfire.adapters.dynamodb.pages import limited
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import KEYS, after
from nextfire.domain.key_text import KEY_ID
from nextfire.domain.keys import ApiKey, ending, revoked, used
from nextfire.domain.ports.pages import Page


class SqliteKeyStore:
    """`KeyStore` in *database*. `remove_expired` removes keys some time after they expire."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, key: ApiKey) -> bool:
        item = encode_api_key(key)
        with self._database.writing("create key") as connection:
            existing = KEYS.get(connection, key.tenant, key.key_id)
            if existing is not None:
                return existing == item
            KEYS.put(connection, item)
            return True

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        with self._database.reading("get key") as connection:
            item = KEYS.get(connection, tenant, key_id)
        return None if item is None else decode_api_key(item)

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        low = "" if cursor is None else after(decode_cursor(cursor, KEY_ID))
        with self._database.reading("list keys") as connection:
            items = KEYS.query(connection, tenant, low, limit=limit + 1)
        return limited(items, limit, decode_api_key, "key_id")

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        return self._change("revoke key", tenant, key_id, lambda key: revoked(key, now))

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        return self._change("end key", tenant, key_id, lambda key: ending(key, at))

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        self._change("record use of key", tenant, key_id, lambda key: used(key, day))

    def _change(
        self, what: str, tenant: str, key_id: str, do: Callable[[ApiKey], ApiKey]
    ) -> ApiKey | None:
        with self._database.writing(what) as connection:
            item = KEYS.get(connection, tenant, key_id)
            if item is None:
                return None
            item = encode_api_key(do(decode_api_key(item)))
            KEYS.put(connection, item)
        return decode_api_key(item)
