"""Quotas of jobs, payloads and intervals, checked when a job is stored."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nextfire.domain.errors import BeyondQuotaError, QuotaUsedUpError
from nextfire.domain.ids import group_id
from nextfire.domain.occurrences import JobState
from nextfire.domain.quotas import TenantQuotas
from tests.accounting import settle
from tests.builders import MINUTELY, at, job_key
from tests.unit.limited import ONCE, a_world, quotas
from tests.world import World

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
    with pytest.raises(QuotaUsedUpError, match="which is 2, is used up") as refused:
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


def test_a_job_that_is_completed_makes_room_and_takes_it_again_when_it_continues() -> None:
    world = a_world(jobs=1)
    job = world.register("one", **ONCE)
    world.tick_and_work("12:00")
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
    later = World(
        quotas=quotas(jobs=1), stores=same_stores(world), clock=world.clock, first_epoch=9
    )
    later.register("new", uid="uid99998")

    later.change(job, name="renamed")

    assert later.jobs.counts["acme"] == 2, "the change is not rejected"
    with pytest.raises(QuotaUsedUpError):
        later.register("newer", uid="uid99999")


def same_stores(world: World) -> Any:
    world.dead_letters.letters.clear()
    from tests.fakes import Stores  # noqa: PLC0415

    return Stores(world.due, world.jobs, world.control, world.queue, world.dead_letters, world.runs)


def test_tenants_without_quotas_cause_no_extra_calls() -> None:
    world = a_world(jobs=5, runsPerMinute=1, concurrentRuns=1)
    world.register("theirs", tenant="other", **MINUTELY)
    world.tick_and_work("12:00")

    assert "control.take_runs" not in world.faults.calls
    assert world.jobs.counts == {"other": 0}
    (message,) = world.queue.log
    assert message.group == group_id(message.key)


# Payload and interval


def test_a_payload_beyond_the_quota_is_refused_and_one_from_before_may_stay() -> None:
    world = World("11:59:30")
    job = world.register(payload="x" * 50)
    later = World(
        quotas=quotas(payloadBytes=20), stores=same_stores(world), clock=world.clock, first_epoch=9
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
        (  # its first two are on both sides of a date without occurrences
            {
                "type": "INTERVAL",
                "schedule": "PT10S",
                "startAt": "2026-05-24T23:59:59Z",
                "exceptDates": ["2026-05-25"],
            },
            "10 s",
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


def test_a_schedule_beyond_the_quota_may_stay_and_is_not_made_again() -> None:
    world = World("11:59:30")
    job = world.register(**MINUTELY)
    later = World(
        quotas=quotas(shortestIntervalSec=600),
        stores=same_stores(world),
        clock=world.clock,
        first_epoch=9,
    )

    later.change(job, name="renamed")
    with pytest.raises(BeyondQuotaError):
        later.change(job, schedule="*/2 * * * *")
    later.change(job, schedule="*/20 * * * *")
