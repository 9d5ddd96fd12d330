"""A defect planted into a loop of a process is found by the simulation."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.message import decode_message
from nextfire.usecases import message_batch
from nextfire.usecases.message_batch import MessageBatch
from nextfire.usecases.return_held import ReturnHeld
from nextfire.usecases.watcher_life import WatcherLife
from tests.simulation.history import History

TRIES = 80
"""Number of seeds; a few of them reveal each planted defect."""


def continue_group(patch: pytest.MonkeyPatch) -> None:
    """The batch begins messages of a group after one that stays in the queue."""

    class Blind(set[str]):
        def __contains__(self, _: object) -> bool:
            return False

    patch.setattr(message_batch, "set", Blind, raising=False)


def skip_hand_back(patch: pytest.MonkeyPatch) -> None:
    """What the batch did not start stays hidden until its visibility timeout ends."""

    def hide(batch: Any, message: Any, duration: timedelta) -> None:
        if duration:
            whole(batch, message, duration)

    whole = MessageBatch._hide  # noqa: SLF001
    patch.setattr(MessageBatch, "_hide", hide)


def name_only_the_first(patch: pytest.MonkeyPatch) -> None:
    """The messages of a group after one that stays are missing from the answer and so deleted."""

    def carry_out(batch: Any, messages: Any, **more: Any) -> Any:
        stay = whole(batch, messages, **more)
        firsts = {message.group: message for message in reversed(stay)}
        return [message for message in stay if firsts[message.group] is message]

    whole = MessageBatch.carry_out
    patch.setattr(MessageBatch, "carry_out", carry_out)


def delete_before_handling(patch: pytest.MonkeyPatch) -> None:
    """A worker's messages are deleted when they begin."""

    def carry_out(batch: Any, messages: Any, **more: Any) -> Any:
        for message in messages:
            batch.done(message)
        return whole(batch, messages, **more)

    whole = MessageBatch.carry_out
    patch.setattr(MessageBatch, "carry_out", carry_out)


def keep_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WatcherLife, "end", lambda _: None)


def end_in_outage(patch: pytest.MonkeyPatch) -> None:
    """A store error ends the watcher's life."""

    def turn(life: Any, now: Any) -> Any:
        report, again_at = life._watch.step(now)  # noqa: SLF001
        life.dispatched += len(report.dispatched) if report else 0
        return again_at

    patch.setattr(WatcherLife, "turn", turn)


def end_any_lease(patch: pytest.MonkeyPatch) -> None:
    """A supervisor does not check who holds the claim of a run."""

    def end_lease(use_case: Any, delivery: Any) -> bool:
        run = use_case.runs.get(decode_message(delivery.body).key)
        if run is None:
            return False
        past = use_case.clock.now() - timedelta(seconds=5)
        return use_case.runs.extend(run, lease_until=past) is not None

    patch.setattr(ReturnHeld, "_end_lease", end_lease)


LOOPS = {
    "a supervisor that ends another worker's lease": (
        end_any_lease,
        "called runs.extend on .*'s run",
    ),
    "a batch that continues a group after one that stays": (
        continue_group,
        "was not handed back|began on .* ran",
    ),
    "a missing hand-back": (skip_hand_back, "was not handed back"),
    "an answer that names only the first message of a group": (
        name_only_the_first,
        "not at rest|occurrences without a record",
    ),
    "a message that is deleted before it is handled": (
        delete_before_handling,
        "not at rest|began on .* ran",
    ),
    "a watcher that does not release its lease": (keep_lease, "keeps its lease"),
    "a watcher that ends in an outage": (end_in_outage, "UnavailableError"),
}


RARE: dict[Callable[[pytest.MonkeyPatch], None], range] = {
    name_only_the_first: range(4530, 5000),
    end_any_lease: range(216, 400),
    continue_group: range(39, 300),
    skip_hand_back: range(17, 300),
    delete_before_handling: range(9, 300),
}
"""The seeds to try for defects that few histories reveal."""


@pytest.mark.parametrize(("plant", "expected"), LOOPS.values(), ids=[*LOOPS])
def test_a_planted_defect_of_a_loop_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], expected: str
) -> None:
    seeds = RARE.get(plant, range(TRIES))
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = (each for seed in seeds for each in History(seed).play().violations)
        assert any(re.search(expected, each) for each in found)
