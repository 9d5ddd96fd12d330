"""Counts the AWS requests of this process, and the units that they cost."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3

from benchmarks.figures import item_bytes, read_units


@dataclass(slots=True)
class Tally:
    """Requests by service and operation (``dynamodb Query``), and DynamoDB's units.

    Write units are those that the answers report, and one for a rejected conditional write, which
    no answer reports. Read units are computed from the items in the answers by DynamoDB's rule:
    MiniStack reports 0.5 or 1 for any read, and nothing for BatchGetItem.

    Attributes:
        reads, writes: Units by table.
    """

    calls: Counter[str] = field(default_factory=Counter)
    reads: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    writes: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def read_units(self) -> float:
        return sum(self.reads.values())

    @property
    def write_units(self) -> float:
        return sum(self.writes.values())

    def of(self, service: str) -> int:
        """The number of requests to *service*."""
        return sum(count for name, count in self.calls.items() if name.split()[0] == service)

    def __sub__(self, other: Tally) -> Tally:
        calls = Counter(self.calls)
        calls.subtract(other.calls)
        return Tally(calls, _less(self.reads, other.reads), _less(self.writes, other.writes))


def _less(units: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    found = {table: units.get(table, 0) - other.get(table, 0) for table in {*units, *other}}
    return defaultdict(float, found)


_READS = frozenset({"Query", "GetItem", "BatchGetItem"})
_CONSISTENT, _TABLE = "nextfire_consistent", "nextfire_table"


class Meter:
    """Counts the AWS requests of clients of the default session. Create it before the clients."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._lock = threading.Lock()
        events: Any = boto3.DEFAULT_SESSION.events  # type: ignore[union-attr]
        events.register("provide-client-params.dynamodb", self._ask)
        for service in ("dynamodb", "sqs", "s3"):
            events.register(f"after-call.{service}", self._count)

    def take(self) -> Tally:
        """The tally since the last call."""
        with self._lock:
            taken, self._tally = self._tally, Tally()
        return taken

    def _ask(
        self,
        params: dict[str, Any],
        model: Any,  # noqa: ANN401
        context: dict[str, Any],
        **_: object,
    ) -> dict[str, Any]:
        context[_CONSISTENT] = "'ConsistentRead': True" in repr(params)
        context[_TABLE] = params.get("TableName", "")
        if "ReturnConsumedCapacity" not in model.input_shape.members:
            return params
        return {**params, "ReturnConsumedCapacity": "TOTAL"}

    def _count(self, parsed: dict[str, Any], model: Any, context: Any, **_: object) -> None:  # noqa: ANN401
        refused = parsed.get("Error", {}).get("Code") == "ConditionalCheckFailedException"
        with self._lock:
            self._tally.calls[f"{model.service_model.service_name} {model.name}"] += 1
            if model.name in _READS:
                found = _read_units(context[_TABLE], parsed, consistent=context[_CONSISTENT])
                units = self._tally.reads
            else:
                found = {context[_TABLE]: 1.0} if refused else _reported_units(parsed)
                units = self._tally.writes
            for table, count in found.items():
                units[table] += count


def _read_units(table: str, parsed: dict[str, Any], *, consistent: bool) -> dict[str, float]:
    """The units of an answer, by table. *table*: of the request, unless that is a batch."""
    pages = parsed.get("Responses")
    if pages is None:
        pages = {table: [parsed["Item"]] if "Item" in parsed else parsed.get("Items", [])}
    return {
        name: read_units(
            [item_bytes(item) for item in items],
            consistent=consistent,
            one_by_one="Responses" in parsed,
        )
        for name, items in pages.items()
    }


def _reported_units(parsed: dict[str, Any]) -> dict[str, float]:
    consumed = parsed.get("ConsumedCapacity", [])
    answers = consumed if isinstance(consumed, list) else [consumed]
    found: dict[str, float] = defaultdict(float)
    for answer in answers:
        found[answer["TableName"]] += answer["CapacityUnits"]
    return found
