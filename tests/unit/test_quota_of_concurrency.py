"""The quota of concurrent runs: they share as many message groups."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from nextfire.domain.ids import group_id
from nextfire.domain.message import decode_message
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
