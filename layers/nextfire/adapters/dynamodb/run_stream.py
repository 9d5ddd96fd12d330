"""Decodes records of the stream of the table `runs`, as Lambda delivers them, into steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.domain.errors import UndecodableError
from nextfire.domain.overview import DeliveredStep, step_of

_STEP = ("state", "dispatch", "fence", "started_at", "finished_at")
"""The attributes that make a step. A heartbeat and a checkpoint change none of them."""
DECODED = ("job", "run_id", "pool", *_STEP)
"""The attributes that the step of a record needs."""


def steps_in(records: Iterable[Mapping[str, Any]]) -> tuple[list[DeliveredStep], int]:
    """The steps of runs in *records*, in order, and the number of items that do not decode.

    Records of other items, such as those of joins, of deletions, and of writes that are not a step,
    are left out.
    """
    found: list[DeliveredStep] = []
    undecodable = 0
    for record in records:
        stream = record["dynamodb"]
        new, old = stream.get("NewImage") or {}, stream.get("OldImage") or {}
        if "state" not in new or all(new.get(name) == old.get(name) for name in _STEP):
            continue
        try:
            found.append(_seen(record, new))
        except UndecodableError:
            undecodable += 1
    return found, undecodable


def _seen(record: Mapping[str, Any], new: Item) -> DeliveredStep:
    run = decode_run({name: new[name] for name in DECODED if name in new})
    at = float(record["dynamodb"]["ApproximateCreationDateTime"])
    return DeliveredStep(run.key.job.tenant, step_of(run), str(record["eventID"]), int(at * 1000))
