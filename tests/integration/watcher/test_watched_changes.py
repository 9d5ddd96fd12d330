"""Jobs that are changed, deleted or created again while the watcher works on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nextfire.adapters.dynamodb.items import to_item
from nextfire.domain.message import decode_message
from nextfire.domain.occurrences import JobState
from tests.builders import a_definition, a_fire, a_job, at
from tests.integration.watcher.conftest import Stand, minutely, once, run_ids


@pytest.mark.parametrize(
    ("changed_at", "old_entry_fires"),
    [("11:59:59.999", False), ("12:00:00", True), ("12:00:00.001", True)],
)
def test_schedule_changed_in_the_second_it_is_due(
    stand: Stand, changed_at: str, *, old_entry_fires: bool
) -> None:
    job = minutely()
    stand.store(job)
    stand.go_to(at("11:59:59.5"))
    stand.clock.move_to(at(changed_at))

    def edit(_: object) -> Any:
        return a_definition("*/2 * * * *", timezone="Europe/Berlin")

    changed = stand.jobs.change(job.key, edit, now=stand.clock.now())
    stand.go_to(at("12:02:05"))

    # 12:00 belongs to the old schedule, or to the new one if changed earlier: one run either
    # way.
    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:02")
    assert stand.fires(job) == [a_fire(changed, at("12:04")).sort_key]
    reasons = [run.reason for report in stand.reports for run in report.dispatched]
    assert any("before the change" in reason for reason in reasons) is old_entry_fires


def test_payload_changed_in_the_second_it_is_due(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    stand.go_to(at("11:59:59.5"))
    definition = job.definition.model_copy(update={"payload": {"new": True}})
    stand.clock.move_to(at("12:00:00"))
    stand.jobs.change(job.key, lambda _: definition, now=stand.clock.now())

    stand.go_to(at("12:01:00"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:01")
    assert stand.fires(job) == [a_fire(job, at("12:02")).sort_key]


def test_change_that_the_watcher_does_not_see_yet_is_not_dropped(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    table, key = stand.system.jobs_table, {"tenant": job.key.tenant, "job_id": job.key.job_id}
    before = stand.system.database.get_item(TableName=table, Key=to_item(key))["Item"]
    definition = a_definition("* * * * *", timezone="Europe/Berlin")
    changed = stand.jobs.change(job.key, lambda _: definition, now=at("11:59:56"))
    assert changed.schedule_version > job.schedule_version

    def stale_jobs(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        # An eventually consistent read still shows the old job.
        if table in request["RequestItems"]:
            return {"Responses": {table: [before]}, "UnprocessedKeys": {}}
        once(stand.database, "batch_get_item", stale_jobs)  # this call reads cursors
        return real(**request)

    once(stand.database, "batch_get_item", stale_jobs)

    stand.go_to(at("12:01:01"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:01")
    assert stand.fires(job) == [a_fire(changed, at("12:02")).sort_key]


def test_job_changed_while_its_run_is_queued(stand: Stand) -> None:
    stand.system.upload("import sys; print(sys.stdin.read())", "report", tenant="acme")
    job = minutely(payload={"old": 1})
    stand.store(job)
    stand.go_to(at("12:00:01"))
    definition = job.definition.model_copy(update={"payload": {"new": 1}})
    changed = stand.jobs.change(job.key, lambda _: definition, now=stand.clock.now())
    [message] = stand.system.receive()

    assert stand.system.execute([message]) == set()

    run = stand.system.run(decode_message(message["Body"]))
    assert run.job_revision == changed.revision == 2
    assert run.stdout == '{"new": 1}\n'


def test_deleted_job_fires_no_more(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    stand.go_to(at("12:00:01"))
    stand.jobs.delete(job.key, now=stand.clock.now())

    stand.go_to(at("12:01:05"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
    assert stand.fires(job) == []
    assert any("dropped" in note and "replaced" in note for note in stand.notes)


def test_job_deleted_and_made_again_has_one_chain(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    stand.go_to(at("12:00:30"))
    stand.jobs.delete(job.key, now=at("12:00:20"))
    again = minutely(since="12:00:25", uid="uid00002")
    stand.store(again)

    stand.go_to(at("12:02:05"))

    assert [m.run_id for m in stand.received()] == [
        *run_ids(job, "12:00"),
        *run_ids(again, "12:01", "12:02"),
    ]
    assert stand.fires(again) == [a_fire(again, at("12:03")).sort_key]


def test_job_made_again_in_the_second_it_is_due_has_its_past_put_on_record(stand: Stand) -> None:
    """The executor does not find the former job: the run is CANCELLED, and nothing runs."""
    job = minutely()
    stand.store(job)
    stand.go_to(at("11:59:59.5"))
    stand.jobs.delete(job.key, now=at("11:59:59.9"))
    stand.clock.move_to(at("12:00:00.1"))
    again = minutely(since="12:00:00.1", uid="uid00002")
    stand.store(again)

    stand.go_to(at("12:01:02"))

    assert [m.run_id for m in stand.received()] == [
        *run_ids(job, "12:00"),
        *run_ids(again, "12:01"),
    ]
    assert stand.fires(again) == [a_fire(again, at("12:02")).sort_key]


def test_job_completed_by_hand_of_the_executor_ends_its_chain(stand: Stand) -> None:
    job = a_job(type="ONCE", schedule="2026-05-24T12:00:00Z", since=at("11:59:30"))
    stand.system.upload("", "report", tenant="acme")
    stand.store(job)
    stand.go_to(at("12:00:01"))

    assert stand.system.execute(stand.system.receive()) == set()

    done = stand.system.jobs.get(job.key)
    assert done is not None
    assert done.state is JobState.COMPLETED
    assert stand.system.due_items() == []
