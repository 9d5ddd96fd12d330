"""Endpoints and flows of calls in SQLite."""

from __future__ import annotations

from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.endpoint_items import (
    decode_endpoint,
    encode_endpoint,
    encode_key,
    owner,
)
from nextfire.adapters.dynamodb.flow_items import decode_flow, encode_flow, encode_flow_key
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.pages import limited
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import ENDPOINTS, after
from nextfire.domain.call_flow import CallFlow
from nextfire.domain.endpoints import DESTINATION, Endpoint, EndpointKey
from nextfire.domain.ports.pages import Page


class SqliteEndpointStore:
    """`EndpointStore` in *database*. `remove_expired` removes what has expired."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:  # noqa: ARG002
        item = self._get("get endpoint", encode_key(key))
        return None if item is None else decode_endpoint(item)

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        return self._replace("replace endpoint", was.version, encode_endpoint(to))

    def flow(self, key: EndpointKey) -> CallFlow | None:
        item = self._get("get flow of calls", encode_flow_key(key))
        return None if item is None else decode_flow(key, item)

    def replace_flow(self, was: CallFlow, to: CallFlow) -> bool:
        return self._replace("replace flow of calls", was.version, encode_flow(to))

    def list(self, tenant: str, pool: str, *, cursor: str | None, limit: int) -> Page[Endpoint]:
        low = "" if cursor is None else after(decode_cursor(cursor, DESTINATION))
        with self._database.reading("list endpoints") as connection:
            items = ENDPOINTS.query(connection, owner(pool, tenant), low, limit=limit + 1)
        return limited(items, limit, decode_endpoint, "destination")

    def _get(self, what: str, key: Item) -> Item | None:
        with self._database.reading(what) as connection:
            return ENDPOINTS.get(connection, *_texts(key))

    def _replace(self, what: str, version: int, item: Item) -> bool:
        """Store *item* if the stored one has *version*; 0: is not stored."""
        key = {name: item[name] for name in ("owner", "destination")}
        with self._database.writing(what) as connection:
            stored = ENDPOINTS.get(connection, *_texts(key))
            expected = None if stored is None else stored.get("version")
            if expected != ({"N": str(version)} if version else None) or (stored and not version):
                return False
            ENDPOINTS.put(connection, item)
            return True


def _texts(key: Item) -> tuple[str, str]:
    return key["owner"]["S"], key["destination"]["S"]
