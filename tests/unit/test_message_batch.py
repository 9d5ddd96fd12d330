"""How long a message is hidden whose service did not answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.message_batch import MessageBatch

LEASE = timedelta(seconds=60)


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
    batch: MessageBatch[Message] = MessageBatch(here, here, lease=LEASE)
    assert batch.carry_out([message], stopping=lambda: False) == [message]
    assert message.hidden[:-1] == [LEASE] * (receives > 1), "the run may have lost an executor"
    return message.hidden[-1].total_seconds()


@pytest.mark.parametrize(
    ("receives", "least", "most"), [(1, 2, 4), (2, 4, 8), (4, 16, 32), (5, 30, 60), (999, 30, 60)]
)
def test_a_throttled_claim_hides_its_message_for_seconds_at_first(
    receives: int, least: float, most: float
) -> None:
    durations = {hidden(receives, f"token {n}") for n in range(50)}

    assert least <= min(durations) < max(durations) <= most
    assert len(durations) > 25, "the messages do not return together"


@dataclass
class Executor:
    """An `ExecuteRun` that hides its message or not, and how it is called."""

    disposition: Disposition = Disposition.ACKNOWLEDGE
    hides: timedelta | None = None
    fails: bool = False
    hidden_longer: list[bool] = field(default_factory=list)

    def handle(self, delivery: Message, *, hidden_longer: bool, **__: Any) -> Handled:
        self.hidden_longer.append(hidden_longer)
        if self.hides is not None:
            delivery.hide(self.hides)
        if self.fails:
            raise RuntimeError
        return Handled(self.disposition, "because")

    def handled(self, _: Handled) -> None: ...
    def fail(self, *_: object) -> None: ...


SOON = timedelta(seconds=5)


@pytest.mark.parametrize(
    ("executor", "receives", "hidden"),
    [
        (Executor(), 1, []),
        (Executor(), 2, [LEASE]),
        (Executor(Disposition.LEAVE), 1, [LEASE]),
        (Executor(Disposition.LEAVE, SOON), 1, [SOON]),
        (Executor(Disposition.LEAVE), 2, [LEASE]),
        (Executor(fails=True), 1, [LEASE]),
    ],
    ids=["short", "again", "stays", "hidden on purpose", "stays again", "a defect"],
)
def test_a_message_is_hidden_for_a_lease_only_if_it_may_be_needed_again(
    executor: Executor, receives: int, hidden: list[timedelta]
) -> None:
    message, here = Message(receives), cast("Any", executor)
    batch: MessageBatch[Message] = MessageBatch(here, here, lease=LEASE)

    stay = batch.carry_out([message], stopping=lambda: False)

    assert message.hidden == hidden
    assert bool(stay) is (executor.fails or executor.disposition is Disposition.LEAVE)
    assert executor.hidden_longer == [receives == 1]


def test_a_worker_whose_messages_are_hidden_for_a_lease_changes_nothing() -> None:
    message, here = Message(1), cast("Any", Executor(Disposition.LEAVE))
    batch: MessageBatch[Message] = MessageBatch(here, here)

    assert batch.carry_out([message], stopping=lambda: False) == [message]

    assert (message.hidden, here.hidden_longer) == ([], [False])
