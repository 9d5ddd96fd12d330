"""Quotas of tenants."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from nextfire.domain.due import FireEntry
from nextfire.domain.errors import BeyondQuotaError, QuotaUsedUpError
from nextfire.domain.ids import group_id
from nextfire.domain.message import decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.quotas import TenantQuotas
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.report import Dispatched, TickReport
from tests.accounting import assert_all_accounted_for, records, settle
from tests.builders import NOON, RUN_ALL, a_message, at, job_key, run_key
from tests.world import World

MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}
ONCE: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


def quotas(**of_acme: Any) -> TenantQuotas:
    return TenantQuotas.model_validate({"tenants": {"acme": of_acme}})


def a_world(**of_acme: Any) -> World:
    world = World("11:59:30", quotas=quotas(**of_acme))
    world.tick()
    return world


def by_tenant(world: World) -> Counter[str]:
    return Counter(message.tenant for message in world.queue.log)


def lift_quotas(world: World) -> None:
    """Remove all quotas and let the waiting runs finish."""
    world.shares = Shares()
    world.new_watcher()
    settle(world)


# Lookup and validation of quotas


def test_quotas_of_a_tenant_override_the_default() -> None:
    both = TenantQuotas.model_validate(
        {
            "default": {"jobs": 10, "runsPerMinute": 60, "payloadBytes": 100},
            "tenants": {"acme": {"jobs": 20, "runsPerMinute": None}},
        }
    )

    assert both.of("other") == both.default
    own = both.of("acme")
    assert (own.jobs, own.runs_per_minute, own.payload_bytes) == (20, None, 100)


@pytest.mark.parametrize("given", [{"job": 1}, {"jobs": 0}, {"runsPerMinute": 0}, {"jobs": "x"}])
def test_an_invalid_quota_is_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(given))):
        quotas(**given)


# Jobs


def test_one_job_more_than_the_quota_is_refused_until_another_goes() -> None:
    world = a_world(jobs=2)
    first = world.register("one")
    world.register("two")
    with pytest.raises(QuotaUsedUpError, match="2 jobs") as refused:
        world.register("three")
    assert refused.value.quota == "jobs"
    assert world.jobs.get(job_key("three")) is None
    world.register("theirs", tenant="other")

    world.delete(first)
    world.register("three")

    with pytest.raises(QuotaUsedUpError):
        world.register("four")


def test_a_repeated_create_succeeds_at_the_quota() -> None:
    world = a_world(jobs=1)
    job = world.register("one", uid="uid99999")

    assert world.register("one", uid="uid99999") == job
    assert world.jobs.counts["acme"] == 1


def test_an_id_that_is_taken_again_counts_once() -> None:
    world = a_world(jobs=1)
    world.delete(world.register("one"))
    world.tick_at("11:59:40")

    world.register("one")

    assert world.jobs.counts["acme"] == 1


def test_a_job_that_is_completed_makes_room_and_takes_it_again_when_it_goes_on() -> None:
    world = a_world(jobs=1)
    job = world.register("one", **ONCE)
    world.tick_at("12:00")
    world.worker().work()
    assert world.job(job.key).state is JobState.COMPLETED
    other = world.register("two")

    with pytest.raises(QuotaUsedUpError):
        world.change(job, schedule="2026-05-24T13:00:00Z")
    assert world.job(job.key).state is JobState.COMPLETED
    world.delete(other)
    world.change(job, schedule="2026-05-24T13:00:00Z")

    assert world.job(job.key).counted
    assert world.jobs.counts["acme"] == 1
    world.delete(job)
    assert world.jobs.counts["acme"] == 0


def test_a_job_whose_pause_outlasts_its_schedule_makes_room() -> None:
    world = a_world(jobs=2)
    by_hand = world.register("one", **ONCE)
    by_itself = world.register("two", **ONCE)
    world.pause(by_hand)
    world.manage.pause(by_itself.key, None, now=world.now, until=at("12:30"))
    for job in (by_hand, by_itself):
        world.change(job, endAt="2026-05-24T12:00:00Z")
    world.at("12:10")
    world.resume(by_hand)
    world.tick_at("12:30")
    settle(world)

    assert world.jobs.counts["acme"] == 0


def test_a_job_from_before_the_quota_counts_from_its_next_change_on() -> None:
    world = World("11:59:30")
    job = world.register("old")
    later = World(quotas=quotas(jobs=1), stores=_stores(world), clock=world.clock, first_epoch=9)
    later.register("new", uid="uid99998")

    later.change(job, name="renamed")

    assert later.jobs.counts["acme"] == 2, "the change is not rejected"
    with pytest.raises(QuotaUsedUpError):
        later.register("newer", uid="uid99999")


def _stores(world: World) -> Any:
    world.dead_letters.letters.clear()
    from tests.fakes import Stores  # noqa: PLC0415

    return Stores(world.due, world.jobs, world.control, world.queue, world.dead_letters, world.runs)


def test_tenants_without_quotas_cause_no_extra_calls() -> None:
    world = a_world(jobs=5, runsPerMinute=1, concurrentRuns=1)
    world.register("theirs", tenant="other", **MINUTELY)
    world.tick_at("12:00")
    world.worker().work()

    assert "control.take_runs" not in world.faults.calls
    assert world.jobs.counts == {"other": 0}
    (message,) = world.queue.log
    assert message.group == group_id(message.key)


# Payload and interval


def test_a_payload_beyond_the_quota_is_refused_and_one_from_before_may_stay() -> None:
    world = World("11:59:30")
    job = world.register(payload="x" * 50)
    later = World(
        quotas=quotas(payloadBytes=20), stores=_stores(world), clock=world.clock, first_epoch=9
    )

    with pytest.raises(BeyondQuotaError, match=r"payload: larger than your quota of 20 bytes"):
        later.register("other", payload="x" * 19)
    later.register("other", payload="x" * 18)
    later.change(job, name="renamed")
    with pytest.raises(BeyondQuotaError):
        later.change(job, payload="y" * 50)
    with pytest.raises(BeyondQuotaError) as refused:
        later.request_runs.run_now(
            job.key, payload='"' + "x" * 19 + '"', reason=None, request="r", asked_at=later.now
        )
    assert refused.value.quota == "payloadBytes"


@pytest.mark.parametrize(
    ("when", "gap"),
    [
        ({"type": "INTERVAL", "schedule": "PT9M59S"}, "599 s"),
        ({"schedule": "*/5 * * * *"}, "300 s"),
        ({"schedule": "0,9 4 * * *"}, "540 s"),
        ({"schedule": "1,59 * * * *"}, "120 s"),
        ({"schedule": "0,15,30,55 0,12-23 * * *"}, "300 s"),
        (
            {
                "type": "DATES",
                "schedule": [f"2026-05-2{n}:00Z" for n in ("5T12:00", "6T12:00", "5T12:01")],
            },
            "60 s",
        ),
    ],
)
def test_occurrences_that_are_closer_than_the_quota_are_refused(
    when: dict[str, Any], gap: str
) -> None:
    world = a_world(shortestIntervalSec=600)

    with pytest.raises(BeyondQuotaError, match=f"occurrences {gap} apart") as refused:
        world.register(**when)

    assert (refused.value.quota, refused.value.field) == ("shortestIntervalSec", "schedule")


@pytest.mark.parametrize(
    "when",
    [
        {"type": "INTERVAL", "schedule": "PT10M"},
        {"schedule": "*/10 * * * *"},
        {"type": "DELAY", "schedule": "PT1S"},
        {"type": "MANUAL", "schedule": None},
        ONCE,
    ],
)
def test_occurrences_that_are_no_closer_than_the_quota_are_not(when: dict[str, Any]) -> None:
    a_world(shortestIntervalSec=600).register(**when)


def test_a_schedule_beyond_the_quota_may_stay_and_is_not_made_anew() -> None:
    world = World("11:59:30")
    job = world.register(**MINUTELY)
    later = World(
        quotas=quotas(shortestIntervalSec=600),
        stores=_stores(world),
        clock=world.clock,
        first_epoch=9,
    )

    later.change(job, name="renamed")
    with pytest.raises(BeyondQuotaError):
        later.change(job, schedule="*/2 * * * *")
    later.change(job, schedule="*/20 * * * *")


# Runs per minute


def test_what_exceeds_the_runs_of_a_minute_waits_in_the_table_for_the_next() -> None:
    world = a_world(runsPerMinute=5)
    for number in range(12):
        world.register(f"job{number:02d}", **ONCE)
        world.register(f"job{number:02d}", tenant="other", **ONCE)

    report = world.tick_at("12:00")

    assert by_tenant(world) == {"acme": 5, "other": 12}
    assert report.held_back == 7
    assert "7 runs wait for their tenants' quotas" in report.notes
    parked = Counter(slot.minute for slot in world.due.items)
    assert parked == {at("12:01"): 6, at("12:02"): 1}, "the quota plus one in each minute"
    for seconds in (10, 30, 58):
        assert world.tick_at(f"12:00:{seconds}").dispatched == []
    world.tick_at("12:01")
    assert by_tenant(world)["acme"] == 10
    world.tick_at("12:02")
    assert by_tenant(world)["acme"] == 12
    assert not world.entries


def test_the_earliest_due_go_first_however_long_they_wait() -> None:
    world = a_world(runsPerMinute=1)
    for second in (3, 1, 2):
        world.register(f"at{second}", type="ONCE", schedule=f"2026-05-24T12:00:0{second}Z")
    for minute in range(3):
        world.tick_at(f"12:0{minute}:05")

    assert [message.job_id for message in world.queue.log] == ["at1", "at2", "at3"]


def test_all_watchers_together_let_no_more_go_than_the_quota() -> None:
    """A new watcher continues the count of the former one, as would a concurrent watcher."""
    world = a_world(runsPerMinute=4)
    for number in range(6):
        world.register(f"job{number}", **ONCE)
    world.faults.call_before_each("queue.send", lambda: world.advance(seconds=0.1))
    world.tick_at("12:00")
    world.register("later", type="ONCE", schedule="2026-05-24T12:00:30Z")

    world.new_watcher()
    world.tick_at("12:00:31")

    assert by_tenant(world) == {"acme": 4}


def test_what_a_minute_has_left_is_for_those_that_come_later_in_it() -> None:
    world = a_world(runsPerMinute=2)
    for second in (0, 20):
        world.register(f"job{second}", type="ONCE", schedule=f"2026-05-24T12:00:{second:02}Z")

    world.tick_at("12:00:00")
    world.tick_at("12:00:20")

    assert by_tenant(world) == {"acme": 2}


def test_runs_above_the_quota_are_not_read_again_within_the_minute() -> None:
    world = a_world(runsPerMinute=1)
    for second in range(8):
        world.register(f"job{second}", type="ONCE", schedule=f"2026-05-24T12:00:0{second}Z")
    world.tick_at("12:00:01")
    world.faults.calls.clear()

    world.tick_at("12:00:07")

    assert not {"jobs.get_many", "control.take_runs"} & {*world.faults.calls}


def test_retries_count_and_wait_like_the_others() -> None:
    world = a_world(runsPerMinute=1)
    job = world.register(retryPolicy={"initialDelayMs": 1_000}, **ONCE)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()

    world.tick_at("12:00:02")
    assert len(world.sent) == 1
    world.tick_at("12:01")
    world.worker().work()

    assert (world.run(job, "12:00").attempt, world.run(job, "12:00").state) == (2, "SUCCEEDED")


def test_the_misfire_policy_applies_to_runs_delayed_by_a_quota() -> None:
    world = a_world(runsPerMinute=1)
    jobs = [world.register(f"job{n}", **MINUTELY) for n in range(3)]
    for minute in range(9):
        world.tick_at(f"12:0{minute}")
        world.worker().work()

    assert len(world.sent) == 9
    assert sum(run.covered for run in world.runs.all.values() if run.state == "SKIPPED") > 9
    lift_quotas(world)
    for job in jobs:
        assert_all_accounted_for(world, job)


def test_nothing_is_lost_to_a_quota() -> None:
    world = a_world(runsPerMinute=2)
    jobs = [world.register(f"job{n}", misfire=RUN_ALL, **MINUTELY) for n in range(5)]
    for _ in range(120):
        world.advance(seconds=5)
        world.tick()
        world.worker().work()

    assert len(world.sent) == 20
    lift_quotas(world)

    for job in jobs:
        assert_all_accounted_for(world, job)
        assert len(records(world, job)) >= 10


@pytest.mark.parametrize("trouble", ["refuse", "lose_answer"])
def test_runs_whose_quota_is_not_known_wait_and_those_of_others_do_not(trouble: str) -> None:
    world = a_world(runsPerMinute=5)
    world.register(**ONCE)
    world.register(tenant="other", **ONCE)
    getattr(world.faults, trouble)("control.take_runs")

    world.tick_at("12:00")
    assert by_tenant(world) == {"other": 1}
    world.tick_at("12:00:02")

    assert by_tenant(world) == {"other": 1, "acme": 1}


def test_a_pause_that_ends_by_itself_does_not_wait_for_a_quota() -> None:
    world = a_world(runsPerMinute=1)
    world.register("first", **ONCE)
    world.register("second", **ONCE)
    job = world.register("paused", schedule="30 * * * *")
    world.manage.pause(job.key, None, now=world.now, until=at("12:00:20"))
    world.tick_at("12:00:01")

    world.tick_at("12:00:20")

    assert world.job(job.key).state is JobState.ACTIVE


# Lateness and held-back runs


def dispatched(report: TickReport) -> list[tuple[str, bool, timedelta]]:
    return [(d.run.job.job_id, d.held_back, d.lateness) for d in report.dispatched]


def test_held_back_runs_do_not_count_as_late() -> None:
    world = a_world(runsPerMinute=1)
    world.register("a", **ONCE)
    world.register("b", **ONCE)

    assert dispatched(world.tick_at("12:00")) == [("a", False, timedelta())]
    world.new_watcher()
    assert dispatched(world.tick_at("12:01")) == [("b", True, timedelta(minutes=1))]


@pytest.mark.parametrize("again_at", ["12:00:03", "12:01:10"])
def test_what_waited_for_room_is_held_back_whichever_watcher_sends_it(again_at: str) -> None:
    world = World("11:59:30")
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    world.register("a", **ONCE)
    world.register("b", **ONCE)
    world.tick_at("12:00")
    world.worker().work()
    world.new_watcher()

    (sent,) = world.tick_at(again_at).dispatched

    assert sent.held_back


def test_what_waited_for_its_turn_is_held_back_and_what_comes_after_it_too() -> None:
    world = World("11:59:30")
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    world.register("blocker", **ONCE)
    world.register("job", misfire=RUN_ALL, **MINUTELY)
    world.tick_at("12:00")
    world.advance(minutes=5)
    world.tick()
    world.shares = Shares()
    world.new_watcher()
    world.advance(seconds=1)

    sent = world.tick().dispatched
    for _ in range(9):
        world.advance(seconds=1)
        sent += world.tick().dispatched
    next_one = world.tick_at("12:06").dispatched

    assert [d.held_back for d in sent] == [True] * 6
    assert [(d.held_back, d.lateness) for d in next_one] == [(False, timedelta())]


def test_what_an_outage_makes_late_is_late() -> None:
    world = a_world()
    world.register("job", **ONCE)

    (sent,) = world.tick_at("12:20").dispatched

    assert (sent.held_back, sent.lateness) == (False, timedelta(minutes=20))


def test_an_entry_is_the_same_whether_it_was_held_or_not() -> None:
    world = World("11:59:30")
    job = world.register("job", **ONCE)
    (entry,) = world.entries
    assert isinstance(entry, FireEntry)
    held = FireEntry(job.key, job.uid, entry.at, entry.version, held=True)

    assert held == entry
    assert len({held, entry}) == 1


# Concurrent runs


def test_runs_share_so_many_message_groups() -> None:
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


def test_dispatched_is_not_held_back_unless_that_is_said() -> None:
    assert not Dispatched(run_key(), timedelta(), "due").held_back
