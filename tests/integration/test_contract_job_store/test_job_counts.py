"""The contract of `JobStore`: the count of jobs that a quota limits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from nextfire.domain.errors import QuotaUsedUpError, UnavailableError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from tests.builders import NOON, a_fire, a_job, at, job_key
from tests.integration.races import ROUNDS, at_once
from tests.integration.test_contract_job_store.conftest import Held

# Counted jobs


def counted(number: int = 0) -> Job:
    job = a_job(f"job{number}", uid=f"uid{number:05d}", since=NOON)
    return replace(job, counted=True)


def revised(job: Job, **fields: object) -> Job:
    return replace(job, revision=job.revision + 1, **fields)  # type: ignore[arg-type]


_numbers = count(100)


def full(store: JobStore, most: int) -> bool:
    """Whether the store rejects another job with a quota of *most*."""
    job = counted(next(_numbers))
    try:
        assert store.create(job, None, NOON, most=most) is None
    except QuotaUsedUpError:
        return True
    gone = revised(job, state=JobState.CANCELLED, counted=False)
    assert store.update(gone, None, NOON, counts=-1)
    return False


def test_a_job_more_than_the_quota_is_not_stored(held: Held) -> None:
    for number in range(2):
        assert held.store.create(counted(number), None, NOON, most=2) is None

    with pytest.raises(QuotaUsedUpError):
        held.store.create(counted(2), a_fire(counted(2), at("13:00")), NOON, most=2)

    assert held.store.get(job_key("job2")) is None
    assert held.entries() == []
    assert held.store.counted("acme") == 2
    assert held.store.counted("other") == 0
    theirs = replace(counted(2), key=job_key("job2", "other"))
    assert held.store.create(theirs, None, NOON, most=2) is None


def test_a_job_that_is_stored_again_counts_once(store: JobStore) -> None:
    assert store.create(counted(), None, NOON, most=1) is None
    for _ in range(2):
        assert store.create(counted(), None, NOON, most=1) == counted()

    assert full(store, 1)
    assert not full(store, 2)


def test_a_taken_id_is_not_counted(store: JobStore) -> None:
    store.create(counted(), None, NOON, most=9)

    existing = store.create(replace(counted(), uid="uid77777"), None, NOON, most=9)

    assert existing == counted()
    assert not full(store, 2)


def test_a_job_that_is_not_counted_takes_no_room(store: JobStore) -> None:
    store.create(a_job("free"), None, NOON, most=1)

    assert not full(store, 1)


def test_a_deleted_job_makes_room_and_its_id_takes_it_again(store: JobStore) -> None:
    store.create(counted(), None, NOON, most=1)
    gone = revised(counted(), state=JobState.CANCELLED, counted=False)
    for _ in range(2):
        assert store.update(gone, None, NOON, counts=-1), "a repetition finds what it wrote"
    assert store.counted("acme") == 0
    assert not full(store, 1)

    assert store.create(replace(counted(), uid="uid77777"), None, NOON, former=gone, most=1) is None

    assert full(store, 1)


def test_a_job_that_continues_is_counted_if_there_is_room(store: JobStore) -> None:
    done = replace(counted(), state=JobState.COMPLETED, counted=False)
    store.create(done, None, NOON)
    store.create(counted(1), None, NOON, most=1)
    again = revised(done, state=JobState.ACTIVE, counted=True)

    with pytest.raises(QuotaUsedUpError):
        store.update(again, None, NOON, counts=1, most=1)
    assert store.get(done.key) == done
    assert store.update(again, None, NOON, counts=1, most=2)

    assert store.get(done.key) == again
    assert full(store, 2)


def test_a_change_that_comes_too_late_counts_nothing(store: JobStore) -> None:
    store.create(counted(), None, NOON, most=9)
    store.update(revised(counted(), state=JobState.PAUSED), None, NOON)

    late = revised(counted(), state=JobState.CANCELLED, counted=False)
    assert not store.update(late, None, NOON, counts=-1)

    assert full(store, 1)


@pytest.mark.parametrize("read_as", [True, False])
def test_a_job_that_is_completed_makes_room_once(store: JobStore, *, read_as: bool) -> None:
    """Whether the job was read before or after it was counted."""
    store.create(counted(), None, NOON, most=1)
    seen = replace(counted(), counted=read_as)

    assert [store.complete(seen, NOON) for _ in range(3)] == [True, False, False]

    job = store.get(counted().key)
    assert job is not None
    assert (job.state, job.counted) == (JobState.COMPLETED, False)
    assert not full(store, 1)


def test_a_job_that_is_not_counted_is_completed_as_if_it_were(store: JobStore) -> None:
    store.create(counted(1), None, NOON, most=1)
    store.create(replace(counted(), counted=False), None, NOON)

    assert store.complete(counted(), NOON)

    assert full(store, 1)


def test_the_job_count_is_not_a_job(store: JobStore) -> None:
    store.create(counted(), None, NOON, most=5)

    assert [job.key for job in store.list("acme", cursor=None, limit=9).items] == [counted().key]
    scan = store.scan(None, limit=9)
    assert [job.key for job in scan.jobs] == [counted().key]
    assert scan.unreadable == []


@pytest.mark.parametrize("_round", ROUNDS)
def test_of_many_that_are_made_at_once_no_more_are_stored_than_the_quota(
    store: JobStore, _round: int
) -> None:
    def create(number: int) -> bool:
        try:
            return store.create(counted(number), None, NOON, most=5) is None
        except (QuotaUsedUpError, UnavailableError):
            return False

    stored = at_once(*(partial(create, number) for number in range(8)))

    assert sum(stored) <= 5
    listed = store.list("acme", cursor=None, limit=20).items
    assert len(listed) == sum(stored)
    for number in range(8):
        create(number)
    assert len(store.list("acme", cursor=None, limit=20).items) == 5
