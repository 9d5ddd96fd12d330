"""The audit chain in S3: one object per batch of events.

Keys count down from 999999999999. S3 lists keys in ascending order, so it lists the newest batch
first. Each write is conditional on a free key (`If-None-Match: *`): if several writers compete, one
of them gets the next number, and the chain cannot fork.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.dataclass import dataclass
from nextfire.domain.chain import Batch, BrokenChainError
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import parse_instant

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PREFIX = "chain/"
_GREATEST = 10**12 - 1
_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MAX_CACHED_IDS = 200_000
"""Maximum number of event ids cached per process (about 20 MiB), so that batches are not read
again. The cache exceeds it if a single `ids_since` call needs more."""
_MAX_READS = 1_000
"""Maximum number of batches that one `ids_since` call reads: about half a minute."""


@dataclass(frozen=True, slots=True)
class _CachedBatch:
    """The cached part of a batch."""

    recorded_at: datetime
    ids: tuple[str, ...]


class S3AuditLog:
    """`AuditLog` in the S3 bucket *bucket*."""

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._last: Batch | None = None
        self._cached: dict[int, _CachedBatch] = {}
        self._ids = 0

    def last(self) -> Batch | None:
        """Return the newest batch that this process knows; None if the log is empty.

        If a newer batch exists, `append` returns False.
        """
        if self._last is None:
            with translated("list audit batches"):
                answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=PREFIX, MaxKeys=1)
            found = answer.get("Contents", [])
            self._last = self.read(number_of(found[0]["Key"])) if found else None
        return self._last

    def ids_since(self, last: Batch | None, since: datetime) -> Collection[str]:
        """Return the ids of events in *last* and earlier batches recorded at or after *since*.

        Raises:
            UnavailableError: More batches must be read than one call may read. The batches read so
                far are cached, and the next call continues after them.
        """
        if last is None:
            return set()
        self._remember(last)
        ids: set[str] = set()
        reads, number = 0, last.number
        while number > 0:
            if number not in self._cached:
                if reads == _MAX_READS:
                    raise UnavailableError("read audit events: too many for one call. Try again.")
                reads += 1
                self._remember(self.read(number))
            known = self._cached[number]
            if known.recorded_at < since:
                break
            ids.update(known.ids)
            number -= 1
        self._evict_before(number)
        return ids

    def append(self, batch: Batch) -> bool:
        """Write *batch*. False if its number is taken: call `last` again."""
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
        except refused() as error:
            if error_code(error) not in _TAKEN:
                raise
            return False
        self._last = batch
        return True

    def read(self, number: int) -> Batch:
        """Read batch *number*, which must exist. Raises the same errors as `last`."""
        with translated("read audit events"):
            answer = self._client.get_object(Bucket=self._bucket, Key=key_of(number))
            batch = decode_batch(number, answer["Body"].read())
        _check_appendable(batch)
        return batch

    def _remember(self, batch: Batch) -> None:
        if batch.number not in self._cached:
            ids = tuple(str(event["id"]) for event in batch.events)
            self._cached[batch.number] = _CachedBatch(parse_instant(batch.recorded_at), ids)
            self._ids += len(ids)

    def _evict_before(self, needed: int) -> None:
        """If the cache is too large, evict the oldest batches, but none from *needed* on."""
        if self._ids <= _MAX_CACHED_IDS:
            return
        for number in sorted(self._cached):
            if number >= needed or self._ids <= _MAX_CACHED_IDS:
                return
            self._ids -= len(self._cached.pop(number).ids)


def key_of(number: int) -> str:
    """The object key of batch *number*."""
    return f"{PREFIX}{_GREATEST - number:012d}.json"


def number_of(key: str) -> int:
    """The batch number in the object key *key*.

    Raises:
        BrokenChainError: *key* is not the key of a batch.
    """
    digits = key.removeprefix(PREFIX).removesuffix(".json")
    number = _GREATEST - int(digits) if digits.isdecimal() else 0
    if number < 1 or key != key_of(number):
        raise BrokenChainError(f"object {key}", "the key is not the key of an audit batch")
    return number


def decode_batch(number: int, body: bytes) -> Batch:
    """Decode *body*, the object of batch *number*.

    Raises:
        BrokenChainError: *body* does not decode, or holds another batch.
    """
    place = f"batch {number} (object {key_of(number)})"
    try:
        document: Any = json.loads(body)
        events = document["events"]
        if document["batch"] != number or not events:
            raise BrokenChainError(place, f"the object holds batch {document['batch']!r}")
        if not all(isinstance(event, dict) for event in events):
            raise BrokenChainError(place, "its events do not decode")
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise BrokenChainError(place, "the object does not decode") from error
    return Batch(number, events)


def _check_appendable(batch: Batch) -> None:
    """Check that *batch* has what a writer needs to append to it.

    Raises:
        BrokenChainError: It does not.
    """
    try:
        parse_instant(batch.recorded_at)
        texts = [batch.end.hash, *(event["id"] for event in batch.events)]
        is_complete = all(isinstance(each, str) for each in texts)
        is_complete = is_complete and isinstance(batch.end.number, int)
    except (KeyError, ValueError):
        is_complete = False
    if not is_complete:
        place = f"batch {batch.number} (object {key_of(batch.number)})"
        raise BrokenChainError(place, "an event has no id, instant, number or hash")
