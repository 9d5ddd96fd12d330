"""The quota of concurrent runs: they share as many message groups."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import group_id
from nextfire.domain.message import SkippedRange, decode_message
from nextfire.usecases.handled import Disposition
from nextfire.usecases.timed_runs import JOIN_END_DISPATCH
from tests.builders import NOON, a_message, run_key
from tests.unit.limited import ONCE, a_world

# Concurrent runs


def test_runs_share_as_many_message_groups() -> None:
    keys = [run_key(job_id=f"job{n}") for n in range(200)]

    groups = Counter(group_id(key, max_concurrent=4) for key in keys)

    assert len(groups) == 4
    assert min(groups.values()) > 25
    others = {
        group_id(run_key(job_id=f"job{n}", tenant="other"), max_concurrent=4) for n in range(200)
    }
    assert not others & groups.keys()


def test_the_runs_of_a_job_that_may_not_overlap_share_one_of_them() -> None:
    keys = [run_key(NOON + timedelta(minutes=n)) for n in range(50)]

    assert len({group_id(key, exclusive=True, max_concurrent=9) for key in keys}) == 1


def test_max_concurrent_is_not_in_the_body_of_a_message() -> None:
    message = a_message().model_copy(update={"max_concurrent": 3})

    assert "max_concurrent" not in message.encode()
    assert decode_message(message.encode()).group != message.group


def test_concurrent_runs_of_a_tenant_are_limited() -> None:
    world = a_world(concurrentRuns=3)
    for number in range(40):
        world.register(f"job{number}", **ONCE)
    world.register("theirs", tenant="other", **ONCE)
    world.tick_at("12:00")
    done = 0
    while world.queued:
        in_work = [d for _ in range(10) if (d := world.worker().receive()) is not None]
        tenants = Counter(decode_message(delivery.body).tenant for delivery in in_work)
        assert 1 <= tenants["acme"] <= 3
        done += tenants["acme"]
        for delivery in in_work:
            world.worker().handle(delivery)

    assert done == 40
    assert all(run.attempt == 1 for run in world.runs.all.values())


def test_a_run_that_waits_for_its_retry_holds_no_slot() -> None:
    world = a_world(concurrentRuns=1)
    world.register("fails", retryPolicy={"initialDelayMs": 600_000}, **ONCE)
    other = world.register("works", **ONCE)
    world.tick_at("12:00")
    world.script(exit_code=1)

    world.worker().work()

    assert world.run(other, "12:00").state == "SUCCEEDED"


def test_a_worker_that_vanished_keeps_its_place_until_its_lease_is_over() -> None:
    world = a_world(concurrentRuns=1)
    world.register("first", **ONCE)
    other = world.register("second", **ONCE)
    world.tick_at("12:00")
    assert world.worker("lost").receive() is not None
    assert world.worker().receive() is None

    world.advance(seconds=61)
    world.worker().work()

    assert world.run(other, "12:00").state == "SUCCEEDED"


def test_a_run_whose_job_does_not_decode_takes_no_place() -> None:
    """It waits in the due table, not in the message group that it shares with others."""
    world = a_world(concurrentRuns=1)
    broken = world.register("broken", **ONCE)
    other = world.register("works", **ONCE)
    world.tick_at("12:00")
    world.jobs.spoil(broken.key)

    first, second = world.worker().work()

    assert (first.disposition, first.quarantined) == (Disposition.ACKNOWLEDGE, True)
    assert (second.outcome, world.queued) == (AttemptOutcome.SUCCEEDED, [])
    assert world.run(other, "12:00").attempt == 1
    for _ in range(20):
        world.advance(seconds=61)
        world.tick()
        assert [each.quarantined for each in world.worker().work()] == [True], "it is counted"
    world.jobs.repair(broken.key)
    world.advance_and_work(seconds=61)
    assert [each.state for each in world.runs.all.values()] == ["SUCCEEDED"] * 2


def test_what_a_due_entry_cannot_hold_stays_in_the_queue() -> None:
    """Missed occurrences, before their records are written, and the ends of joins."""
    world = a_world(concurrentRuns=1)
    job = world.register("broken", **ONCE)
    world.jobs.spoil(job.key)
    missed = SkippedRange(first=NOON, last=NOON, count=1, version=0, reason="late")
    message = a_message(job.run_key(NOON))
    for each in ({"missed": (missed,)}, {"dispatch": JOIN_END_DISPATCH}, {"removed_pool": "old"}):
        world.queue.send([("default", message.model_copy(update=each))])
        delivery = world.worker().receive()
        assert delivery is not None
        assert world.worker().handle(delivery).disposition is Disposition.LEAVE
        world.queue.queues["default"].purge()
        world.advance(minutes=5)


def test_a_run_whose_job_does_not_decode_stays_in_the_queue_if_the_due_table_takes_no_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world(concurrentRuns=1)
    job = world.register("broken", **ONCE)
    world.tick_at("12:00")
    world.jobs.spoil(job.key)
    monkeypatch.setattr(world.due, "put", lambda *_: set())
    delivery = world.worker().receive()
    assert delivery is not None

    with pytest.raises(UnavailableError, match="was not stored"):
        world.worker().handle(delivery)
