"""A process dies at any of its AWS calls, or does not get its answer: nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crashes.explorer import Explorer, Findings
from tests.crashes.flows import FLOWS, Flow
from tests.crashes.report import PROPERTY
from tests.crashes.stack import TravelClock
from tests.crons import LONG
from tests.integration.deployment import Deployment

SAMPLE = 10
"""Of so many faults one is tried, unless there is time; three to a call, so all kinds come by."""

each_flow = pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)


@pytest.fixture
def explore(
    flow: Flow,
    stack_of_tests: Deployment,
    clock: TravelClock,
    record_property: Callable[[str, object], None],
) -> Callable[[str, Callable[[Explorer], Findings]], None]:
    def explore(family: str, how: Callable[[Explorer], Findings]) -> None:
        findings = how(Explorer(flow, stack_of_tests, clock))
        counts = findings.calls, findings.points, findings.played, len(findings.failures)
        record_property(PROPERTY, [flow.name, family, *counts])
        assert findings.played
        assert not findings.failures, findings.told()

    return explore


@each_flow
def test_a_process_may_die_at_any_call(explore: Callable[..., None]) -> None:
    explore("kills", lambda explorer: explorer.explore_kills(each=LONG))


@each_flow
def test_an_answer_may_be_lost_or_a_refusal_at_any_call(explore: Callable[..., None]) -> None:
    explore("faults", lambda explorer: explorer.explore_faults(of=1 if LONG else SAMPLE))


@pytest.mark.skipif(not LONG, reason="minutes: make test-long")
@each_flow
def test_two_processes_may_die(explore: Callable[..., None]) -> None:
    explore("pairs", lambda explorer: explorer.explore_pairs())
