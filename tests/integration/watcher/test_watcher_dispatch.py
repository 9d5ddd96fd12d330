"""Occurrences and retries are sent once and on the instant; the cursor follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.domain.ids import run_id
from tests.builders import RUN_ALL, a_fire, a_job, a_retry, at, job_key, run_key
from tests.integration.deployment import SHARDS
from tests.integration.watcher.conftest import SECOND, Stand, minutely, run_ids


def test_each_occurrence_is_sent_once_and_on_the_instant(stand: Stand) -> None:
    job = minutely()
    stand.store(job)

    stand.go_to(at("12:02:02"))

    messages = stand.received()
    assert [m.run_id for m in messages] == run_ids(job, "12:00", "12:01", "12:02")
    assert {(m.tenant, m.job_id, m.dispatch) for m in messages} == {("acme", "report", 1)}
    assert max(stand.lateness) == timedelta()
    assert stand.fires(job) == [a_fire(job, at("12:03")).sort_key]


def test_message_groups_and_deduplication_are_the_runs_own(stand: Stand) -> None:
    stand.store(minutely(), minutely(tenant="other"))

    stand.go_to(at("12:01:00"))

    attributes = [message["Attributes"] for message in stand.system.receive()]
    assert len(attributes) == 4
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        assert len({attribute[name] for attribute in attributes}) == 4


def test_entries_due_while_no_watcher_ran_are_sent(stand: Stand) -> None:
    job = minutely(since="11:49:30", misfire=RUN_ALL)
    stand.clock.move_to(at("11:49:30"))
    stand.store(job)
    stand.clock.move_to(at("11:58:30"))

    stand.go_to(at("11:58:36"))

    assert [m.run_id for m in stand.received()] == [
        run_id(job.uid, at("11:50") + n * 60 * SECOND) for n in range(9)
    ]
    assert stand.fires(job) == [a_fire(job, at("11:59")).sort_key]


def test_job_that_was_not_read_is_not_taken_for_deleted(stand: Stand) -> None:
    """Its entry is overdue by more than the age at which an orphan is dropped."""
    job = minutely(since="11:57:30", misfire=RUN_ALL)
    stand.clock.move_to(at("11:57:30"))
    stand.store(job)
    stand.clock.move_to(at("11:59:30"))

    throttled = [True] * 7  # five requests in a row fail a read

    def nothing_read(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if stand.system.jobs_table in request["RequestItems"] and throttled:
            throttled.pop()
            return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}
        return real(**request)

    stand.database.instead["batch_get_item"] = nothing_read

    stand.go_to(at("11:59:33"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "11:58", "11:59")
    assert stand.fires(job) == [a_fire(job, at("12:00")).sort_key]


def test_more_than_a_hundred_of_one_second(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(105)]
    stand.store(*jobs)

    stand.go_to(at("12:00:05"))

    assert Counter(m.job_id for m in stand.received()) == {job.key.job_id: 1 for job in jobs}
    assert sorted(item["entry"]["S"] for item in stand.system.due_items()) == sorted(
        a_fire(job, at("12:01")).sort_key for job in jobs
    )


def test_more_than_a_page_of_entries(stand: Stand) -> None:
    key = job_key()
    retries = [a_retry(run_key(at("11:00") + n * SECOND), at("12:00")) for n in range(120)]
    for entry in retries:
        item = entry_item(entry, stand.clock.now(), SHARDS) | {"pad": {"S": "x" * 10_000}}
        stand.system.database.put_item(TableName=stand.system.due_table, Item=item)
    bucket = retries[0].bucket(stand.clock.now(), SHARDS)

    stand.go_to(at("12:00:01"))

    further = [
        request
        for name, request in stand.database.calls
        if name == "query" and "ExclusiveStartKey" in request
    ]
    assert bucket in {request["ExpressionAttributeValues"][":bucket"]["S"] for request in further}
    assert {m.run_id for m in stand.received()} == {entry.run_id for entry in retries}
    assert stand.fires(a_job(key.job_id)) == []


def test_retry_is_sent_with_its_own_dispatch_number(stand: Stand) -> None:
    run = run_key(at("11:59"))
    stand.put(a_retry(run, at("12:00:00.250"), dispatch=3))

    stand.go_to(at("12:00:01"))

    [message] = stand.received()
    assert (message.key, message.dispatch) == (run, 3)
    assert stand.lateness == [timedelta()]
    assert stand.system.due_items() == []


def test_cursor_passes_what_is_done_and_what_must_wait_comes_along(stand: Stand) -> None:
    stuck = minutely("stuck", target={"pool": "gone", "handler": "report"}, misfire=RUN_ALL)
    stand.store(stuck)
    control = DynamoDbControlStore(stand.system.database, table=stand.system.control_table)

    stand.go_to(at("12:02:40"))

    cursors = control.cursors(range(SHARDS))
    assert set(cursors.values()) == {at("12:02")}
    assert a_fire(stuck, at("12:00")).sort_key in stand.fires(stuck)
    minutes = {item["bucket"]["S"].partition("T")[2][:5] for item in stand.system.due_items()}
    assert minutes == {"12:02"}, "a chain has one end"
