"""The contract of queues: messages of one group wait for each other."""

from __future__ import annotations

from nextfire.domain.message import decode_message
from tests.builders import a_message, run_key
from tests.integration.backends import GROUP_SCOPED_DEDUP
from tests.integration.test_contract_run_queue.conftest import FIRST, SECOND, THIRD, Held, exclusive


def test_a_run_s_next_message_waits_behind_the_one_in_flight(held: Held) -> None:
    held.send(a_message(FIRST, dispatch=1))
    (delivery,) = held.take(1)
    held.send(a_message(FIRST, dispatch=2), a_message(SECOND))

    assert held.receive() == [SECOND.run_id]

    held.pool.acknowledge(delivery)
    assert held.receive() == [FIRST.run_id]


def test_exclusive_runs_of_a_job_wait_for_each_other(held: Held) -> None:
    others = [run_key(job_id="report2"), run_key(tenant="other"), run_key(uid="uid00002")]
    held.send(exclusive(FIRST), exclusive(SECOND), *map(exclusive, others))

    taken = held.take(10)
    received = [decode_message(delivery.body) for delivery in taken]

    # A receive may return several messages of a group, in order, to one receiver.
    of_job = [m.run_id for m in received if m.key in (FIRST, SECOND)]
    assert of_job in ([FIRST.run_id], [FIRST.run_id, SECOND.run_id])
    assert {m.key for m in received} >= set(others), "jobs, tenants and creations share no group"
    assert held.receive() == []


def test_the_second_exclusive_run_is_not_received_while_the_first_is_in_flight(
    held: Held,
) -> None:
    held.send(exclusive(FIRST))
    (delivery,) = held.take(1)
    held.send(exclusive(SECOND), a_message(THIRD))

    assert held.receive() == [THIRD.run_id], "a run that is not exclusive has its own group"

    held.pool.acknowledge(delivery)
    assert held.receive() == [SECOND.run_id]


def test_runs_of_one_place_wait_for_each_other(held: Held) -> None:
    """A tenant may have one run at a time, across all of its jobs."""
    keys = [run_key(job_id=f"job{n}") for n in range(3)]
    of_tenant = [a_message(key).model_copy(update={"max_concurrent": 1}) for key in keys]
    held.send(*of_tenant, a_message(run_key(tenant="other")))
    done: list[str] = []
    while taken := held.take(10):
        received = [decode_message(delivery.body) for delivery in taken]
        first = next((m for m in received if m.tenant == "acme"), None)
        assert first is None or first.job_id == f"job{len(done)}", "in order"
        assert held.receive() == []
        for delivery, message in zip(taken, received, strict=True):
            if message.tenant == "acme":
                done.append(message.job_id)
            held.pool.acknowledge(delivery)

    assert done == ["job0", "job1", "job2"]


def test_exclusive_messages_are_merged_by_run_and_dispatch(held: Held) -> None:
    held.send(exclusive(FIRST), exclusive(SECOND), exclusive(FIRST), exclusive(FIRST, 2))

    seen = []
    while taken := held.take(1):
        message = decode_message(taken[0].body)
        seen.append((message.run_id, message.dispatch, message.exclusive))
        held.pool.acknowledge(taken[0])

    assert seen == [(FIRST.run_id, 1, True), (SECOND.run_id, 1, True), (FIRST.run_id, 2, True)]


@GROUP_SCOPED_DEDUP.mark
def test_messages_of_two_groups_are_not_merged(held: Held) -> None:
    """For example if a job's runs become exclusive between two sends of a dispatch. The claim
    ensures that one of the two does nothing.
    """
    held.send(a_message(FIRST))
    held.send(exclusive(FIRST))

    assert held.receive() == [FIRST.run_id, FIRST.run_id]
