"""Capacity of partitions, and of new or provisioned tables. What exceeds it is throttled; of a
batch, single items.

The cost of a call is known after it: a call is admitted while there is capacity left, and may leave
a debt, as on DynamoDB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.strict.exchange import Answer, Call, Document, Proceed, refusal
from tests.strict.items import (
    READS,
    WRITES,
    Touched,
    batch_parts,
    only,
    partition_of_query,
    touched,
)
from tests.strict.rule import Circumstances, TokenBucket
from tests.strict.tables import Tables, account

_Place = tuple[str, str, str, str, str]
"""Account, table, index or "", partition or "", `read` or `write`."""
_TRANSACTIONS = frozenset({"TransactWriteItems", "TransactGetItems"})


@dataclass
class Throughput:
    here: Circumstances
    tables: Tables
    _buckets: dict[_Place, TokenBucket] = field(default_factory=dict)
    name = "throughput"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        if call.service != "dynamodb" or call.operation not in WRITES | READS:
            return await proceed(call)
        if call.operation in {"BatchWriteItem", "BatchGetItem"}:
            return await self._batch(call, proceed)
        items = touched(call) or [self._searched(call)]
        places = [await self._places(call, item) for item in items]
        throttled = [not self._admitted(each) for each in places]
        if any(throttled):
            self.here.act(self.name, call)
            return self._refused(call, throttled)
        self._take(places, [self._estimate(call, item) for item in items])
        return await self._measured(call, proceed, places)

    async def _batch(self, call: Call, proceed: Proceed) -> Answer:
        admitted, rejected, places = [], [], []
        for item, part in batch_parts(call):
            found = await self._places(call, item)
            if not self._admitted(found):
                rejected.append((item, part))
                continue
            self._take([found], [self._estimate(call, item)])
            admitted.append((item, part))
            places.append(found)
        if rejected:
            self.here.act(self.name, call, len(rejected))
        if not admitted:
            return self._refused(call, [True])
        passed = call if not rejected else call.with_request(
            {**call.request, "RequestItems": only(call, admitted)}
        )  # fmt: skip
        answer = await self._measured(passed, proceed, places)
        return unprocessed(call, answer, rejected) if rejected else answer

    def _searched(self, call: Call) -> Touched:
        """A query or a scan: no item is named."""
        return Touched(call.request["TableName"], {})

    async def _places(self, call: Call, item: Touched) -> list[_Place]:
        """Where the capacity comes from: the table, the partition, and of each index the same."""
        schema = await self.tables.schema(call, item.table)
        if schema is None:
            return []
        index = call.request.get("IndexName", "")
        kind = "write" if call.operation in WRITES else "read"
        attributes = dict(item.attributes)
        if call.operation == "Query":
            name = schema.indexes.get(index, schema.hash)
            attributes = {name: partition_of_query(call.request, name)}
        found = list(_pair(call, item.table, index, attributes.get(schema.hash), kind))
        if index:
            name = schema.indexes[index]
            return list(_pair(call, item.table, index, attributes.get(name), kind))
        if kind == "write":
            written = {**attributes, **item.assigned}
            for each, name in schema.indexes.items():
                if name in written:
                    found += _pair(call, item.table, each, written[name], kind)
        return found

    def _admitted(self, places: Iterable[_Place]) -> bool:
        now = self.here.now()
        return all(self._bucket(place).has(now) for place in places)

    def _bucket(self, place: _Place) -> TokenBucket:
        if place not in self._buckets:
            self._buckets[place] = self._new_bucket(*place)
        return self._buckets[place]

    def _new_bucket(
        self, owner: str, table: str, index: str, partition: str, kind: str
    ) -> TokenBucket:
        now, strictness = self.here.now(), self.here.strictness
        if partition:
            return TokenBucket(strictness.rate(f"partition-{kind}"), now)
        provisioned = None if index else self.tables.provisioned(owner, table, kind)
        if provisioned is None:
            return TokenBucket(strictness.rate(f"new-table-{kind}"), now)
        return TokenBucket(provisioned, now, saved=strictness.rate("burst"))

    def _estimate(self, call: Call, item: Touched) -> float:
        units = item.write_units if call.operation in WRITES else 1 / 2
        return units * 2 if call.operation in _TRANSACTIONS else units

    def _take(self, places: Sequence[Iterable[_Place]], units: Sequence[float]) -> None:
        for each, cost in zip(places, units, strict=True):
            for place in each:
                self._bucket(place).take(cost)

    async def _measured(
        self, call: Call, proceed: Proceed, places: Sequence[Sequence[_Place]]
    ) -> Answer:
        """Proceed, and charge what the call cost beyond the estimate."""
        asked = call.request.get("ReturnConsumedCapacity", "NONE")
        if asked != "NONE":
            return await proceed(call)
        answer = await proceed(
            call.with_request({**call.request, "ReturnConsumedCapacity": "TOTAL"})
        )
        if not answer.ok:
            return answer
        document = answer.document
        consumed = _consumed(document.pop("ConsumedCapacity", None))
        items = touched(call) or [self._searched(call)]
        estimated = sum(self._estimate(call, item) for item in items)
        more = (consumed - estimated) / max(len(places), 1)
        self._take(places, [more] * len(places))
        return answer.with_document(document)

    def _refused(self, call: Call, throttled: Sequence[bool]) -> Answer:
        if call.operation in _TRANSACTIONS:
            return cancelled(call, ["ThrottlingError" if each else "None" for each in throttled])
        kind = "Write" if call.operation in WRITES else "Read"
        tables = {each.table for each in touched(call)} or {call.request["TableName"]}
        provisioned = any(
            self.tables.provisioned(account(call), each, kind.lower()) for each in tables
        )
        text = "Throughput exceeds the current capacity of your table or index."
        code = "ProvisionedThroughputExceededException" if provisioned else "ThrottlingException"
        limit = "Provisioned" if provisioned else "KeyRange"
        reason = {"reason": f"Table{kind}{limit}ThroughputExceeded", "resource": ""}
        return refusal(call, code, text, throttlingReasons=[reason])


def _pair(call: Call, table: str, index: str, partition: Any, kind: str) -> Iterable[_Place]:
    yield account(call), table, index, "", kind
    if partition is not None:
        yield account(call), table, index, json.dumps(partition), kind


def _consumed(capacity: Document | list[Document] | None) -> float:
    parts = capacity if isinstance(capacity, list) else [capacity or {}]
    return sum(float(part.get("CapacityUnits", 0)) for part in parts)


def unprocessed(call: Call, answer: Answer, rejected: list[tuple[Touched, Document]]) -> Answer:
    """*answer* with the parts of the batch that were *rejected*."""
    if not answer.ok:
        return answer
    document = answer.document
    name = "UnprocessedKeys" if call.operation == "BatchGetItem" else "UnprocessedItems"
    found = document.setdefault(name, {})
    for table, content in only(call, rejected).items():
        before = found.get(table)
        if before is None:
            found[table] = content
        elif isinstance(content, list):
            before += content
        else:
            before["Keys"] += content["Keys"]
    return answer.with_document(document)


def cancelled(call: Call, codes: Sequence[str]) -> Answer:
    """A cancelled transaction; *codes*: the reason of each action, or "None"."""
    text = (
        "Transaction cancelled, please refer cancellation reasons for specific reasons "
        f"[{', '.join(codes)}]"
    )
    reasons = [{"Code": code} for code in codes]
    return refusal(call, "TransactionCanceledException", text, CancellationReasons=reasons)
