"""The contract of queues: dead letters."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.sqs.run_queue import SqsDeadLetters
from tests.integration.backends import takes_minutes
from tests.integration.test_contract_run_queue.conftest import Held


def test_a_dead_letter_is_kept_with_its_failure(held: Held) -> None:
    held.dead_letters.put("garbage", "not a run message", dedup="a")
    held.dead_letters.put("silence", "", dedup="b")
    held.dead_letters.put("long", "x" * 5000, dedup="c")

    assert sorted(held.pool.letters()) == [
        ("garbage", "not a run message"),
        ("long", "x" * 1000),
        ("silence", "-"),
    ]


def test_a_dead_letter_is_kept_once(held: Held) -> None:
    held.dead_letters.put("garbage", "one", dedup="a")
    held.dead_letters.put("garbage", "two", dedup="a")

    assert held.pool.letters() == [("garbage", "one")]


@takes_minutes
@pytest.mark.timeout(600)
def test_a_dead_letter_is_kept_once_within_five_minutes(held: Held) -> None:
    held.dead_letters.put("garbage", "one", dedup="a")
    held.time.sleep(timedelta(minutes=4, seconds=55))
    held.dead_letters.put("garbage", "two", dedup="a")
    held.time.sleep(timedelta(seconds=10))
    held.dead_letters.put("garbage", "three", dedup="a")

    assert held.pool.letters() == [("garbage", "one"), ("garbage", "three")]


def test_a_failure_has_no_character_that_sqs_refuses() -> None:
    """Tests the adapter alone: moto accepts what SQS rejects."""
    sent: list[Any] = []

    class Client:
        def send_message(self, **request: object) -> None:
            sent.append(request["MessageAttributes"])

    letters = SqsDeadLetters(Client(), queue_url="dlq")  # type: ignore[arg-type]
    letters.put("body", "a\x1b.zip\t\n ü 🙂 \ufffe\x00", dedup="d")

    assert [each["failure"]["StringValue"] for each in sent] == ["a?.zip\t\n ü 🙂 ??"]
