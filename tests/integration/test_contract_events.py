"""The contract of `Events`, on the fake, in SQLite and on every emulator of EventBridge."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.errors import RefusedError
from nextfire.adapters.aws.event_bus import EventBridgeEventBus
from nextfire.adapters.sqlite.events import SqliteEvents
from nextfire.domain.errors import UnavailableError
from nextfire.domain.events import Event, EventKind
from nextfire.domain.ports.events import Events
from tests.builders import NOON
from tests.fakes import MemoryEvents
from tests.integration.backends import AWS, MEMORY, SQLITE, TIME_OF_AN_EVENT, on_each

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

CONTRACT_OF = (Events,)
DEAD = Event(EventKind.EXECUTION_DEAD, {"id": "1", "reason": "exit code 1, größer"}, NOON)
UNDECODABLE = Event(
    EventKind.MESSAGE_UNDECODABLE, {"id": "2", "version": 1}, NOON + timedelta(seconds=1)
)


@dataclass(frozen=True, slots=True)
class Held:
    """A bus, and the events received by its listener."""

    events: Events
    received: Callable[[], list[Event]]


backend = on_each(MEMORY, SQLITE, *AWS)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        events = MemoryEvents()
        return Held(events, lambda: events.published)
    if backend == SQLITE:
        stored = SqliteEvents(request.getfixturevalue("database"))
        return Held(stored, lambda: [event for _, event in stored.list()])
    sqs: SQSClient = request.getfixturevalue("sqs")
    client = clients.events()
    client.create_event_bus(Name="bus")
    url = sqs.create_queue(QueueName="listener")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    client.put_rule(Name="all", EventBusName="bus", EventPattern='{"source": ["nextfire"]}')
    client.put_targets(
        Rule="all",
        EventBusName="bus",
        Targets=[{"Id": "listener", "Arn": arn["Attributes"]["QueueArn"]}],
    )

    def received() -> list[Event]:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        bodies = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        return [
            Event(EventKind(b["detail-type"]), b["detail"], datetime.fromisoformat(b["time"]))
            for b in bodies
        ]

    return Held(EventBridgeEventBus(client, bus="bus"), received)


def test_listeners_receive_events(held: Held) -> None:
    held.events.put(DEAD)
    held.events.put(UNDECODABLE)

    events = [replace(event, at=NOON) for event in held.received()]
    assert sorted(events, key=lambda event: event.kind) == [DEAD, replace(UNDECODABLE, at=NOON)]


@TIME_OF_AN_EVENT.mark
def test_an_event_says_when_it_was(held: Held) -> None:
    held.events.put(UNDECODABLE)

    assert [event.at for event in held.received()] == [UNDECODABLE.at]


class Refusing:
    """A bus that accepts the request but not its entry."""

    def __init__(self, code: str) -> None:
        self._code = code

    def put_events(self, **_: object) -> dict[str, Any]:
        return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": self._code}]}


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailure"])
def test_an_entry_that_may_be_taken_later_is_unavailable(code: str) -> None:
    client: Any = Refusing(code)

    with pytest.raises(UnavailableError, match=code):
        EventBridgeEventBus(client, bus="bus").put(DEAD)


@pytest.mark.parametrize("code", ["MalformedDetail", "NotAuthorizedForSourceException"])
def test_an_entry_that_is_refused_for_good_is_an_error(code: str) -> None:
    client: Any = Refusing(code)

    with pytest.raises(RefusedError, match=code):
        EventBridgeEventBus(client, bus="bus").put(DEAD)
