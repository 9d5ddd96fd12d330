"""Messages of an invocation that are processed concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from nextfire.usecases.concurrent_batch import ConcurrentBatch


@dataclass(eq=False)
class Message:
    """A message; two may be equal."""

    group: str
    number: int = 0


@dataclass
class Batch:
    """A `MessageBatch` that records its calls; messages in *stays* stay."""

    stays: set[int] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    together: threading.Barrier | None = None
    groups: list[list[int]] = field(default_factory=list)

    def carry_out(
        self, messages: Sequence[Message], *, stopping: Callable[[], bool], longest: timedelta
    ) -> list[Message]:
        assert not stopping()
        assert longest == timedelta(seconds=9)
        if self.together is not None:
            self.together.wait(10)
        self.groups.append([each.number for each in messages])
        if messages[0].group in self.broken:
            raise RuntimeError("broken")
        return [each for each in messages if each.number in self.stays]


def carry_out(batch: Batch, *messages: Message) -> list[int]:
    with ThreadPoolExecutor(10) as threads:
        concurrent: ConcurrentBatch[Any] = ConcurrentBatch(batch, threads)  # type: ignore[arg-type]
        stay = concurrent.carry_out(messages, stopping=lambda: False, longest=timedelta(seconds=9))
    return [each.number for each in stay]


def test_groups_are_processed_at_the_same_time() -> None:
    batch = Batch(together=threading.Barrier(10))

    assert carry_out(batch, *(Message(str(n), n) for n in range(10))) == []


def test_messages_of_a_group_are_processed_in_order_by_one_batch() -> None:
    batch = Batch()

    carry_out(batch, Message("a", 1), Message("b", 2), Message("a", 3))

    assert sorted(batch.groups) == [[1, 3], [2]]


def test_what_stays_is_reported_in_the_order_of_delivery() -> None:
    batch = Batch(stays={4, 1, 2})

    stay = carry_out(batch, *(Message(group, n) for n, group in enumerate("abcab")))

    assert stay == [1, 2, 4]


@pytest.mark.parametrize("broken", [{"a"}, {"b"}])
def test_a_group_that_fails_stays_and_does_not_affect_the_others(broken: set[str]) -> None:
    stay = carry_out(Batch(broken=broken), Message("a", 1), Message("b", 2), Message("a", 3))

    assert stay == ([1, 3] if broken == {"a"} else [2])
