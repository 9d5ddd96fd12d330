"""The contract of `JobStore`: batches, lists and scans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from tests.builders import NOON, a_definition, a_job, job_key
from tests.fakes import MemoryJobStore
from tests.integration.test_contract_job_store.conftest import Held, changed


@pytest.mark.parametrize("payload", [{"rows": [1.5, None, "ü"]}, None, [], 7])
def test_many_are_read_without_their_payloads(store: JobStore, payload: object) -> None:
    job = a_job(payload=payload)
    store.create(job, None, NOON)

    (found,) = store.get_many([job.key]).values()

    assert isinstance(found, Job)
    assert found.definition.payload == {}
    assert store.get(job.key) == job


def test_many_jobs_are_read_at_once_whatever_is_asked_for_twice(held: Held) -> None:
    jobs = [a_job(f"job{n:03d}") for n in range(120)]
    for job in jobs:
        held.store.create(job, None, NOON)
    held.spoil(job_key("broken"))
    keys = [job.key for job in jobs] + [jobs[0].key, job_key("absent"), job_key("broken")]

    found = dict(held.store.get_many(keys))

    assert isinstance(found.pop(job_key("broken")), UndecodableError)
    assert found == {job.key: job for job in jobs}
    assert held.store.get_many([]) == {}


def test_many_that_are_read_consistently_are_as_they_were_written_last(held: Held) -> None:
    jobs = [a_job(f"job{n}", payload={"n": n}) for n in range(3)]
    for job in jobs:
        held.store.create(job, None, NOON)
    if isinstance(held.store, MemoryJobStore):
        held.store.freeze()  # inconsistent reads may be stale
    written = [replace(changed(job), definition=a_definition("5 * * * *")) for job in jobs]
    for job in written:
        assert held.store.update(job, None, NOON)
    held.spoil(job_key("broken"))

    keys = [job.key for job in jobs] + [job_key("absent"), job_key("broken")]
    found = dict(held.store.get_many(keys, consistent=True))

    assert isinstance(found.pop(job_key("broken")), UndecodableError)
    assert found == {job.key: job for job in written}
    assert held.store.get_many([], consistent=True) == {}


def test_a_tenant_s_jobs_are_listed_by_id_page_by_page(store: JobStore) -> None:
    for job_id in ("d", "b", "e", "a", "c"):
        state = JobState.CANCELLED if job_id == "b" else JobState.ACTIVE
        store.create(a_job(job_id, state=state), None, NOON)
    store.create(a_job("bb", tenant="other"), None, NOON)

    seen: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = store.list("acme", cursor=cursor, limit=2)
        assert len(page.items) <= 2
        seen += [job.key.job_id for job in page.items]
        cursor, pages = page.cursor, pages + 1

    assert seen == ["a", "b", "c", "d", "e"]


def test_the_ids_of_a_tenant_s_jobs_come_in_order(store: JobStore) -> None:
    for job_id in ("d", "b", "e", "a", "c"):
        state = JobState.CANCELLED if job_id == "b" else JobState.ACTIVE
        store.create(a_job(job_id, state=state), None, NOON)
    store.create(a_job("bb", tenant="other"), None, NOON)

    assert store.ids("acme", after=None, limit=9) == ["a", "b", "c", "d", "e"]
    assert store.ids("acme", after=None, limit=5) == ["a", "b", "c", "d", "e"]
    assert store.ids("acme", after="b", limit=2) == ["c", "d"]
    assert store.ids("acme", after="cc", limit=1) == ["d"]
    assert list(store.ids("acme", after="e", limit=1)) == []
    assert list(store.ids("no-tenant", after=None, limit=1)) == []


def test_a_cursor_leads_into_no_other_tenant(store: JobStore) -> None:
    for job_id in ("a", "b", "c"):
        store.create(a_job(job_id), None, NOON)
        store.create(a_job(job_id, tenant="other"), None, NOON)
    cursor = store.list("acme", cursor=None, limit=1).cursor

    page = store.list("other", cursor=cursor, limit=9)

    assert [(job.key.tenant, job.key.job_id) for job in page.items] == [
        ("other", "b"),
        ("other", "c"),
    ]


@pytest.mark.parametrize("cursor", ["", "====", "é", "YSBi", "YS9i", "YWJj" * 40])
def test_an_invalid_cursor_is_rejected(store: JobStore, cursor: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        store.list("acme", cursor=cursor, limit=2)

    assert refused.value.field == "cursor"


def test_a_job_that_does_not_decode_is_listed_as_unreadable(held: Held) -> None:
    for job_id in ("a", "b", "c"):
        held.store.create(a_job(job_id), None, NOON)
    held.spoil(job_key("b"))

    first = held.store.list("acme", cursor=None, limit=2)
    rest = held.store.list("acme", cursor=first.cursor, limit=2)

    assert [job.key.job_id for page in (first, rest) for job in page.items] == ["a", "c"]
    assert [each.identity for each in first.unreadable] == ["b"]
    assert not rest.unreadable


def test_a_scan_meets_every_job_of_every_tenant_once(held: Held) -> None:
    jobs = [
        a_job(f"job{n}", tenant=tenant, uid=f"uid{n:05d}")
        for tenant in ("acme", "beta")
        for n in range(5)
    ]
    for job in jobs:
        held.store.create(job, None, NOON)
    held.spoil(jobs[3].key)

    found: list[Job] = []
    broken: list[JobKey] = []
    after: JobKey | None = None
    for _ in range(20):
        scan = held.store.scan(after, limit=3)
        assert len(scan.jobs) + len(scan.unreadable) <= 3
        found += scan.jobs
        broken += [key for key, problem in scan.unreadable if "does not decode" in problem]
        after = scan.last
        if after is None:
            break

    assert after is None
    assert broken == [jobs[3].key]
    assert len(found) == 9
    assert {job.key for job in found} == {job.key for job in jobs} - {jobs[3].key}


def test_a_scan_continues_after_any_job(store: JobStore) -> None:
    for n in range(4):
        store.create(a_job(f"job{n}", uid=f"uid{n:05d}"), None, NOON)
    order = [job.key for job in store.scan(None, limit=9).jobs]

    for position, key in enumerate(order):
        assert [job.key for job in store.scan(key, limit=9).jobs] == order[position + 1 :]


def test_jobs_are_skipped_in_the_order_of_a_scan(store: JobStore) -> None:
    for n in range(6):
        tenant = "acme" if n % 2 else "beta"
        job = replace(a_job(f"job{n}", tenant=tenant, uid=f"uid{n:05d}"), counted=True)
        store.create(job, None, NOON, most=9)  # it writes a count, which is not a job
    order = [job.key for job in store.scan(None, limit=20).jobs]
    assert len(order) == 6

    for number in range(1, 7):
        assert store.skip(None, number) == order[number - 1]
    assert store.skip(None, 7) is None
    assert store.skip(order[1], 2) == order[3]
    assert store.skip(order[5], 1) is None


def test_a_scan_of_nothing_is_at_its_end(store: JobStore) -> None:
    scan = store.scan(None, limit=5)
    assert (list(scan.jobs), scan.last) == ([], None)
