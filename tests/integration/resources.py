"""Empty tables, queues and buckets of moto. The first one of each form is created by a call; later
tests get a copy of it, which takes a small part of the time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import Condition
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from moto.s3.models import s3_backends
from moto.sqs.models import sqs_backends

_created: dict[tuple[str, ...], tuple[Any, Any]] = {}
"""By its form, a resource and the answer of the call that created it."""


def table(name: str, region: str, create: Callable[[], object]) -> None:
    """The table *name*: a copy of the one that *create* created before, or created now."""
    tables = dynamodb_backends[DEFAULT_ACCOUNT_ID][region].tables
    _take(("table", name, region), name, tables, create, copy.deepcopy)


def bucket(name: str, region: str, create: Callable[[], object]) -> None:
    """As `table`, for a bucket."""
    buckets = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets
    _take(("bucket", name, region), name, buckets, create, copy.deepcopy)
    s3_backends.bucket_accounts[name] = ("aws", DEFAULT_ACCOUNT_ID)


def queue(name: str, region: str, attributes: dict[str, str], create: Callable[[], str]) -> str:
    """As `table`, for a queue with *attributes*. Returns its URL, as *create* does."""
    queues = sqs_backends[DEFAULT_ACCOUNT_ID][region].queues

    def copied(queue: Any) -> Any:
        dead = queue.dead_letter_queue
        lock = queue._messages_lock  # noqa: SLF001 — it cannot be copied
        kept: dict[int, Any] = {id(lock): Condition()}
        if dead is not None:
            kept[id(dead)] = queues[dead.name]
        return copy.deepcopy(queue, kept)

    url: str = _take(("queue", name, region, repr(attributes)), name, queues, create, copied)
    return url


def snapshot(region: str) -> Callable[[], None]:
    """Returns a function that puts all tables of now into an account, any number of times."""

    def tables() -> dict[str, Any]:
        found: dict[str, Any] = dynamodb_backends[DEFAULT_ACCOUNT_ID][region].tables
        return found

    kept = copy.deepcopy(tables())
    return lambda: tables().update(copy.deepcopy(kept))


def _take(
    form: tuple[str, ...],
    name: str,
    existing: dict[str, Any],
    create: Callable[[], Any],
    copied: Callable[[Any], Any],
) -> Any:
    if form in _created and name not in existing:
        made, answer = _created[form]
        existing[name] = copied(made)
        return answer
    answer = create()  # also if there is one: moto decides
    _created[form] = copied(existing[name]), answer
    return answer
