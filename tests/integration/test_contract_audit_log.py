"""The contract of `AuditLog`, on the fake and on every emulator of S3."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from nextfire.adapters.s3.audit_log import S3AuditLog, key_of
from nextfire.domain.chain import START, Batch, BrokenChainError, Event, Link, chain
from nextfire.domain.instants import isoformat
from nextfire.domain.ports.events import AuditLog
from tests.builders import NOON
from tests.fakes import MemoryAuditLog
from tests.integration.backends import AWS, MEMORY, on_aws, on_each

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTRACT_OF = (AuditLog,)
LATER = timedelta(minutes=10)


def batch(number: int, *ids: str, after: Link = START, minutes: int = 0) -> Batch:
    recorded_at = isoformat(NOON + timedelta(minutes=minutes))
    return Batch(number, chain([{"id": each, "recordedAt": recorded_at} for each in ids], after))


backend = on_each(MEMORY, *AWS)


@pytest.fixture
def process(backend: str, request: pytest.FixtureRequest) -> Callable[[], AuditLog]:
    """Returns the log as seen by another process on each call."""
    if backend == MEMORY:
        log = MemoryAuditLog()
        return lambda: log
    bucket, s3 = request.getfixturevalue("bucket"), request.getfixturevalue("s3")
    return lambda: S3AuditLog(s3, bucket=bucket)


@pytest.fixture
def log(process: Callable[[], AuditLog]) -> AuditLog:
    return process()


def test_there_is_nothing_before_something_was_appended(log: AuditLog) -> None:
    assert log.last() is None
    assert not log.ids_since(None, NOON)


def test_the_last_batch_is_the_one_appended_last(
    log: AuditLog, process: Callable[[], AuditLog]
) -> None:
    first = batch(1, "a", "größer")
    second = batch(2, "b", after=first.end)

    assert log.append(first)
    assert log.append(second)
    assert log.last() == process().last() == second


def test_of_two_who_append_the_same_number_one_succeeds_and_the_chain_does_not_fork(
    process: Callable[[], AuditLog],
) -> None:
    one, other = process(), process()
    assert one.last() is other.last() is None

    assert one.append(batch(1, "a"))
    assert not other.append(batch(1, "b"))
    found = other.last()
    assert found == batch(1, "a")
    assert other.append(batch(2, "b", after=found.end))


def test_ids_are_those_of_batches_written_since_then(
    log: AuditLog, process: Callable[[], AuditLog]
) -> None:
    last = None
    for number, ids in enumerate((["a"], ["b", "c"], ["d"]), start=1):
        last = batch(number, *ids, after=last.end if last else START, minutes=10 * number)
        assert log.append(last)

    for each in (log, process()):
        assert set(each.ids_since(last, NOON + 2 * LATER)) == {"b", "c", "d"}
        assert set(each.ids_since(last, NOON)) == {"a", "b", "c", "d"}


@on_aws
def test_s3_lists_the_newest_batch_first(s3: S3Client, bucket: str) -> None:
    log = S3AuditLog(s3, bucket=bucket)
    log.append(first := batch(1, "a"))
    log.append(batch(2, "b", after=first.end))

    listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert [each["Key"] for each in listed] == [key_of(2), key_of(1)]
    assert key_of(1) == "chain/999999999998.json"


_EVENT = batch(1, "a").events[0]


@on_aws
@pytest.mark.parametrize(
    "event",
    [
        *({n: v for n, v in _EVENT.items() if n != name} for name in ("id", "recordedAt", "hash")),
        {**_EVENT, "recordedAt": "yesterday"},
        {**_EVENT, "number": "1"},
    ],
    ids=["id", "recordedAt", "hash", "not an instant", "not a number"],
)
def test_a_batch_to_which_nothing_can_be_appended_is_a_broken_chain(
    s3: S3Client, bucket: str, event: Event
) -> None:
    S3AuditLog(s3, bucket=bucket).append(Batch(1, [event]))

    with pytest.raises(BrokenChainError, match="an event has no id, instant, number or hash"):
        S3AuditLog(s3, bucket=bucket).last()
