"""The contract of queues: a message is hidden, shown again, and done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from nextfire.domain.message import decode_message
from tests.builders import LEASE, a_message
from tests.integration.backends import (
    EXPIRED_RECEIPTS_MINISTACK,
    EXPIRED_RECEIPTS_MOTO,
    ORDER_OF_WHAT_IS_SHOWN,
    RECEIPTS_OF_BEFORE,
)
from tests.integration.test_contract_run_queue.conftest import FIRST, SECOND, THIRD, Held

MOMENT = timedelta(milliseconds=100)


def test_of_ten_that_receive_at_once_one_has_the_message(held: Held) -> None:
    held.send(a_message(dispatch=1), a_message(dispatch=2))

    with ThreadPoolExecutor(10) as threads:
        taken = [each for some in threads.map(lambda _: held.take(1), range(10)) for each in some]

    assert [decode_message(delivery.body).dispatch for delivery in taken] == [1]


def test_a_message_is_hidden_until_its_time_is_up(held: Held) -> None:
    held.send(a_message())
    began_at = held.time.now()
    held.take(1, held.brief)

    assert held.comes_back(FIRST.run_id, not_before=began_at + held.brief)


def test_a_message_may_be_hidden_for_longer(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1, 3 * held.brief)
    began_at = held.time.now()

    delivery.hide(4 * held.brief)

    assert held.comes_back(FIRST.run_id, not_before=began_at + 4 * held.brief)


def test_a_message_may_be_hidden_for_less(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1, 100 * held.brief)
    began_at = held.time.now()

    delivery.hide(held.brief)

    assert held.comes_back(FIRST.run_id, not_before=began_at + held.brief)


@pytest.mark.parametrize("hours", [1, 12])
def test_a_message_may_be_hidden_for_hours(held: Held, hours: int) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)

    delivery.hide(timedelta(hours=hours))

    assert held.receive() == []


@ORDER_OF_WHAT_IS_SHOWN.mark
def test_messages_of_a_group_that_are_shown_together_come_again_in_their_order(held: Held) -> None:
    alone = {"exclusive": True}
    exclusive = [a_message(key).model_copy(update=alone) for key in (FIRST, SECOND, THIRD)]
    held.send(*exclusive)
    taken = held.take(3)
    assert len(taken) == len(exclusive)

    assert held.pool.show(taken) == []

    run_ids = [message.run_id for message in exclusive]
    assert held.comes_back(*run_ids, not_before=held.time.now())


def test_each_delivery_of_a_message_has_a_new_token(held: Held) -> None:
    held.send(a_message())
    (first,) = held.take(1)
    held.pool.show([first])
    held.time.sleep(MOMENT)
    (second,) = held.take(1)

    assert first.token != second.token


def test_a_message_may_be_given_back_at_once(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)

    delivery.hide(timedelta())

    assert held.comes_back(FIRST.run_id, not_before=held.time.now())


@RECEIPTS_OF_BEFORE.mark
def test_who_had_a_message_does_not_hide_it_from_who_has_it_now(held: Held) -> None:
    held.send(a_message())
    (first,) = held.take(1)
    first.hide(timedelta())
    held.time.sleep(MOMENT)
    (second,) = held.take(1)

    first.hide(timedelta())
    held.time.sleep(MOMENT)

    assert held.receive() == []
    second.hide(timedelta())
    assert held.comes_back(FIRST.run_id, not_before=held.time.now())


@RECEIPTS_OF_BEFORE.mark
def test_who_had_a_message_does_not_acknowledge_it_for_who_has_it_now(held: Held) -> None:
    held.send(a_message())
    (first,) = held.take(1)
    first.hide(timedelta())
    held.time.sleep(MOMENT)
    (second,) = held.take(1)

    held.pool.acknowledge(first)

    assert held.queue.backlog("default") == 1
    second.hide(timedelta())
    assert held.comes_back(FIRST.run_id, not_before=held.time.now())


@EXPIRED_RECEIPTS_MOTO.mark
@EXPIRED_RECEIPTS_MINISTACK.mark
def test_what_is_visible_again_is_acknowledged_too_late(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1, held.brief)
    held.time.sleep(held.brief + MOMENT)

    held.pool.acknowledge(delivery)

    assert held.receive() == [FIRST.run_id]


def test_an_acknowledged_message_is_gone(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)
    held.pool.acknowledge(delivery)

    held.time.sleep(2 * held.brief)
    assert held.receive() == []
    assert held.queue.backlog("default") == 0


def test_what_is_no_longer_ours_is_not_hidden(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)
    held.pool.acknowledge(delivery)

    delivery.hide(LEASE)

    assert held.receive() == []
