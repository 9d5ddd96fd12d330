"""`Client.wait` returns a run once it has ended."""

from __future__ import annotations

import pytest

from nextfire import NotEndedError, NotFound
from tests.unit.client_calls import Api, Clock, client

PENDING, RUNNING = {"executionId": "j.x", "state": "PENDING"}, {"state": "RUNNING"}


@pytest.mark.parametrize("state", ["SUCCEEDED", "DEAD", "CANCELLED", "SKIPPED", "MISSED"])
def test_it_waits_for_the_end_in_growing_intervals(state: str) -> None:
    api, clock = Api(PENDING, *[RUNNING] * 9, {"state": state}), Clock()

    assert client(api, clock=clock).wait("j.x", timeout=100).document["state"] == state

    assert clock.slept[:3] == [0.5, 0.75, 1.125]
    assert clock.slept[-2:] == [10, 10]


def test_it_waits_without_a_limit_by_default() -> None:
    clock = Clock()

    assert client(Api(*[RUNNING] * 999, {"state": "DEAD"}), clock=clock).wait("j.x").state == "DEAD"
    assert clock.now > 9_000


@pytest.mark.parametrize(("timeout", "looks"), [(0, 1), (3, 5)])
def test_a_run_that_does_not_end_in_time_is_an_error(timeout: float, looks: int) -> None:
    api, clock = Api(*[RUNNING] * 9), Clock()

    with pytest.raises(
        NotEndedError, match=f"is RUNNING: it has not ended within {timeout} s"
    ) as e:
        client(api, clock=clock).wait("j.x", timeout=timeout)

    assert (e.value.state, clock.now, len(api.came)) == ("RUNNING", timeout, looks)


def test_a_run_that_does_not_exist_is_reported_at_once() -> None:
    with pytest.raises(NotFound):
        client(Api(404)).wait("j.x")
