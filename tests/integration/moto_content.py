"""The content of moto's account, read without calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID

from nextfire.adapters.dynamodb.items import Item
from tests.integration.conftest import REGION


def backend(service: Any, region: str = REGION) -> Any:
    return get_backend(service)[DEFAULT_ACCOUNT_ID][region]


def tables() -> list[str]:
    return [*backend("dynamodb").tables]


def items(table: str) -> list[Item]:
    """All items of *table*, in no order."""
    rows = backend("dynamodb").tables[table].items.values()
    found = [i for row in rows for i in (row.values() if isinstance(row, dict) else [row])]
    return [item.to_json()["Attributes"] for item in found]


def objects() -> Iterator[tuple[str, str, str]]:
    """Bucket, key and ETag of each object."""
    for name, bucket in backend("s3", "aws").buckets.items():
        yield from ((name, key, each.etag) for key, each in bucket.keys.items())
