"""The order in which tenants take turns, by their weights."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.due import FireEntry, Slot, StoredEntry
from nextfire.domain.fair_queue import FairQueue
from tests.builders import NOON, a_job

# The queue


def stored(tenant: str, number: int, *, second: int = 0, rank: int = 1, ms: int = 0) -> StoredEntry:
    job = a_job(f"job{number}", tenant=tenant, uid=f"uid{number:05d}")
    due_at = NOON + timedelta(seconds=second, milliseconds=ms)
    entry = job.fire_entry(due_at, 1)
    entry = FireEntry(entry.job, entry.uid, due_at, entry.version, rank=rank)
    return StoredEntry(Slot("2026-05-24T12:00Z#000", entry.sort_key), entry)


def drained(queue: FairQueue) -> list[StoredEntry]:
    return [queue.pop() for _ in range(len(queue))]


def tenants(entries: list[StoredEntry]) -> str:
    return "".join(each.entry.job.tenant for each in entries)


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({}, "ababababaaaa"),
        ({"a": 1, "b": 1}, "ababababaaaa"),
        ({"a": 3}, "aaabaaabaabb"),
        ({"b": 2}, "abbabbaaaaaa"),
        ({"a": 100}, "aaaaaaaabbbb"),
        ({"a": 0, "b": -1}, "ababababaaaa"),  # no tenant gets less than weight 1
        ({"c": 9}, "ababababaaaa"),
    ],
)
def test_tenants_take_turns_by_their_weights(weights: dict[str, int], order: str) -> None:
    queue = FairQueue(weights)
    for number in range(8):
        queue.push(stored("a", number))
    for number in range(4):
        queue.push(stored("b", number))

    assert tenants(drained(queue)) == order


def test_a_tenant_that_joins_late_is_served_in_the_next_round() -> None:
    queue = FairQueue({"a": 3})
    for number in range(9):
        queue.push(stored("a", number))
    first = queue.pop()
    queue.push(stored("b", 1))
    assert tenants([first, *drained(queue)]) == "aaabaaaaaa"


def test_the_turn_of_an_empty_tenant_passes_to_the_next_one() -> None:
    queue = FairQueue({"a": 3, "b": 2})
    queue.push(stored("a", 1))
    for number in range(4):
        queue.push(stored("b", number))
    assert queue.pop().entry.job.tenant == "a"
    queue.push(stored("a", 2))

    assert tenants(drained(queue)) == "bbabb"


@st.composite
def weights_and_entries(draw: st.DrawFn) -> tuple[dict[str, int], list[StoredEntry]]:
    weights = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5)))
    entries = draw(
        st.lists(
            st.builds(
                stored,
                st.sampled_from("abcd"),
                st.integers(0, 99_999),
                second=st.integers(0, 2),
                rank=st.integers(0, 2),
                ms=st.integers(0, 999),
            ),
            max_size=60,
            unique_by=lambda each: (each.entry.job.tenant, each.slot),
        )
    )
    return weights, entries


@given(weights_and_entries())
def test_a_queue_gives_back_what_it_was_given_in_order_within_a_tenant(
    register_jobs: tuple[dict[str, int], list[StoredEntry]],
) -> None:
    weights, entries = register_jobs
    queue = FairQueue(weights)
    for each in entries:
        queue.push(each)
    assert len(queue) == len(entries)

    popped = drained(queue)

    assert Counter(popped) == Counter(entries)
    assert len(queue) == 0
    for tenant in "abcd":
        own = [each.entry for each in popped if each.entry.job.tenant == tenant]
        assert own == sorted(own, key=lambda e: (e.at.replace(microsecond=0), e.rank, e.at))


@given(weights_and_entries())
def test_a_tenant_waits_at_most_one_turn_of_each_other_tenant(
    register_jobs: tuple[dict[str, int], list[StoredEntry]],
) -> None:
    weights, entries = register_jobs
    queue = FairQueue(weights)
    for each in entries:
        queue.push(each)
    order = tenants(drained(queue))

    for tenant in set(order):
        others = sum(weights.get(other, 1) for other in set(order) - {tenant})
        waits = order[: order.rindex(tenant)].split(tenant)
        assert max(map(len, waits)) <= others
    # While other tenants wait, no tenant gets more than its weight in a row.
    last = max((order.rindex(tenant) for tenant in set(order) - {*order[-1:]}), default=-1)
    for own, turn in groupby(order[: last + 1]):
        assert len([*turn]) <= weights.get(own, 1)


@given(weights_and_entries(), st.lists(st.booleans(), max_size=80))
def test_pushes_and_pops_in_any_order_lose_nothing(
    register_jobs: tuple[dict[str, int], list[StoredEntry]], pops: list[bool]
) -> None:
    weights, entries = register_jobs
    queue, out, left = FairQueue(weights), [], [*entries]
    for pop in pops:
        if pop and len(queue):
            assert queue.next_at <= NOON + timedelta(seconds=3)
            out.append(queue.pop())
        elif left:
            queue.push(left.pop())
    for each in left:
        queue.push(each)

    assert Counter(out + drained(queue)) == Counter(entries)
