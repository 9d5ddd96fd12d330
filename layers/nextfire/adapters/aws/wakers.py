"""Wakers of watchers: the API invokes their function, executors publish an event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import failed
from nextfire.adapters.aws.event_bus import put_event
from nextfire.domain.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient

WAKE_SOURCE = "nextfire.watcher"
"""Source of the events that wake watchers. Differs from the source of events for users."""
WAKE_DETAIL = "Entry due soon"


@contextmanager
def _never_fatal() -> Iterator[None]:
    """Any failure is a lost wake-up, also a missing permission: the entry is stored."""
    try:
        yield
    except failed() as error:
        raise UnavailableError(f"wake a watcher: {error}") from error


class LambdaWaker:
    """`Waker` that invokes *function*, asynchronously: Lambda has accepted the event, and invokes
    the function once, within a minute or not at all.
    """

    def __init__(self, client: LambdaClient, *, function: str) -> None:
        self._client = client
        self._function = function

    def wake(self, group: int) -> None:
        with _never_fatal():
            self._client.invoke(
                FunctionName=self._function,
                InvocationType="Event",
                Payload=json.dumps({"group": group, "woken": True}).encode(),
            )


class EventWaker:
    """`Waker` that publishes an event on *bus*, whose rule invokes the watcher's function. The rule
    marks the watcher as woken, so that no publisher can start one that stays.
    """

    def __init__(self, client: EventBridgeClient, *, bus: str) -> None:
        self._client = client
        self._bus = bus

    def wake(self, group: int) -> None:
        with _never_fatal():
            put_event(
                self._client,
                {
                    "EventBusName": self._bus,
                    "Source": WAKE_SOURCE,
                    "DetailType": WAKE_DETAIL,
                    "Detail": json.dumps({"group": group}),
                },
            )
