"""The audit chain in S3: one object for each batch of events.

Keys count down from 999999999999, so S3, which lists keys in ascending order, lists the newest
batch first. An object is written only if its key is free (`If-None-Match: *`): of several writers
one gets the next place, and the chain cannot fork.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from nextfire.adapters.aws import error_code, translated
from nextfire.domain.chain import Batch, BrokenChainError
from nextfire.domain.instants import parse_instant

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PREFIX = "chain/"
_GREATEST = 10**12 - 1
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_REMEMBERED = 1_000
"""Batches whose ids a process remembers, so that it does not read them again."""


class S3AuditLog:
    """`AuditLog` in the bucket *bucket*."""

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._last: Batch | None = None
        self._remembered: dict[int, Batch] = {}

    def last(self) -> Batch | None:
        """The newest batch that this process knows: `append` fails if there is a newer one."""
        if self._last is None:
            with translated("list audit batches"):
                answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=PREFIX, MaxKeys=1)
            found = answer.get("Contents", [])
            self._last = self.read(number_of(found[0]["Key"])) if found else None
        return self._last

    def ids_since(self, last: Batch | None, since: datetime) -> Collection[str]:
        """The ids of the events in *last* and the batches before it that were written at *since* or
        later.
        """
        ids: set[str] = set()
        batch = last
        while batch is not None and parse_instant(batch.recorded_at) >= since:
            ids.update(str(event["id"]) for event in batch.events)
            batch = self.read(batch.number - 1) if batch.number > 1 else None
        return ids

    def append(self, batch: Batch) -> bool:
        """Write *batch* unless there is one of its number. False: there is; call `last` again."""
        body = json.dumps({"batch": batch.number, "events": batch.events}, ensure_ascii=False)
        self._last = None
        try:
            with translated("append audit events"):
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key_of(batch.number),
                    Body=body.encode("utf-8"),
                    ContentType="application/json",
                    IfNoneMatch="*",
                )
        except ClientError as error:
            if error_code(error) not in _TAKEN:
                raise
            return False
        self._remember(batch)
        self._last = batch
        return True

    def read(self, number: int) -> Batch:
        """The batch *number*, which is there. Raises as `last` does."""
        if number not in self._remembered:
            with translated("read audit events"):
                answer = self._client.get_object(Bucket=self._bucket, Key=key_of(number))
                self._remember(decode_batch(number, answer["Body"].read()))
        return self._remembered[number]

    def _remember(self, batch: Batch) -> None:
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[batch.number] = batch


def key_of(number: int) -> str:
    """The key of the batch *number*."""
    return f"{PREFIX}{_GREATEST - number:012d}.json"


def number_of(key: str) -> int:
    """The number of the batch at *key*.

    Raises:
        BrokenChainError: It is not the key of a batch.
    """
    digits = key.removeprefix(PREFIX).removesuffix(".json")
    if not digits.isdecimal() or key != key_of(number := _GREATEST - int(digits)):
        raise BrokenChainError(f"object {key}", "it is not a batch of events")
    return number


def decode_batch(number: int, body: bytes) -> Batch:
    """The batch *number*, whose object holds *body*.

    Raises:
        BrokenChainError: It does not decode, or is another batch.
    """
    place = f"batch {number} (object {key_of(number)})"
    try:
        document: Any = json.loads(body)
        events = document["events"]
        if document["batch"] != number or not events:
            raise BrokenChainError(place, f"the object holds batch {document['batch']!r}")
        if not all(isinstance(event, dict) for event in events):
            raise BrokenChainError(place, "its events do not decode")
    except (LookupError, TypeError, ValueError) as error:
        raise BrokenChainError(place, "the object does not decode") from error
    return Batch(number, events)
