"""Repeating what DynamoDB throttled of a batch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from nextfire.adapters.aws.errors import RefusedError
from nextfire.adapters.dynamodb import batch_retries
from nextfire.adapters.dynamodb.batch_retries import retried


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The longest wait before each repetition, in seconds."""
    found: list[float] = []
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    monkeypatch.setattr("time.sleep", found.append)
    return found


def sending(*results: list[int] | Exception) -> tuple[list[list[int]], Callable[..., list[int]]]:
    """A function that returns or raises *results* in turn, and the batches that it was given."""
    given: list[list[int]] = []

    def send(batch: list[int]) -> list[int]:
        result = results[len(given)]
        given.append(batch)
        if isinstance(result, Exception):
            raise result
        return result

    return given, send


def test_what_was_processed_is_not_repeated(waits: list[float]) -> None:
    given, send = sending([2, 3, 4], [4], [])

    assert retried(send, [1, 2, 3, 4]) == []
    assert given == [[1, 2, 3, 4], [2, 3, 4], [4]]
    assert waits == [0.05, 0.05]


def test_it_waits_longer_while_nothing_is_processed(waits: list[float]) -> None:
    given, send = sending([1, 2], [1, 2], [2], [2], [2], [])

    assert retried(send, [1, 2]) == []
    assert given == [[1, 2]] * 3 + [[2]] * 3
    assert waits == [0.05, 0.1, 0.05, 0.1, 0.2]


def test_it_ends_after_five_calls_that_process_nothing() -> None:
    given, send = sending(*[[1, 2]] * 9)

    assert retried(send, [1, 2]) == [1, 2]
    assert len(given) == 5


def test_it_ends_after_five_seconds_although_each_call_processes_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = iter([0.0, 2.0, 4.9, 5.0])  # at the begin, and before each repetition
    monkeypatch.setattr(batch_retries, "time", SimpleNamespace(sleep=id, monotonic=passed.__next__))
    given, send = sending([2, 3, 4, 5], [3, 4, 5], [4, 5], [5], [])

    assert retried(send, [1, 2, 3, 4, 5]) == [4, 5]
    assert given == [[1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5]]


def test_an_error_ends_it() -> None:
    error = RefusedError({"Error": {"Code": "ThrottlingException"}}, "BatchWriteItem")
    given, send = sending([2], error)

    with pytest.raises(RefusedError, match="ThrottlingException"):
        retried(send, [1, 2])
    assert given == [[1, 2], [2]]


def test_an_empty_batch_is_not_sent() -> None:
    given, send = sending()

    assert retried(send, []) == []
    assert given == []
