"""Messages held by a dead worker are returned at once, and its runs count as lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from nextfire.usecases.return_held import Returned, ReturnHeld
from tests.builders import LEASE, at
from tests.fakes import Killed, MemoryDelivery, MemoryNotices, raise_killed, show
from tests.world import World


class Warnings(MemoryNotices):
    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def warn(self, what: str, why: Exception | str) -> None:
        self.warnings.append(f"{what}: {why}")


POLLS = timedelta(seconds=2)


def give_back(
    world: World, *held: MemoryDelivery, notices: MemoryNotices | None = None
) -> Returned:
    runs = world.faults.through(world.runs, "runs")
    use_case = ReturnHeld(runs, show, world.clock, notices or MemoryNotices())
    return use_case.give_back(held, polls_until=world.now + POLLS, until=world.now + LEASE)


def lose_worker(world: World, **fields: object) -> tuple[Job, MemoryDelivery]:
    """A job whose run of 12:00 was running on worker `a` when the worker died."""
    job = world.register(**fields)  # type: ignore[arg-type] # any field of a definition
    world.tick_at("12:00")
    world.script(meanwhile=raise_killed)
    worker = world.worker("a")
    delivery = worker.receive()
    assert delivery is not None
    with pytest.raises(Killed):
        worker.handle(delivery)
    return job, delivery


def test_a_run_is_taken_over_before_its_lease_ends_and_the_loss_counts(world: World) -> None:
    job, held = lose_worker(world)

    returned = give_back(world, held)
    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert returned == Returned(runs=1, messages=1)
    assert world.now < at("12:00") + LEASE / 2
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
    assert [(a.worker, a.outcome) for a in run.attempts] == [
        ("a", AttemptOutcome.WORKER_LOST),
        ("b", AttemptOutcome.SUCCEEDED),
    ]


def test_a_run_without_attempts_left_is_dead(world: World) -> None:
    job, held = lose_worker(world, retryPolicy={"maxAttempts": 1})

    give_back(world, held)
    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt, len(world.runner.calls)) == (RunState.DEAD, 1, 1)
    assert run.reason == "worker lost on attempt 1 of 1"


def test_a_run_that_was_to_be_cancelled_is_cancelled(world: World) -> None:
    job, held = lose_worker(world)
    world.manage_runs.cancel(world.run(job, "12:00").key, None)

    give_back(world, held)
    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert (run.state, len(world.runner.calls)) == (RunState.CANCELLED, 1)


def test_the_lease_has_ended_for_workers_whose_clock_is_behind_too(world: World) -> None:
    job, held = lose_worker(world)

    give_back(world, held)

    assert world.run(job, "12:00").lease_until == at("11:59:55")


def test_messages_are_visible_only_after_the_dead_workers_last_poll(world: World) -> None:
    """That poll would still receive a message that was returned earlier, and no process would see
    it.
    """
    job, held = lose_worker(world)
    observed = []

    def receive(deliveries: Sequence[MemoryDelivery]) -> list[str]:
        observed.append((world.now, world.run(job, "12:00")))
        return show(deliveries)

    ReturnHeld(world.runs, receive, world.clock, MemoryNotices()).give_back(
        [held], polls_until=at("12:00:02"), until=at("12:01")
    )

    [(shown_at, run)] = observed
    assert shown_at == at("12:00:02")
    assert run.lease_until == at("11:59:55"), "the lease was ended first"


def test_a_message_without_claim_is_visible_at_once(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    held = world.worker("a").receive()
    assert held is not None

    assert give_back(world, held) == Returned(runs=0, messages=1)

    world.worker("b").work_one()
    assert [a.worker for a in world.run(job, "12:00").attempts] == ["b"]


def test_a_run_that_another_worker_has_keeps_its_lease(world: World) -> None:
    job, held = lose_worker(world)
    world.advance(seconds=LEASE.total_seconds() + 1)
    observed = []

    def meanwhile() -> None:
        before = world.run(job, "12:00")
        observed.extend([give_back(world, held), world.run(job, "12:00") == before])

    world.script(meanwhile=meanwhile)
    world.worker("b").work_one()

    assert observed == [Returned(runs=0, messages=1), True]
    assert world.run(job, "12:00").attempt == 2


def test_a_run_that_has_ended_stays_so_and_is_settled(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    held = world.worker("a").receive()
    assert held is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryDelivery, "acknowledge", lambda _: None)  # the worker died before that
        world.worker("a").handle(held)

    assert give_back(world, held) == Returned(runs=0, messages=1)

    world.worker("b").work_one()
    assert (world.run(job, "12:00").attempt, world.queued) == (1, [])


def test_a_message_that_does_not_decode_is_visible(world: World) -> None:
    world.queue.queues["default"].send("rubbish", group="g", dedup="d")
    held = world.worker("a").receive()
    assert held is not None

    assert give_back(world, held) == Returned(messages=1)

    assert world.worker("b").receive() is not None


def test_it_waits_for_a_store_that_does_not_answer(world: World) -> None:
    job, held = lose_worker(world)
    notices = MemoryNotices()
    world.faults.refuse("runs.extend", times=20)

    returned = give_back(world, held, notices=notices)

    assert returned == Returned(runs=1, messages=1)
    assert world.now == at("12:00:20")
    world.worker("b").work_one()
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_it_ends_when_the_lease_has_ended_by_itself(world: World) -> None:
    _, held = lose_worker(world)
    world.faults.refuse("runs.get", times=1000)

    assert give_back(world, held) == Returned(left=1)

    assert at("12:00") + LEASE - timedelta(seconds=1) <= world.now < at("12:00") + LEASE


def test_a_failed_return_does_not_affect_the_others(world: World) -> None:
    def fail() -> None:
        raise ValueError("a defect")

    job, first = lose_worker(world)
    world.queue.queues["default"].send("rubbish", group="g", dedup="d")
    second = world.worker("a").receive()
    assert second is not None
    notices = MemoryNotices()
    world.faults.call_before_next("runs.get", fail)

    assert give_back(world, first, second, notices=notices) == Returned(messages=2)

    assert [str(each) for each in notices.defects] == ["a defect"]
    assert world.run(job, "12:00").state is RunState.RUNNING


@pytest.mark.parametrize(
    ("error", "returned"),
    [
        (UnavailableError("throttled"), Returned(runs=1, messages=1)),
        (ValueError("a defect"), Returned(runs=1)),
    ],
)
def test_messages_that_are_not_shown_at_first_are_shown_later(
    world: World, error: Exception, returned: Returned
) -> None:
    job, held = lose_worker(world)
    errors = [error]

    def refuse(deliveries: Sequence[MemoryDelivery]) -> list[str]:
        if errors:
            raise errors.pop()
        return show(deliveries)

    use_case = ReturnHeld(world.runs, refuse, world.clock, MemoryNotices())

    assert use_case.give_back([held], polls_until=world.now, until=at("12:01")) == returned

    lease_until = world.run(job, "12:00").lease_until
    assert lease_until is not None
    assert lease_until <= world.now - timedelta(seconds=5)


def test_what_the_queue_refuses_is_reported_and_not_tried_again(world: World) -> None:
    _, held = lose_worker(world)
    notices = Warnings()

    def refuse(_: Sequence[MemoryDelivery]) -> list[str]:
        return ["m: Expired"]

    returned = ReturnHeld(world.runs, refuse, world.clock, notices).give_back(
        [held], polls_until=world.now, until=at("12:01")
    )

    assert returned == Returned(runs=1)
    assert notices.warnings == ["messages not given back: m: Expired"]
