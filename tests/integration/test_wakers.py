"""The requests that wake a watcher."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from nextfire.adapters.aws.errors import RefusedError
from nextfire.adapters.aws.wakers import WAKE_SOURCE, EventWaker, LambdaWaker
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.waker import Waker
from tests.builders import NOON, a_fire, a_job
from tests.fakes import Clock, memory_stores


class Client:
    """A client of Lambda and EventBridge that records its requests. `fails`: raised by each."""

    fails: Exception | None = None

    def __init__(self, **answer: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer = answer

    def _answer(self, **request: Any) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        self.requests.append(request)
        return self.answer

    invoke = put_events = _answer


def by_lambda(client: Any) -> Waker:
    return LambdaWaker(client, function="watcher")


def by_event(client: Any) -> Waker:
    return EventWaker(client, bus="bus")


def test_the_watchers_function_is_invoked_asynchronously() -> None:
    client = Client(StatusCode=202)
    by_lambda(client).wake(3)
    [request] = client.requests
    assert (request["FunctionName"], request["InvocationType"]) == ("watcher", "Event")
    assert json.loads(request["Payload"]) == {"group": 3, "woken": True}


def test_the_event_names_the_group() -> None:
    client = Client(FailedEntryCount=0, Entries=[{"EventId": "1"}])
    by_event(client).wake(3)
    [[entry]] = [request["Entries"] for request in client.requests]
    assert (entry["EventBusName"], entry["Source"]) == ("bus", WAKE_SOURCE)
    assert json.loads(entry["Detail"]) == {"group": 3}


@pytest.mark.parametrize("code", ["TooManyRequestsException", "AccessDeniedException"])
@pytest.mark.parametrize("waker", [by_lambda, by_event])
def test_a_rejected_request_is_a_lost_wake_up(waker: Callable[[Any], Waker], code: str) -> None:
    client = Client()
    client.fails = RefusedError({"Error": {"Code": code}}, "Invoke")
    with pytest.raises(UnavailableError):
        waker(client).wake(0)


def test_an_event_that_the_bus_rejects_is_a_lost_wake_up() -> None:
    client = Client(FailedEntryCount=1, Entries=[{"ErrorCode": "InternalFailure"}])
    with pytest.raises(UnavailableError):
        by_event(client).wake(0)


@pytest.mark.parametrize("sleeps", [True, False])
def test_the_api_wakes_watchers_if_they_sleep(*, sleeps: bool) -> None:
    from functions.api.services import _waking  # noqa: PLC0415 — reads the environment

    stores = memory_stores(Clock(NOON), ["default"], shards=2)
    client = Client(StatusCode=202)
    ports: Any = SimpleNamespace(
        jobs=stores.jobs,
        runs=stores.runs,
        control=stores.control,
        waker=by_lambda(client) if sleeps else None,
    )
    settings: Any = SimpleNamespace(write_shards=2, groups=2)
    jobs, runs = _waking(ports, settings, Clock(NOON))
    job = a_job()
    assert jobs.create(job, a_fire(job, NOON + timedelta(seconds=5)), NOON) is None
    groups = [json.loads(request["Payload"])["group"] for request in client.requests]
    assert groups == ([job.key.shard(2) % 2] if sleeps else [])
    assert (runs is stores.runs) is not sleeps
