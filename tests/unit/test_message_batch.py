"""How long a message is hidden whose service did not answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.usecases.handled import Handled
from nextfire.usecases.message_batch import MessageBatch


@dataclass
class Message:
    """A received message that records how long it is hidden."""

    receives: int
    token: str = "t"
    body: str = ""
    message_id: str = "m"
    group: str = "g"
    hidden: list[timedelta] = field(default_factory=list)

    def hide(self, duration: timedelta) -> None:
        self.hidden.append(duration)


class Throttled:
    """An `ExecuteRun` whose first call of a store is throttled, and what it reports."""

    def handle(self, _: Message, **__: Any) -> Handled:
        raise UnavailableError("claim run: ThrottlingException. Try again.")

    def warn(self, *_: object) -> None: ...


def hidden(receives: int, token: str) -> float:
    """The seconds that a message is hidden after its claim was throttled."""
    here: Any = Throttled()
    message = Message(receives, token)
    batch: MessageBatch[Message] = MessageBatch(here, here, lease=timedelta(seconds=60))
    assert batch.carry_out([message], stopping=lambda: False) == [message]
    first, last = message.hidden
    assert first == timedelta(seconds=60)
    return last.total_seconds()


@pytest.mark.parametrize(
    ("receives", "least", "most"), [(1, 2, 4), (2, 4, 8), (4, 16, 32), (5, 30, 60), (999, 30, 60)]
)
def test_a_throttled_claim_hides_its_message_for_seconds_at_first(
    receives: int, least: float, most: float
) -> None:
    durations = {hidden(receives, f"token {n}") for n in range(50)}

    assert least <= min(durations) < max(durations) <= most
    assert len(durations) > 25, "the messages do not return together"
