"""Stores and queues that throttle or do not answer: nothing is lost."""

from __future__ import annotations

import pytest

from tests.builders import a_fire, at
from tests.integration.watcher.conftest import Stand, minutely, refusal, run_ids


@pytest.mark.parametrize("operation", ["query", "batch_get_item", "get_item"])
def test_throttled_store_delays_and_loses_nothing(stand: Stand, operation: str) -> None:
    job = minutely()
    stand.store(job)
    stand.go_to(at("11:59:59.4"))
    throttle = refusal("ProvisionedThroughputExceededException")
    stand.database.instead[operation] = throttle
    stand.go_to(at("12:00:01"))
    del stand.database.instead[operation]

    stand.go_to(at("12:00:04"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
    assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]
    if operation != "get_item":  # consistent reads happen only if nothing is sent
        assert stand.errors


def test_holder_that_cannot_renew_stops_sending(stand: Stand) -> None:
    stand.clock.move_to(at("11:59:52"))
    stand.store(minutely())
    stand.go_to(at("11:59:53"))
    stand.database.instead["put_item"] = refusal("InternalServerError")

    stand.go_to(at("12:00:10"))

    assert not stand.watch.holds
    assert stand.received() == []


def test_queue_that_does_not_answer_delays_and_loses_nothing(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    for operation in ("send_message_batch", "send_message"):
        stand.queues.instead[operation] = refusal("ServiceUnavailable")
    stand.go_to(at("12:00:01"))
    assert a_fire(job, at("12:00")).sort_key in stand.fires(job)
    stand.queues.instead.clear()

    stand.go_to(at("12:00:04"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
    assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]
