"""The stack's event bus in EventBridge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import RefusedError, translated
from nextfire.domain.events import SOURCE, Event

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef


class EventBridgeEventBus:
    """`Events` on the bus *bus*, by its name or ARN."""

    def __init__(self, client: EventBridgeClient, *, bus: str) -> None:
        self._client = client
        self._bus = bus

    def put(self, event: Event) -> None:
        with translated("put event"):
            put_event(
                self._client,
                {
                    "EventBusName": self._bus,
                    "Source": SOURCE,
                    "DetailType": event.kind,
                    "Detail": json.dumps(event.detail),
                    "Time": event.at,
                },
            )


def put_event(client: EventBridgeClient, entry: PutEventsRequestEntryTypeDef) -> None:
    """Publish one event.

    Raises:
        RefusedError: The request succeeded, but its entry failed.
    """
    answer = client.put_events(Entries=[entry])
    if answer["FailedEntryCount"]:
        failed = answer["Entries"][0]
        refusal = {
            "Error": {
                "Code": failed.get("ErrorCode", ""),
                "Message": failed.get("ErrorMessage", ""),
            }
        }
        raise RefusedError(refusal, "PutEvents")
