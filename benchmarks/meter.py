"""Counts the AWS requests of this process, and the units that they cost."""

from __future__ import annotations

import threading
from collections import Counter
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
    """

    calls: Counter[str] = field(default_factory=Counter)
    read_units: float = 0.0
    write_units: float = 0.0

    def of(self, service: str) -> int:
        """The number of requests to *service*."""
        return sum(count for name, count in self.calls.items() if name.split()[0] == service)

    def __sub__(self, other: Tally) -> Tally:
        calls = Counter(self.calls)
        calls.subtract(other.calls)
        return Tally(
            calls, self.read_units - other.read_units, self.write_units - other.write_units
        )


_READS = frozenset({"Query", "GetItem", "BatchGetItem"})
_CONSISTENT = "nextfire_consistent"


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
        if "ReturnConsumedCapacity" not in model.input_shape.members:
            return params
        return {**params, "ReturnConsumedCapacity": "TOTAL"}

    def _count(self, parsed: dict[str, Any], model: Any, context: Any, **_: object) -> None:  # noqa: ANN401
        refused = parsed.get("Error", {}).get("Code") == "ConditionalCheckFailedException"
        with self._lock:
            self._tally.calls[f"{model.service_model.service_name} {model.name}"] += 1
            if model.name in _READS:
                self._tally.read_units += _read_units(
                    model.name, parsed, consistent=context[_CONSISTENT]
                )
            else:
                self._tally.write_units += 1 if refused else _reported_units(parsed)


def _read_units(operation: str, parsed: dict[str, Any], *, consistent: bool) -> float:
    pages = [parsed["Item"]] if "Item" in parsed else parsed.get("Items", [])
    for items in parsed.get("Responses", {}).values():
        pages = [*pages, *items]
    return read_units(
        [item_bytes(item) for item in pages],
        consistent=consistent,
        one_by_one=operation == "BatchGetItem",
    )


def _reported_units(parsed: dict[str, Any]) -> float:
    consumed = parsed.get("ConsumedCapacity", [])
    answers = consumed if isinstance(consumed, list) else [consumed]
    return float(sum(answer["CapacityUnits"] for answer in answers))
