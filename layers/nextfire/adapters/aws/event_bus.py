"""The stack's event bus in EventBridge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import RefusedError, translated
from nextfire.domain.events import SOURCE, Event

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient


class EventBridgeEventBus:
    """`Events` on the bus *bus*, by its name or ARN."""

    def __init__(self, client: EventBridgeClient, *, bus: str) -> None:
        self._client = client
        self._bus = bus

    def put(self, event: Event) -> None:
        with translated("put event"):
            answer = self._client.put_events(
                Entries=[
                    {
                        "EventBusName": self._bus,
                        "Source": SOURCE,
                        "DetailType": event.kind,
                        "Detail": json.dumps(event.detail),
                        "Time": event.at,
                    }
                ]
            )
            if answer["FailedEntryCount"]:
                # The request succeeded, but its entry failed: the response holds the error.
                entry = answer["Entries"][0]
                refusal = {
                    "Error": {
                        "Code": entry.get("ErrorCode", ""),
                        "Message": entry.get("ErrorMessage", ""),
                    }
                }
                raise RefusedError(refusal, "PutEvents")
