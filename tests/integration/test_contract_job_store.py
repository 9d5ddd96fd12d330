"""The contract of `JobStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_items import decode_job, encode_job
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.table import JOBS
from nextfire.domain.backfill import Backfill, Order
from nextfire.domain.due import DueEntry, StoredEntry
from nextfire.domain.errors import (
    InvalidInputError,
    QuotaUsedUpError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import Misfire, Overlap
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from tests.builders import NOON, a_definition, a_fire, a_job, at, job_key
from tests.fakes import InlineExecutor, MemoryDueStore, MemoryJobStore
from tests.integration.backends import DYNAMODB, MEMORY, SQLITE
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (JobStore,)


@dataclass(frozen=True, slots=True)
class Held:
    """The store, the due entries that it writes, and a way to make an item unreadable."""

    store: JobStore
    due: DueStore
    spoil: Callable[[JobKey], object]

    def entries(self) -> list[DueEntry]:
        """The entries due at 13:00 and 14:00."""
        found = [
            stored
            for hour in ("13:00", "14:00")
            for stored in self.due.read(at(hour), 0, before=None, consistent=True)
        ]
        return [stored.entry for stored in found if isinstance(stored, StoredEntry)]


@pytest.fixture(params=(MEMORY, SQLITE, *DYNAMODB))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryDueStore()
        jobs = MemoryJobStore(memory)
        return Held(jobs, memory, jobs.spoil)
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return Held(
            SqliteJobStore(database),
            SqliteDueStore(database),
            lambda key: put(database, JOBS, tenant=key.tenant, job_id=key.job_id, uid=7),
        )
    tables = request.getfixturevalue("tables")
    client = dynamodb()
    due = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    store = DynamoDbJobStore(client, table=tables.jobs, due_table=tables.due)

    def spoil(key: JobKey) -> None:
        client.put_item(
            TableName=tables.jobs,
            Item={"tenant": {"S": key.tenant}, "job_id": {"S": key.job_id}, "uid": {"N": "7"}},
        )

    return Held(store, due, spoil)


@pytest.fixture
def store(held: Held) -> JobStore:
    return held.store


def changed(job: Job, **fields: object) -> Job:
    """The next revision of *job*."""
    return replace(
        job,
        revision=job.revision + 1,
        definition=a_definition(**fields),  # type: ignore[arg-type] # any field of a definition
        updated_at=at("12:30"),
    )


def test_a_job_is_stored_with_its_first_due_entry(held: Held) -> None:
    job = a_job(payload={"n": 1.5, "ü": [None, True]}, labels={"team": "data"}, timeoutSec=7)
    first = a_fire(job, at("13:00"))

    assert held.store.create(job, first, NOON) is None

    assert held.store.get(job.key) == job
    assert held.entries() == [first]


A_BACKFILL = Backfill(
    "0123456789abcdef",
    7,
    at("10:00"),
    at("11:00:00.125"),
    61,
    Order.NEWEST_FIRST,
    at("12:00:00.007"),
)


def with_a_past() -> Job:
    """A job that was changed, paused with a reason, changed again and resumed."""
    job = a_job(type="INTERVAL", schedule="PT10M").with_new_version(at("12:10"))
    return (
        job.paused(at("12:20:00.125"), "a reason")
        .resumed(at("12:30"))
        .with_new_version(at("12:40:00.007"))
    )


@pytest.mark.parametrize(
    "job",
    [
        a_job().paused(at("12:20:00.125"), "a reason — ü"),
        a_job().paused(at("12:20"), None),
        replace(a_job().paused(at("12:20"), None), drain_asked_at=at("12:20:00.005")),
        a_job().paused(at("12:20"), "a reason").resumed(at("12:30:00.001")),
        with_a_past(),
        with_a_past().paused(at("12:50"), None),
        replace(a_job(), backfill=A_BACKFILL),
        replace(a_job(), backfill=replace(A_BACKFILL, reason="a reason — ü")),
    ],
)
def test_what_a_pause_leaves_behind_comes_back(store: JobStore, job: Job) -> None:
    store.create(job, None, NOON)

    assert store.get(job.key) == job
    assert store.get_many([job.key]) == {job.key: job}


@pytest.mark.parametrize("payload", [{"rows": [1.5, None, "ü"]}, None, [], 7])
def test_many_are_read_without_their_payloads(store: JobStore, payload: object) -> None:
    job = a_job(payload=payload)
    store.create(job, None, NOON)

    (found,) = store.get_many([job.key]).values()

    assert isinstance(found, Job)
    assert found.definition.payload == {}
    assert store.get(job.key) == job


def test_a_past_that_counted_from_earlier_comes_back(store: JobStore) -> None:
    job = with_a_past()
    assert [past.counted_from for past in job.replaced] == [None, None, at("12:10")]

    store.create(job, None, NOON)

    there = store.get(job.key)
    assert there is not None
    assert there.replaced == job.replaced


def test_a_job_stored_before_there_were_pauses_reads_as_it_did() -> None:
    """Its item has none of the attributes, and its definition has no policy."""
    job = a_job()
    item = encode_job(job)
    assert not {"replaced", "counted_from", "resumed_at", "pause_reason"} & item.keys()
    definition = json.loads(item["definition"]["S"])
    for name in ("misfire", "overlap"):
        del definition[name]

    read = decode_job(item | {"definition": {"S": json.dumps(definition)}})

    assert read == job
    assert (read.definition.misfire, read.definition.overlap) == (Misfire(), Overlap.ALLOW)


def test_a_replaced_version_stored_before_there_were_pauses_reads_as_it_did() -> None:
    job = a_job().with_new_version(at("12:30"))
    item = encode_job(job)
    (past,) = json.loads(item["replaced"]["S"])
    past.pop("counted_from", None)

    assert decode_job(item | {"replaced": {"S": json.dumps([past])}}) == job


def test_a_job_without_an_entry_is_stored_alone(held: Held) -> None:
    job = a_job()
    assert held.store.create(job, None, NOON) is None
    assert held.store.get(job.key) == job
    assert held.entries() == []


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETED])
def test_the_id_of_a_living_job_is_taken_and_nothing_is_written(
    held: Held, state: JobState
) -> None:
    living = a_job(state=state)
    held.store.create(living, None, NOON)
    rival = a_job(uid="uid00002", schedule="5 * * * *")

    assert held.store.create(rival, a_fire(rival, at("13:00")), NOON) == living

    assert held.store.get(living.key) == living
    assert held.entries() == []


def test_a_repeated_creation_finds_its_own_job(store: JobStore) -> None:
    job = a_job()
    assert store.create(job, a_fire(job, at("13:00")), NOON) is None
    assert store.create(job, a_fire(job, at("13:00")), NOON) == job


def test_the_id_of_a_cancelled_job_starts_clean(held: Held) -> None:
    old = a_job(uid="uid00001", state=JobState.CANCELLED)
    held.store.create(old, None, NOON)
    new = a_job(uid="uid00002", since=at("12:30"))
    first = a_fire(new, at("13:00"))

    assert held.store.create(new, first, at("12:30")) == old
    assert held.store.create(new, first, at("12:30"), former=a_job(uid="uid00003")) == old
    assert (held.store.get(old.key), held.entries()) == (old, [])
    assert held.store.create(new, first, at("12:30"), former=old) is None
    assert held.store.create(new, first, at("12:30"), former=old) == new

    assert held.store.get(old.key) == new
    assert [entry.uid for entry in held.entries()] == ["uid00002"]


def test_a_former_job_that_lives_keeps_its_id(held: Held) -> None:
    living = a_job(uid="uid00001")
    held.store.create(living, None, NOON)
    rival = a_job(uid="uid00002")

    assert held.store.create(rival, None, NOON, former=living) == living
    assert held.store.get(living.key) == living


def test_of_twenty_concurrent_creations_one_has_the_id(held: Held) -> None:
    rivals = [a_job(uid=f"uid{n:05d}") for n in range(20)]

    with ThreadPoolExecutor(20) as threads:
        answers = list(
            threads.map(lambda job: held.store.create(job, a_fire(job, at("13:00")), NOON), rivals)
        )

    assert answers.count(None) == 1
    winner = rivals[answers.index(None)]
    assert held.store.get(winner.key) == winner
    assert [entry.uid for entry in held.entries()] == [winner.uid]
    assert all(answer == winner for answer in answers if answer is not None)


def test_the_next_revision_replaces_its_predecessor(held: Held) -> None:
    job = a_job()
    held.store.create(job, None, NOON)
    second = changed(job, timeoutSec=9)

    assert held.store.update(second, a_fire(second, at("14:00")), at("12:30"))

    assert held.store.get(job.key) == second
    assert [entry.at for entry in held.entries()] == [at("14:00")]


def test_a_change_that_came_second_changes_nothing(held: Held) -> None:
    job = a_job()
    held.store.create(job, None, NOON)
    first, second = changed(job, timeoutSec=9), changed(job, timeoutSec=10)

    assert held.store.update(first, None, at("12:30"))
    assert not held.store.update(second, a_fire(second, at("14:00")), at("12:30"))

    assert held.store.get(job.key) == first
    assert held.entries() == []


def test_a_repeated_change_finds_its_own_success(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)
    second = changed(job, timeoutSec=9)

    assert store.update(second, None, at("12:30"))
    assert store.update(second, None, at("12:30"))


def test_a_change_of_another_creation_or_of_nothing_is_refused(store: JobStore) -> None:
    job = a_job()
    assert not store.update(changed(job), None, NOON)

    store.create(job, None, NOON)
    assert not store.update(changed(replace(job, uid="uid00002")), None, NOON)
    assert store.get(job.key) == job


def test_of_twenty_concurrent_changes_one_is_made(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)

    with ThreadPoolExecutor(20) as threads:
        made = list(
            threads.map(
                lambda n: store.update(changed(job, timeoutSec=n + 1), None, NOON), range(20)
            )
        )

    assert made.count(True) == 1
    there = store.get(job.key)
    assert there is not None
    assert (there.revision, there.definition.timeout_sec) == (2, made.index(True) + 1)


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


def test_a_job_that_does_not_decode_says_so(held: Held) -> None:
    held.spoil(job_key())

    with pytest.raises(UndecodableError):
        held.store.get(job_key())


def test_there_is_no_job_that_was_never_stored(store: JobStore) -> None:
    assert store.get(job_key()) is None


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


def test_an_executor_pauses_an_active_job_as_a_user_does(store: JobStore) -> None:
    job = a_job(schedule="*/5 * * * *", type="CRON")
    store.create(job, None, NOON)

    assert store.pause(job, "410 Gone", at("13:00"))
    assert not store.pause(job, "410 Gone", at("13:01"))

    assert store.get(job.key) == replace(
        job.paused(at("13:00"), "410 Gone"), revision=2, updated_at=at("13:00")
    )


def test_a_job_that_changed_meanwhile_is_not_paused_by_an_executor(store: JobStore) -> None:
    job = a_job()
    assert not store.pause(job, "410 Gone", NOON)
    assert store.get(job.key) is None

    store.create(job, None, NOON)
    now = changed(job, timeoutSec=9)
    store.update(now, None, NOON)

    assert not store.pause(job, "410 Gone", NOON)
    assert store.get(job.key) == now


def test_an_active_job_is_completed_once(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)

    assert store.complete(job, at("13:00"))
    assert not store.complete(job, at("13:01"))

    there = store.get(job.key)
    assert there == replace(job, state=JobState.COMPLETED, revision=2, updated_at=at("13:00"))


def test_a_job_that_was_rescheduled_recreated_or_cancelled_is_not_completed(
    store: JobStore,
) -> None:
    job = a_job()
    assert not store.complete(job, NOON)
    assert store.get(job.key) is None

    store.create(job, None, NOON)
    assert not store.complete(replace(job, schedule_version=job.schedule_version - 1), NOON)
    assert not store.complete(replace(job, uid="uid00002"), NOON)
    assert store.get(job.key) == job

    cancelled = replace(changed(job), state=JobState.CANCELLED)
    store.update(cancelled, None, NOON)
    assert not store.complete(job, NOON)
    assert store.get(job.key) == cancelled


def test_completing_does_not_need_the_latest_revision(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)
    store.update(changed(job, timeoutSec=9), None, NOON)

    assert store.complete(job, at("13:00"))

    there = store.get(job.key)
    assert there is not None
    assert (there.state, there.revision, there.definition.timeout_sec) == (
        JobState.COMPLETED,
        3,
        9,
    )


def test_a_concurrent_change_and_completion_leave_a_consistent_job(store: JobStore) -> None:
    for n in ROUNDS:
        job = a_job(f"job{n}")
        store.create(job, None, NOON)
        done = at_once(
            partial(store.update, changed(job, timeoutSec=9), None, at("12:30")),
            partial(store.complete, job, at("13:00")),
        )

        there = store.get(job.key)
        assert there is not None
        assert done[1], "still of the same version"
        assert (there.state, there.revision) == (JobState.COMPLETED, 1 + sum(done))
        assert (there.definition.timeout_sec == 9) == done[0]


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_an_ended_job_is_removed_once_and_its_id_is_free(store: JobStore, state: JobState) -> None:
    job = replace(a_job(uid="uid00001"), state=state)
    store.create(job, None, NOON)

    assert store.remove(job)

    assert store.get(job.key) is None
    assert not store.remove(job)
    again = a_job(uid="uid00002")
    assert store.create(again, None, NOON) is None
    assert not store.remove(job)
    assert store.get(job.key) == again


def test_a_job_that_changed_or_runs_is_not_removed(store: JobStore) -> None:
    job = a_job(uid="uid00001")
    store.create(job, None, NOON)
    assert not store.remove(job)
    ended = replace(job, revision=2, state=JobState.COMPLETED)
    assert store.update(ended, None, NOON)

    assert not store.remove(replace(ended, revision=1))
    assert not store.remove(replace(ended, uid="uid00002"))

    assert store.get(job.key) == ended


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


def test_a_scan_goes_on_after_any_job(store: JobStore) -> None:
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

    there = store.create(replace(counted(), uid="uid77777"), None, NOON, most=9)

    assert there == counted()
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


def test_a_job_that_goes_on_is_counted_if_there_is_room(store: JobStore) -> None:
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
