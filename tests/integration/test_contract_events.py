"""What `Events` promises, on the fake and on EventBridge."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — what the SDK raises

from nextfire.adapters import aws as clients
from nextfire.adapters.event_bus import EventBridgeEvents
from nextfire.domain.errors import UnavailableError
from nextfire.domain.events import Event, EventKind
from nextfire.domain.ports import Events
from tests.builders import NOON
from tests.fakes import MemoryEvents

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

DEAD = Event(EventKind.EXECUTION_DEAD, {"id": "1", "reason": "exit code 1, größer"}, NOON)
UNDECODABLE = Event(
    EventKind.MESSAGE_UNDECODABLE, {"id": "2", "version": 1}, NOON + timedelta(seconds=1)
)


@dataclass(frozen=True, slots=True)
class Held:
    """A bus, and what its listener was told."""

    events: Events
    told: Callable[[], list[Event]]


@pytest.fixture(params=["memory", "eventbridge"])
def held(request: pytest.FixtureRequest) -> Held:
    if request.param == "memory":
        events = MemoryEvents()
        return Held(events, lambda: events.told)
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

    def told() -> list[Event]:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        bodies = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        return [
            Event(EventKind(b["detail-type"]), b["detail"], datetime.fromisoformat(b["time"]))
            for b in bodies
        ]

    return Held(EventBridgeEvents(client, bus="bus"), told)


def test_whoever_listens_is_told(held: Held) -> None:
    held.events.put(DEAD)
    held.events.put(UNDECODABLE)

    assert sorted(held.told(), key=lambda event: event.at) == [DEAD, UNDECODABLE]


class Refusing:
    """A bus that takes the request and not its entry."""

    def __init__(self, code: str) -> None:
        self._code = code

    def put_events(self, **_: object) -> dict[str, Any]:
        return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": self._code}]}


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailure"])
def test_an_entry_that_may_be_taken_later_is_unavailable(code: str) -> None:
    client: Any = Refusing(code)

    with pytest.raises(UnavailableError, match=code):
        EventBridgeEvents(client, bus="bus").put(DEAD)


@pytest.mark.parametrize("code", ["MalformedDetail", "NotAuthorizedForSourceException"])
def test_an_entry_that_is_refused_for_good_is_an_error(code: str) -> None:
    client: Any = Refusing(code)

    with pytest.raises(ClientError, match=code):
        EventBridgeEvents(client, bus="bus").put(DEAD)
