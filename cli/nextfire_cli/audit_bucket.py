"""The bucket of the audit chain, read by the command with the caller's credentials."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from nextfire.adapters.s3.audit_log import PREFIX, decode_batch, key_of, number_of
from nextfire.domain.chain import Batch, BrokenChainError
from nextfire_cli.aws_errors import explained

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONCURRENT_READS = 16


@dataclass(frozen=True)
class Stored:
    """An object of the chain, and when S3 stored it."""

    number: int
    stored_at: datetime


class AuditBucket:
    """The objects of the chain. Each method raises `CliError` if S3 refuses or does not respond."""

    def __init__(self, client: "S3Client", bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def numbers(self, since: datetime | None) -> range:
        """The numbers of the batches stored at *since* or later, oldest first, without a gap.
        Takes no more memory for a long chain.

        Raises:
            BrokenChainError: An object was overwritten or removed.
        """
        newest = oldest = first = 0
        for each in self._listed():
            if oldest and each.number != oldest - 1:
                break
            newest, oldest = newest or each.number, each.number
            if since is None or each.stored_at >= since:
                first = oldest
        if oldest > 1:
            missing = oldest - 1
            raise BrokenChainError(
                f"batch {missing} (object {key_of(missing)})", "the object is missing"
            )
        return range(first, newest + 1) if first else range(0)

    def newest(self, since: datetime | None) -> Iterator[int]:
        """The numbers of the batches stored at *since* or later, newest first. Listed as needed:
        older batches, and gaps, are not looked for.

        Raises:
            BrokenChainError: An object was overwritten or removed.
        """
        for each in self._listed():
            if since is not None and each.stored_at < since:
                return
            yield each.number

    def _listed(self) -> Iterator[Stored]:
        """All batches, newest first. Raises as `newest`."""
        with self._reading():
            pages = self._client.get_paginator("list_object_versions").paginate(
                Bucket=self._bucket, Prefix=PREFIX
            )
            last = None
            for page in pages:
                if page.get("DeleteMarkers"):
                    key = page["DeleteMarkers"][0]["Key"]
                    raise BrokenChainError(_place(key), "the object was deleted")
                for version in page.get("Versions", []):
                    number = number_of(version["Key"])
                    if number == last:
                        raise BrokenChainError(
                            _place(version["Key"]), "the object was overwritten: it has versions"
                        )
                    last = number
                    yield Stored(number, version["LastModified"])

    def batches(self, numbers: Iterable[int]) -> Iterator[Batch]:
        """The batches of these *numbers*, in their order. Takes *numbers* as they are needed.

        Raises:
            BrokenChainError: A batch cannot be decoded.
        """
        left = iter(numbers)
        while part := [*islice(left, _CONCURRENT_READS)]:
            # Its threads have ended before a batch is handed out: a caller may never go on.
            with ThreadPoolExecutor(_CONCURRENT_READS) as executor:
                read = [executor.submit(self._read, number) for number in part]
            for batch in read:
                yield batch.result()

    def _read(self, number: int) -> Batch:
        with self._reading():
            answer = self._client.get_object(Bucket=self._bucket, Key=key_of(number))
            body = answer["Body"].read()
        return decode_batch(number, body)

    def _reading(self) -> AbstractContextManager[None]:
        return explained(
            f"The audit bucket {self._bucket} cannot be read",
            "Your credentials need s3:ListBucketVersions on it and s3:GetObject in it.",
        )


def _place(key: str) -> str:
    return f"batch {number_of(key)} (object {key})"
