"""Transactions that overlap in time on an item: DynamoDB refuses the later one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.strict.exchange import Answer, Call, Proceed, refusal
from tests.strict.items import batch_parts, only, touched
from tests.strict.rule import Circumstances
from tests.strict.tables import ItemId, Tables
from tests.strict.throughput import cancelled, unprocessed

_SINGLE = frozenset({"PutItem", "UpdateItem", "DeleteItem"})


@dataclass
class Conflicts:
    here: Circumstances
    tables: Tables
    _busy: Counter[ItemId | None] = field(default_factory=Counter)
    _tokens: set[str] = field(default_factory=set)
    name = "conflicts"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        if call.service != "dynamodb":
            return await proceed(call)
        match call.operation:
            case "TransactWriteItems":
                return await self._transaction(call, proceed)
            case "BatchWriteItem":
                return await self._batch(call, proceed)
            case operation if operation in _SINGLE:
                if any(self._taken(await self._ids(call))):
                    self.here.act(self.name, call)
                    text = "Transaction is ongoing for the item"
                    return refusal(call, "TransactionConflictException", text)
        return await proceed(call)

    async def _transaction(self, call: Call, proceed: Proceed) -> Answer:
        ids = await self._ids(call)
        token = str(call.request.get("ClientRequestToken", ""))
        if token and token in self._tokens:
            self.here.act(self.name, call)
            text = "The transaction with the given request token is already in progress."
            return refusal(call, "TransactionInProgressException", text)
        taken = self._taken(ids)
        if any(taken):
            self.here.act(self.name, call)
            return cancelled(call, ["TransactionConflict" if each else "None" for each in taken])
        self._busy.update(ids)
        self._tokens.add(token)
        try:
            await self.here.sleep(self.here.strictness.transaction_ms / 1000)
            return await proceed(call)
        finally:
            self._busy -= Counter(ids)
            self._tokens.discard(token)

    async def _batch(self, call: Call, proceed: Proceed) -> Answer:
        """An item of a batch that a transaction holds is not processed."""
        parts = list(batch_parts(call))
        taken = self._taken(await self._ids(call))
        if not any(taken):
            return await proceed(call)
        self.here.act(self.name, call, sum(taken))
        rejected = [part for part, held in zip(parts, taken, strict=True) if held]
        admitted = [part for part, held in zip(parts, taken, strict=True) if not held]
        if not admitted:
            return refusal(call, "TransactionConflictException", "Transactions are ongoing")
        passed = call.with_request({**call.request, "RequestItems": only(call, admitted)})
        return unprocessed(call, await proceed(passed), rejected)

    async def _ids(self, call: Call) -> list[ItemId | None]:
        return [
            await self.tables.identity(call, item.table, item.attributes) for item in touched(call)
        ]

    def _taken(self, ids: list[ItemId | None]) -> list[bool]:
        return [each is not None and self._busy[each] > 0 for each in ids]
