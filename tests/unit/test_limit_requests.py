"""Rate limits shared by several processes, on a simulated clock."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.errors import UnavailableError
from nextfire.domain.quotas import Quotas
from nextfire.domain.request_limits import RequestLimit, Taken, take
from nextfire.usecases.limit_requests import ALONE_FOR, LimitRequests
from tests.builders import NOON
from tests.fakes import Faults, MemoryBucketStore

SECOND = timedelta(seconds=1)
LIMIT = RequestLimit(10, 20)


def process(store: object, reported: list[Exception] | None = None) -> LimitRequests:
    return LimitRequests(store, [].append if reported is None else reported.append)  # type: ignore[arg-type]


@given(
    limit=st.builds(RequestLimit, st.integers(1, 10_000), st.integers(1, 100_000)),
    asks=st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(1, 50)), max_size=60),
)
def test_a_bucket_never_gives_more_than_its_rate_and_burst(
    limit: RequestLimit, asks: list[tuple[int, int]]
) -> None:
    spent, now, given_out = None, 1_000_000_000, 0
    start = now
    for pause, wanted in asks:
        now += pause
        taken = take(spent, now, limit, wanted)
        assert 0 <= taken.tokens <= wanted
        assert (taken.tokens == 0) == (taken.wait > timedelta())
        if taken.tokens == 0:
            after = now + taken.wait // timedelta(microseconds=1)
            assert take(spent, after, limit, 1).tokens == 1, "one token is available after the wait"
            continue
        spent = taken.spent
        given_out += taken.tokens
        # Rounding makes a token up to one microsecond cheaper than its share.
        most = limit.burst + (now - start + len(asks)) * limit.per_second / 1_000_000 + 1
        assert given_out <= most


class Offered:
    """Requests at a constant rate, each to a random one of *processes*, and their results."""

    def __init__(
        self, store: object, *, processes: int, per_second: float, seconds: int, limit: RequestLimit
    ) -> None:
        self.limiters = [process(store) for _ in range(processes)]
        self.admitted: list[datetime] = []
        self.refused = 0
        picks = random.Random(7)  # noqa: S311 — which process gets a request
        for number in range(int(per_second * seconds)):
            at = NOON + number * SECOND / per_second
            if picks.choice(self.limiters).admit("t", limit, at) is None:
                self.admitted.append(at)
            else:
                self.refused += 1

    def most_within(self, window: timedelta) -> int:
        return max(
            sum(start <= at < start + window for at in self.admitted) for start in self.admitted
        )


@pytest.mark.parametrize("processes", [1, 3, 20])
@pytest.mark.parametrize("seconds", [1, 5, 30])
def test_all_processes_together_keep_to_the_bound(processes: int, seconds: int) -> None:
    offered = Offered(
        MemoryBucketStore(), processes=processes, per_second=100, seconds=40, limit=LIMIT
    )

    bound = LIMIT.burst + LIMIT.per_second * seconds + processes * LIMIT.batch
    assert offered.most_within(seconds * SECOND) <= bound
    assert len(offered.admitted) >= LIMIT.per_second * 40 * 0.8, "most of the limit is used"


@pytest.mark.parametrize(("limit", "share"), [(LIMIT, 0.25), (RequestLimit(200, 400), 0.1)])
@pytest.mark.parametrize("load", [0.8, 3])
def test_a_request_costs_a_fraction_of_a_write(
    limit: RequestLimit, share: float, load: float
) -> None:
    store = MemoryBucketStore()
    offered = Offered(
        store, processes=4, per_second=limit.per_second * load, seconds=60, limit=limit
    )

    assert store.asked / (len(offered.admitted) + offered.refused) <= share
    assert offered.refused == 0 or load > 1, "no request is rejected below the limit"


def test_requests_at_the_same_moment_are_admitted_up_to_the_burst() -> None:
    store = MemoryBucketStore()
    waits = [process(store).admit("t", LIMIT, NOON) for _ in range(25)]

    assert Counter(wait is None for wait in waits) == {True: 20, False: 5}


def test_a_bucket_that_others_have_emptied_is_not_asked_before_it_has_a_token() -> None:
    """Processes whose clocks are ahead took its tokens."""
    limit = RequestLimit(1, 1)
    store = MemoryBucketStore()
    ahead, limiter = process(store), process(store)
    ahead.admit("t", limit, NOON + 5 * SECOND)

    assert limiter.admit("t", limit, NOON) == 6 * SECOND
    asked = store.asked
    assert limiter.admit("t", limit, NOON + 2 * SECOND) == 4 * SECOND
    assert store.asked == asked


@pytest.mark.parametrize("now", [RequestLimit(100, 100_000), RequestLimit(1, 2)])
def test_a_changed_limit_takes_effect_at_once(now: RequestLimit) -> None:
    """Of the former limit the bucket would have been empty for a day."""
    store = MemoryBucketStore()
    before, after = process(store), process(store)
    for _ in range(100_000):
        before.admit("t", RequestLimit(1, 100_000), NOON)

    assert after.admit("t", now, NOON + SECOND) is None
    assert sum(after.admit("t", now, NOON + SECOND) is None for _ in range(20)) <= now.burst


def test_a_clock_that_is_set_back_rejects_nothing_for_long() -> None:
    """As on a machine that starts with a wrong clock."""
    store, hour = MemoryBucketStore(), timedelta(hours=1)
    limiter, other = process(store), process(store)
    while limiter.admit("t", LIMIT, NOON + hour) is None:
        pass

    assert limiter.admit("t", LIMIT, NOON) is None
    assert other.admit("t", LIMIT, NOON) is None


def test_a_clock_that_is_set_back_ends_the_time_without_the_store() -> None:
    faults, store = Faults(), MemoryBucketStore()
    limiter = process(faults.through(store, "buckets"))
    faults.refuse("buckets.take")
    limiter.admit("t", LIMIT, NOON + timedelta(hours=1))

    limiter.admit("t", LIMIT, NOON)
    assert store.asked == 1


def test_what_is_refused_costs_nothing_for_a_while() -> None:
    store = MemoryBucketStore()
    limiter = process(store)
    while limiter.admit("t", LIMIT, NOON) is None:
        pass
    asked = store.asked

    waits = [limiter.admit("t", LIMIT, NOON + n * LIMIT.pause / 1000) for n in range(1000)]

    assert all(waits)
    assert store.asked == asked
    assert limiter.admit("t", LIMIT, NOON + LIMIT.pause) is None


@pytest.mark.parametrize("limit", [RequestLimit(10, 1), RequestLimit(10, 5), RequestLimit(1, 1)])
def test_a_small_burst_still_admits_the_rate(limit: RequestLimit) -> None:
    offered = Offered(MemoryBucketStore(), processes=3, per_second=50, seconds=60, limit=limit)

    assert len(offered.admitted) >= limit.per_second * 60 * 0.6


def test_requests_are_admitted_if_the_store_is_unavailable() -> None:
    faults, store = Faults(), MemoryBucketStore()
    reported: list[Exception] = []
    broken = faults.through(store, "buckets")
    limiters = [process(broken, reported) for _ in range(3)]
    faults.refuse("buckets.take", times=10_000)

    def admitted(limiter: LimitRequests, at: datetime) -> int:
        return sum(limiter.admit("t", LIMIT, at) is None for _ in range(30))

    assert [admitted(each, NOON) for each in limiters] == [LIMIT.burst] * 3, "each on its own"
    assert len(reported) == 3, "the store is not asked again for each request"
    assert all(isinstance(each, UnavailableError) for each in reported)
    assert admitted(limiters[0], NOON + SECOND) == LIMIT.per_second


def test_a_store_that_answers_again_is_asked_again() -> None:
    class Store(MemoryBucketStore):
        broken = True

        def take(self, *given: object) -> Taken:
            if self.broken:
                raise ValueError("any error")
            return super().take(*given)  # type: ignore[arg-type]

    store = Store()
    limiter = process(store)
    limiter.admit("t", LIMIT, NOON)
    store.broken = False

    limiter.admit("t", LIMIT, NOON + ALONE_FOR - SECOND)
    assert store.asked == 0
    limiter.admit("t", LIMIT, NOON + ALONE_FOR)
    assert store.asked == 1


def test_an_answer_that_is_lost_costs_tokens_and_nothing_else() -> None:
    class Store(MemoryBucketStore):
        lost = False

        def take(self, *given: object) -> Taken:
            taken = super().take(*given)  # type: ignore[arg-type]
            if self.lost:
                raise UnavailableError("the tokens were taken, the answer was lost")
            return taken

    store = Store()
    died, limiter = process(store), process(store)
    store.lost = True
    died.admit("t", LIMIT, NOON)  # the process dies with the tokens it holds
    store.lost = False

    admitted = sum(limiter.admit("t", LIMIT, NOON) is None for _ in range(30))
    assert admitted == LIMIT.burst - 1


def test_a_token_that_was_given_back_is_spent_next() -> None:
    store = MemoryBucketStore()
    limiter = process(store)
    limiter.admit("t", LIMIT, NOON)
    limiter.give_back("t")
    limiter.admit("t", LIMIT, NOON)

    assert store.asked == 1


def test_without_a_burst_it_is_that_of_two_seconds() -> None:
    assert Quotas(requests_per_second=5).request_limit == RequestLimit(5, 10)
    assert Quotas(key_requests_per_second=5, key_request_burst=1).key_request_limit == RequestLimit(
        5, 1
    )
    assert Quotas(request_burst=5).request_limit is None
