"""Histories whose users redrive what was cancelled or skipped; and defects planted into that."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count, islice
from typing import Any

import pytest

from nextfire.domain import redrive_plan
from nextfire.domain.run import Run
from tests.simulation.history import History
from tests.simulation.redrives import redrives

Plant = Callable[[pytest.MonkeyPatch], None]


def send_a_wait_again(patch: pytest.MonkeyPatch) -> None:
    """A run that was cancelled while it waited takes the next dispatch but one of its record, which
    knows nothing of its waits.
    """
    whole = Run.redriven

    def redriven(run: Run, *args: Any, **kwargs: Any) -> Run:
        return replace(whole(run, *args, **kwargs), dispatch=run.dispatch + 2)

    patch.setattr(Run, "redriven", redriven)


def start_all_below(patch: pytest.MonkeyPatch) -> None:
    """What a user cancelled below the job that is redriven starts again, too."""
    whole = redrive_plan._follower  # noqa: SLF001

    def follower(node: Any, parents: Any, later: Any, *, downstream: bool) -> Any:
        action, reason = whole(node, parents, later, downstream=downstream)
        if "was cancelled" in reason:
            action = redrive_plan.RedriveAction.RUN
        return action, reason

    patch.setattr(redrive_plan, "_follower", follower)


def ignore_downstream(patch: pytest.MonkeyPatch) -> None:
    """A redrive of one job always includes what follows."""
    whole = redrive_plan._follower  # noqa: SLF001

    def follower(*args: Any, downstream: bool) -> Any:
        del downstream
        return whole(*args, downstream=True)

    patch.setattr(redrive_plan, "_follower", follower)


def grant_all_attempts(patch: pytest.MonkeyPatch) -> None:
    """A retry that is brought forward counts as a redrive."""

    def brought_forward(run: Run, reason: str, now: datetime) -> Run:
        return run.redriven(reason, now)

    patch.setattr(Run, "brought_forward", brought_forward)


PLANTS: dict[str, tuple[Plant, str]] = {
    "a dispatch that was sent": (send_a_wait_again, "may have been sent"),
    "a cancelled run that starts again": (start_all_below, "CANCELLED became PENDING"),
    "a redrive of too much": (ignore_downstream, "became PENDING|was made to await"),
    "new attempts for a start": (grant_all_attempts, "changed its attempts"),
}
_FIRST_SEED: dict[Plant, int] = {
    send_a_wait_again: 397,
    start_all_below: 807,
    ignore_downstream: 947,
}
_MOST_SEEDS = 40


def redriving(first: int) -> list[int]:
    """The seeds to try, from *first* on."""
    return list(islice(filter(redrives, count(first)), _MOST_SEEDS))


@pytest.mark.parametrize(("plant", "expected"), PLANTS.values(), ids=[*PLANTS])
def test_a_planted_defect_of_redrives_is_found(
    plant: Plant, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in redriving(_FIRST_SEED.get(plant, 0)):
        if any(re.search(expected, each) for each in History(seed).play().violations):
            return
    pytest.fail("not found")


# Runs that wait for maxParallel and for endpoints, timed joins, tenants with quotas.
@pytest.mark.parametrize("seed", [103, 107, 109, 113, 247, 383, 397, 523, 527, 803, 1087])
def test_what_was_cancelled_or_skipped_starts_again_and_is_accounted_for(seed: int) -> None:
    assert redrives(seed)
    assert not History(seed).play().violations
