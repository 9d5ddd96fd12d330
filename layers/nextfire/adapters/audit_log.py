"""The audit chain in S3: one object for each batch of events.

Keys count down from 999999999999, so S3, which lists keys in ascending order, lists the newest
batch first. An object is written only if its key is free (`If-None-Match: *`): of several writers
one gets the next place, and the chain cannot fork.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from nextfire.adapters.aws import error_code, translated
from nextfire.domain.chain import Batch, BrokenChainError
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import parse_instant

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PREFIX = "chain/"
_GREATEST = 10**12 - 1
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_REMEMBERED = 200_000
"""Ids that a process remembers, so that it does not read their batches again; more if a single
`ids_since` needs more. About 20 MiB."""
_MOST_READS = 1_000
"""Batches that one `ids_since` reads: half a minute."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a process remembers of a batch."""

    recorded_at: datetime
    ids: tuple[str, ...]


class S3AuditLog:
    """`AuditLog` in the bucket *bucket*."""

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._last: Batch | None = None
        self._remembered: dict[int, _Known] = {}
        self._ids = 0

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

        Raises:
            UnavailableError: There are more than one call reads. Those that were read are
                remembered: the next call continues after them.
        """
        if last is None:
            return set()
        self._remember(last)
        ids: set[str] = set()
        reads, number = 0, last.number
        while number > 0:
            if number not in self._remembered:
                if reads == _MOST_READS:
                    raise UnavailableError("read audit events: too many for one call. Try again.")
                reads += 1
                self._remember(self.read(number))
            known = self._remembered[number]
            if known.recorded_at < since:
                break
            ids.update(known.ids)
            number -= 1
        self._forget_before(number)
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
        self._last = batch
        return True

    def read(self, number: int) -> Batch:
        """The batch *number*, which is there. Raises as `last` does."""
        with translated("read audit events"):
            answer = self._client.get_object(Bucket=self._bucket, Key=key_of(number))
            return decode_batch(number, answer["Body"].read())

    def _remember(self, batch: Batch) -> None:
        if batch.number not in self._remembered:
            ids = tuple(str(event["id"]) for event in batch.events)
            self._remembered[batch.number] = _Known(parse_instant(batch.recorded_at), ids)
            self._ids += len(ids)

    def _forget_before(self, needed: int) -> None:
        """Forget the oldest batches, beyond what fits, that are older than the batch *needed*."""
        if self._ids <= _REMEMBERED:
            return
        for number in sorted(self._remembered):
            if number >= needed or self._ids <= _REMEMBERED:
                return
            self._ids -= len(self._remembered.pop(number).ids)


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
