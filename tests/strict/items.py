"""Items of DynamoDB: their size, their units, and those that a request touches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.strict.exchange import Call, Document

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})
READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems"})
_WRITE_UNIT, _READ_UNIT = 1024, 4096
_ASSIGNED = re.compile(r"(#?\w+)\s*=\s*(:\w+)")
_CHANGES = frozenset({"Put", "Update", "Delete", "ConditionCheck"})


@dataclass(frozen=True, slots=True)
class Touched:
    """An item that a request reads or writes. `attributes`: its key, or all of it if it is put.
    `assigned`: what an update sets it to, as far as that is a value of the request.
    """

    table: str
    attributes: Mapping[str, Any]
    put: bool = False
    assigned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def write_units(self) -> float:
        return max(-(-item_bytes(self.attributes) // _WRITE_UNIT), 1) if self.put else 1


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item as DynamoDB counts it."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def read_units(item: Mapping[str, Any], *, consistent: bool) -> float:
    units = max(-(-item_bytes(item) // _READ_UNIT), 1)
    return units if consistent else units / 2


def _value_bytes(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content.strip("-0.")) // 2 + 2
        case "B":
            return len(content) * 3 // 4
        case "M":
            return 3 + len(content) + item_bytes(content)
        case "L":
            return 3 + len(content) + sum(_value_bytes(each) for each in content)
        case "SS" | "NS" | "BS":
            return sum(len(each) for each in content)
        case _:
            return 1


def touched(call: Call) -> list[Touched]:
    """The items of a request that names its items, in the order of the request."""
    request = call.request
    match call.operation:
        case "PutItem":
            return [Touched(request["TableName"], request["Item"], put=True)]
        case "GetItem" | "DeleteItem":
            return [Touched(request["TableName"], request["Key"])]
        case "UpdateItem":
            return [_updated(request)]
        case "TransactWriteItems" | "TransactGetItems":
            return [_of_action(action) for action in request["TransactItems"]]
        case "BatchWriteItem" | "BatchGetItem":
            return [each for each, _ in batch_parts(call)]
        case _:
            return []


def batch_parts(call: Call) -> Iterator[tuple[Touched, Document]]:
    """The items of a batch, each with the part of the request that names it."""
    for table, content in call.request["RequestItems"].items():
        if call.operation == "BatchGetItem":
            for key in content["Keys"]:
                yield Touched(table, key), key
            continue
        for part in content:
            if "PutRequest" in part:
                yield Touched(table, part["PutRequest"]["Item"], put=True), part
            else:
                yield Touched(table, part["DeleteRequest"]["Key"]), part


def only(call: Call, parts: list[tuple[Touched, Document]]) -> Document:
    """The `RequestItems` of *call* with only the *parts* that are given."""
    found: Document = {}
    for item, part in parts:
        if call.operation == "BatchGetItem":
            content = call.request["RequestItems"][item.table]
            found.setdefault(item.table, {**content, "Keys": []})["Keys"].append(part)
        else:
            found.setdefault(item.table, []).append(part)
    return found


def _of_action(action: Document) -> Touched:
    [(kind, content)] = [each for each in action.items() if each[0] in {*_CHANGES, "Get"}]
    if kind == "Put":
        return Touched(content["TableName"], content["Item"], put=True)
    return _updated(content) if kind == "Update" else Touched(content["TableName"], content["Key"])


def _updated(update: Document) -> Touched:
    names = update.get("ExpressionAttributeNames", {})
    values = update.get("ExpressionAttributeValues", {})
    assigned = {
        names.get(name, name): values[value]
        for name, value in _ASSIGNED.findall(update.get("UpdateExpression", ""))
        if value in values
    }
    return Touched(update["TableName"], update["Key"], assigned=assigned)


def partition_of_query(request: Document, hash_name: str) -> Any:
    """The value of the partition key *hash_name* in a query's condition; None if not found."""
    names = request.get("ExpressionAttributeNames", {})
    values = request.get("ExpressionAttributeValues", {})
    for name, value in _ASSIGNED.findall(request.get("KeyConditionExpression", "")):
        if names.get(name, name) == hash_name:
            return values.get(value)
    return None
