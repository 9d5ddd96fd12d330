"""Tests that the simulation finds defects of calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nextfire.domain import call_flow, endpoints
from nextfire.domain.attempt import AttemptOutcome
from nextfire.targets.http.outcome import result_without_response
from nextfire.targets.http.request import request_of
from nextfire.usecases.audit_snapshot import SnapshotReader
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.handled import Disposition, Handled
from tests.fakes import MemoryEndpointStore
from tests.simulation.history import CALLING, History

Plant = Callable[[pytest.MonkeyPatch], None]
_RUNNER = "nextfire.targets.http.runner"


def call_while_down(patch: pytest.MonkeyPatch) -> None:
    """Runs do not wait while an endpoint is down."""
    patch.setattr(endpoints, "admit", lambda *_: None)


def overwrite(patch: pytest.MonkeyPatch) -> None:
    """The store does not compare versions, so several processes become the probe."""

    def write(store: MemoryEndpointStore, was: Any, to: Any) -> bool:
        del was
        store.items[to.key] = to
        return True

    patch.setattr(MemoryEndpointStore, "replace", write)


def ignore_places(patch: pytest.MonkeyPatch) -> None:
    """A limit of calls at the same time is not kept."""

    def enter(flow: Any, limit: Any, *more: Any) -> Any:
        return whole(flow, replace(limit, parallel=100), *more)

    whole = call_flow.enter
    patch.setattr(call_flow, "enter", enter)


def forget_held_runs(patch: pytest.MonkeyPatch) -> None:
    """The message of a run that must wait is deleted, and no dispatch is stored."""

    def defer(_: Any, job: Any, message: Any, host: Any, hold: Any) -> Handled:  # noqa: ARG001
        return Handled(Disposition.ACKNOWLEDGE, hold.reason)

    patch.setattr(ExecuteRun, "_defer", defer)


def repair_held_runs(patch: pytest.MonkeyPatch) -> None:
    """The auditor does not look for runs that wait for an endpoint."""
    patch.setattr(SnapshotReader, "_read_held", lambda *_: None)


def believe_in_lost_responses(patch: pytest.MonkeyPatch) -> None:
    """A call without a response counts as a success."""

    def without_response(*asked: Any) -> Any:
        attempted = whole(*asked)
        result = replace(
            attempted.result, outcome=AttemptOutcome.SUCCEEDED, unavailable=False, permanent=False
        )
        return replace(attempted, result=result)

    whole = result_without_response
    patch.setattr(f"{_RUNNER}.result_without_response", without_response)


def number_the_keys(patch: pytest.MonkeyPatch) -> None:
    """The idempotency key differs between the attempts of a run."""

    def with_number(*asked: Any, **more: Any) -> Any:
        request = whole(*asked, **more)
        key = f"{request.headers['Idempotency-Key']}-{request.headers['Nextfire-Attempt']}"
        return replace(request, headers={**request.headers, "Idempotency-Key": key})

    whole = request_of
    patch.setattr(f"{_RUNNER}.request_of", with_number)


PLANTS: dict[str, tuple[Plant, str]] = {
    "calls while an endpoint is down": (call_while_down, "called without a probe"),
    "endpoints that are overwritten": (overwrite, "was written over|a probe before"),
    "more calls at the same time than allowed": (ignore_places, "calls, . are allowed"),
    "held runs that are forgotten": (forget_held_runs, "without a record"),
    "an audit that repairs held runs": (repair_held_runs, "repaired undamaged data"),
    "lost responses that are believed in": (believe_in_lost_responses, "SUCCEEDED, but got"),
    "another idempotency key for each attempt": (number_the_keys, "is the key of"),
}
_FIRST_SEED: dict[Plant, int] = {
    call_while_down: 123,
    overwrite: 2123,
    ignore_places: 10583,
    repair_held_runs: 12043,
    believe_in_lost_responses: 103,
    forget_held_runs: 163,
}
"""A seed that reveals the defect soon, for defects that few histories reveal."""
_MOST_SEEDS = 40


@pytest.mark.parametrize(("plant", "expected"), PLANTS.values(), ids=[*PLANTS])
def test_a_planted_defect_of_calls_is_found(
    plant: Plant, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _FIRST_SEED.get(plant, 3)
    plant(monkeypatch)
    for seed in range(first, first + CALLING * _MOST_SEEDS, CALLING):
        if any(re.search(expected, each) for each in History(seed).play().violations):
            return
    pytest.fail("not found")
