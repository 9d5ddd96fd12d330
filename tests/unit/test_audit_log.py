"""Which batches the writer of the audit chain reads, and which ids it caches."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — as S3 refuses

from nextfire.adapters.s3 import audit_log
from nextfire.adapters.s3.audit_log import S3AuditLog
from nextfire.domain.change import ItemChange
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.record_changes import RecordChanges
from tests.builders import NOON
from tests.fakes import Clock

BATCHES = 3_000
RETRIES = BATCHES // audit_log._MAX_READS  # noqa: SLF001
CHANGE = ItemChange("0", "jobs", "MODIFY", {"job_id": "a"}, NOON, {"n": 1}, ("payload",))


class Bucket:
    """An S3 client with one bucket. `gets` counts the objects that were read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.gets = 0

    def list_objects_v2(self, **_: object) -> Any:
        return {"Contents": [{"Key": min(self.objects)}]} if self.objects else {}

    def get_object(self, Key: str, **_: object) -> Any:  # noqa: N803 — AWS name
        self.gets += 1
        return {"Body": io.BytesIO(self.objects[Key])}

    def put_object(self, Key: str, Body: bytes, **_: object) -> None:  # noqa: N803 — AWS name
        assert Key not in self.objects
        self.objects[Key] = Body


class Contended(Bucket):
    """Another writer is faster, a hundred times."""

    faster = 100

    def put_object(self, Key: str, Body: bytes, **more: object) -> None:  # noqa: N803 — AWS name
        if not self.faster:
            super().put_object(Key, Body, **more)
            return
        self.faster -= 1
        others = Body.replace(b"write-", b"other-%d-" % self.faster)
        super().put_object(Key, others, **more)
        raise ClientError({"Error": {"Code": "PreconditionFailed", "Message": ""}}, "PutObject")


class Stack:
    """A bucket that holds *BATCHES* batches of one event, a millisecond apart."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.clock = Clock(NOON)
        self._number = 0
        writer = self.process()
        for _ in range(BATCHES):
            assert self.record(writer) == 1

    def process(self) -> RecordChanges:
        client: Any = self.bucket
        return RecordChanges(S3AuditLog(client, bucket="audit"), self.clock)

    def change(self) -> ItemChange:
        self._number += 1
        return replace(CHANGE, id=f"write-{self._number}", written_at=self.clock.now())

    def record(self, process: RecordChanges) -> int:
        self.clock.advance(timedelta(milliseconds=1))
        return process.record([self.change()])


@pytest.fixture(scope="module")
def full() -> Stack:
    return Stack()


@pytest.fixture
def stack(full: Stack) -> Stack:
    full.bucket.gets = 0
    return full


def test_one_of_many_writers_gets_its_turn_before_its_batch_is_divided() -> None:
    """Lambda halves a batch that failed. With 80 shards of streams, batches became so small that
    the chain took five times as long.
    """
    bucket: Any = Contended()
    change = replace(CHANGE, id="write-1")

    assert RecordChanges(S3AuditLog(bucket, bucket="audit"), Clock(NOON)).record([change]) == 1
    assert len(bucket.objects) == 101


def test_a_process_reads_no_batch_that_it_wrote() -> None:
    assert Stack().bucket.gets == 0


def test_a_new_process_reads_the_batches_of_the_window_once(stack: Stack) -> None:
    """Each invocation reads a bounded number of batches; a failed invocation is retried."""
    process, batches = stack.process(), len(stack.bucket.objects)
    failures = 0
    while True:
        before = stack.bucket.gets
        try:
            assert stack.record(process) == 1
            break
        except UnavailableError:
            failures += 1
        assert stack.bucket.gets - before <= audit_log._MAX_READS + 1  # noqa: SLF001
    assert failures <= RETRIES
    assert batches - 1 <= stack.bucket.gets <= batches

    stack.bucket.gets = 0
    for _ in range(50):
        assert stack.record(process) == 1
    assert stack.bucket.gets == 0


def test_the_cache_keeps_the_batches_of_the_window(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window with more batches than the cache holds is not read in every invocation."""
    monkeypatch.setattr(audit_log, "_MAX_CACHED_IDS", 100)
    monkeypatch.setattr(audit_log, "_MAX_READS", 10 * BATCHES)
    process = stack.process()
    assert stack.record(process) == 1

    stack.bucket.gets = 0
    for _ in range(50):
        assert stack.record(process) == 1
    assert stack.bucket.gets == 0


def test_the_oldest_batches_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "_MAX_CACHED_IDS", 20)
    bucket, clock = Bucket(), Clock(NOON)
    client: Any = bucket
    log = S3AuditLog(client, bucket="audit")
    process = RecordChanges(log, clock)
    changes = []
    for number in range(100):
        clock.advance(timedelta(minutes=1))
        changes.append(replace(CHANGE, id=f"write-{number}", written_at=clock.now()))
        assert process.record(changes[-1:]) == 1

    assert bucket.gets == 0
    assert len(log._cached) == log._ids == 20  # noqa: SLF001 — the size of the cache
    # A late redelivery reads the batches since the event and finds it.
    assert process.record(changes[50:51]) == 0
    assert bucket.gets > 0
    assert process.record(changes[-1:]) == 0
    assert len(log._cached) == log._ids == 20  # noqa: SLF001
