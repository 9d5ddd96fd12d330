"""The keys and the provisioned capacity of the tables, asked for once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.strict.exchange import Call, Document, Upstream


@dataclass(frozen=True, slots=True)
class Schema:
    """Names of the key attributes. `indexes`: the partition key of each secondary index.
    `provisioned`: units per second of `read` and `write`; none if the table is on demand.
    """

    hash: str
    range: str | None = None
    indexes: Mapping[str, str] = field(default_factory=dict)
    provisioned: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.hash,) if self.range is None else (self.hash, self.range)


ItemId = tuple[str, str, str]
"""Account, table, key: identifies an item."""


class Tables:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._known: dict[tuple[str, str], Schema] = {}

    async def schema(self, call: Call, table: str) -> Schema | None:
        """The keys of *table* in the account of *call*; None if it does not exist."""
        place = (account(call), table)
        if place not in self._known:
            found = await self._upstream.ask(call, "DescribeTable", {"TableName": table})
            if "Table" not in found:
                return None
            self._known[place] = _schema(found["Table"])
        return self._known[place]

    def provisioned(self, account: str, table: str, kind: str) -> int | None:
        """The capacity of *table* for *kind* (`read` or `write`); None if it is on demand. Its keys
        were asked for before.
        """
        return self._known[account, table].provisioned.get(kind)

    async def identity(
        self, call: Call, table: str, attributes: Mapping[str, Any]
    ) -> ItemId | None:
        """The identity of the item with these *attributes*, which include its key."""
        schema = await self.schema(call, table)
        if schema is None or any(name not in attributes for name in schema.key):
            return None
        key = json.dumps([attributes[name] for name in schema.key])
        return account(call), table, key


def account(call: Call) -> str:
    """Emulators treat each access key of 12 digits as a separate account; other keys share one."""
    return call.key if call.key.isdigit() else ""


def _schema(table: Document) -> Schema:
    def names(schema: list[dict[str, str]]) -> dict[str, str]:
        return {each["KeyType"]: each["AttributeName"] for each in schema}

    key = names(table["KeySchema"])
    indexes = {
        each["IndexName"]: names(each["KeySchema"])["HASH"]
        for each in table.get("GlobalSecondaryIndexes", [])
    }
    billing = table.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    # The emulator reports a capacity for tables on demand too.
    units = table["ProvisionedThroughput"] if billing == "PROVISIONED" else {}
    provisioned = {
        kind: units[name]
        for kind, name in (("read", "ReadCapacityUnits"), ("write", "WriteCapacityUnits"))
        if name in units
    }
    return Schema(key["HASH"], key.get("RANGE"), indexes, provisioned)
