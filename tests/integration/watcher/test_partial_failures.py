"""Batches of which AWS processes only a part, and an entry that blocks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nextfire.domain.ids import run_id
from tests.builders import a_fire, at
from tests.integration.watcher.conftest import Stand, minutely, once, refusal


def test_message_that_was_refused_is_sent_by_a_later_tick(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(8)]
    stand.store(*jobs)

    def half(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        entries = request["Entries"]
        answer = real(**request | {"Entries": entries[::2]})
        failed = [
            {"Id": e["Id"], "Code": "InternalError", "SenderFault": False} for e in entries[1::2]
        ]
        return answer | {"Failed": failed}

    once(stand.queues, "send_message_batch", half)
    stand.go_to(at("12:00:00.4"))
    assert len(stand.received()) == 4
    # Neither sent nor deleted: those four entries stay in their buckets.
    assert sum(a_fire(job, at("12:00")).sort_key in stand.fires(job) for job in jobs) == 4

    stand.go_to(at("12:00:04"))

    assert len(stand.received()) == 4
    sent = Counter(each.run.execution_id for r in stand.reports for each in r.dispatched)
    assert sent == {f"{j.key.job_id}.{run_id(j.uid, at('12:00'))}": 1 for j in jobs}
    assert [stand.fires(job) for job in jobs] == [
        [a_fire(job, at("12:01")).sort_key] for job in jobs
    ]


def test_successor_that_was_not_processed_is_stored_by_a_later_tick(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(8)]
    stand.store(*jobs)

    throttled: list[str] = []

    def half(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        [(table, writes)] = request["RequestItems"].items()
        if not throttled:
            assert all("PutRequest" in write for write in writes), "puts go before deletes"
            throttled.extend(str(write) for write in writes[1::2])
        left = [write for write in writes if str(write) in throttled]
        if passed := [write for write in writes if str(write) not in throttled]:
            real(RequestItems={table: passed})
        return {"UnprocessedItems": {table: left} if left else {}}

    stand.database.instead["batch_write_item"] = half
    stand.go_to(at("12:00:00.4"))
    del stand.database.instead["batch_write_item"]
    kept = [job for job in jobs if a_fire(job, at("12:00")).sort_key in stand.fires(job)]
    stored = [job for job in jobs if a_fire(job, at("12:01")).sort_key in stand.fires(job)]
    assert (len(kept), len(stored)) == (4, 4)
    assert {job.key for job in kept}.isdisjoint(job.key for job in stored)

    stand.go_to(at("12:00:04"))

    assert [stand.fires(job) for job in jobs] == [
        [a_fire(job, at("12:01")).sort_key] for job in jobs
    ]
    assert Counter(m.job_id for m in stand.received()) == {job.key.job_id: 1 for job in jobs}


def test_deletes_that_stay_throttled_are_made_up_for(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(4)]
    stand.store(*jobs)

    def nothing_deleted(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        [(table, writes)] = request["RequestItems"].items()
        if "PutRequest" in writes[0]:
            return real(**request)
        return {"UnprocessedItems": {table: writes}}

    stand.database.instead["batch_write_item"] = nothing_deleted
    stand.go_to(at("12:00:00.4"))
    del stand.database.instead["batch_write_item"]
    assert all(len(stand.fires(job)) == 2 for job in jobs)

    stand.go_to(at("12:00:50"))

    assert Counter(m.job_id for m in stand.received()) == {job.key.job_id: 1 for job in jobs}
    assert [stand.fires(job) for job in jobs] == [
        [a_fire(job, at("12:01")).sort_key] for job in jobs
    ]


def test_a_throttled_delete_is_repeated_without_sending_the_run_again(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(4)]
    stand.store(*jobs)
    sends: list[int] = []

    def one_deleted(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        [(table, writes)] = request["RequestItems"].items()
        if "PutRequest" in writes[0]:
            return real(**request)
        real(RequestItems={table: writes[:1]})
        return {"UnprocessedItems": {table: writes[1:]} if writes[1:] else {}}

    def counted(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        sends.append(len(request["Entries"]))
        return real(**request)

    stand.database.instead["batch_write_item"] = one_deleted
    stand.queues.instead["send_message_batch"] = counted

    stand.go_to(at("12:00:50"))

    assert sends == [4]
    assert [stand.fires(job) for job in jobs] == [
        [a_fire(job, at("12:01")).sort_key] for job in jobs
    ]


def test_one_bad_message_does_not_keep_its_batch(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(5)]
    stand.store(*jobs)

    def refuse_one(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        # SQS rejects the whole request if one entry is too long or has an invalid character.
        if '"job-3"' in str(request):
            refusal("AWS.SimpleQueueService.BatchRequestTooLong")(real, request)
        return real(**request)

    stand.queues.instead["send_message_batch"] = refuse_one
    stand.queues.instead["send_message"] = refuse_one

    stand.go_to(at("12:00:04"))

    assert {m.job_id for m in stand.received()} == {"job-0", "job-1", "job-2", "job-4"}
    assert a_fire(jobs[3], at("12:00")).sort_key in stand.fires(jobs[3])
    assert any("not sent, stays" in note for note in stand.notes)


@pytest.mark.parametrize(
    ("code", "calls", "done_at"),
    [("ValidationException", None, "12:00:00.4"), ("InternalServerError", 1, "12:00:04")],
)
def test_batch_of_writes_refused_whole_is_written_one_by_one_or_later(
    stand: Stand, code: str, calls: int | None, done_at: str
) -> None:
    """A fault of one entry does not affect the others; if the service is at fault, more
    requests would make it worse.
    """
    jobs = [minutely(f"job-{n}") for n in range(5)]
    stand.store(*jobs)
    real = refusal(code)
    refused: list[None] = []

    def refuse(request: Any, parameters: dict[str, Any]) -> Any:
        if calls is not None and len(refused) == calls:
            return request(**parameters)
        refused.append(None)
        return real(request, parameters)

    stand.database.instead["batch_write_item"] = refuse

    stand.go_to(at(done_at))

    assert [stand.fires(job) for job in jobs] == [
        [a_fire(job, at("12:01")).sort_key] for job in jobs
    ]
    assert len(stand.received()) == 5


def test_one_bad_write_does_not_keep_its_batch(stand: Stand) -> None:
    jobs = [minutely(f"job-{n}") for n in range(5)]
    stand.store(*jobs)

    def refuse_one(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if "'job-3'" in str(request):
            refusal("ValidationException")(real, request)
        return real(**request)

    stand.database.instead["batch_write_item"] = refuse_one
    stand.database.instead["put_item"] = refuse_one

    stand.go_to(at("12:00:03"))

    # Sent, but without a successor: the entry stays, so that its chain continues.
    assert stand.fires(jobs[3]) == [a_fire(jobs[3], at("12:00")).sort_key]
    others = [job for job in jobs if job is not jobs[3]]
    assert [stand.fires(job) for job in others] == [
        [a_fire(job, at("12:01")).sort_key] for job in others
    ]
    assert len(stand.received()) == 5


def test_an_entry_of_a_removed_pool_stays_and_blocks_nothing(stand: Stand) -> None:
    target = {"pool": "gone", "handler": "report"}
    lost, fine = minutely("lost", target=target), minutely("fine")
    stand.store(lost, fine)

    stand.go_to(at("12:00:04"))

    assert [m.job_id for m in stand.received()] == ["fine"]
    assert a_fire(lost, at("12:00")).sort_key in stand.fires(lost)
