"""A process dies at any of its AWS calls, or does not receive the answer: nothing is lost."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from zlib import crc32

import pytest

from tests.crashes.call_flows import CALL_FLOWS
from tests.crashes.explorer import Explorer, Findings
from tests.crashes.flow import Flow
from tests.crashes.flows import FLOWS
from tests.crashes.overview_flows import OVERVIEW_FLOWS
from tests.crashes.permissions import Permissions
from tests.crashes.process import Process
from tests.crashes.report import PROPERTY
from tests.crashes.sequence_flows import SEQUENCE_FLOWS
from tests.crashes.stack_records import TravelClock
from tests.crons import FIRST_DEATHS, LONG
from tests.infra.conftest import Template, synthesize
from tests.integration.deployment import Deployment

KILLS, FAULTS = 32, 100
"""In the short run, of a flow's kills or of its faults one of this number is tried."""
KINDS = 3
"""In the short run, of this number of flows one has faults, and the others have kills."""

Report = Callable[[str, Findings], None]


def _number(flow: Flow) -> int:
    """A number that depends on the name of *flow* only."""
    return crc32(flow.name.encode())


_ALL_FLOWS = [*FLOWS, *CALL_FLOWS, *SEQUENCE_FLOWS, *OVERVIEW_FLOWS]
each_flow = pytest.mark.parametrize(
    "flow",
    [flow for flow in _ALL_FLOWS if LONG or _number(flow) // KINDS % 2],
    ids=lambda flow: flow.name,
)
"""In the short run, one of two."""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Template:
    """The template for AWS. The first process of the run that needs it synthesizes it."""
    shared = tmp_path_factory.getbasetemp().parent / f"template-{testrun_uid}.json"
    with shared.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not shared.stat().st_size:
            pools = {"default": {"executor": "worker", "targets": "calls"}}
            json.dump(synthesize(tmp_path_factory.mktemp("aws"), {"pools": pools})[2], file)
            file.flush()
        found: Template = json.loads(shared.read_text())
    return found


@pytest.fixture
def explorer(
    flow: Flow,
    stack_of_tests: Deployment,
    clock: TravelClock,
    template: Template,
    monkeypatch: pytest.MonkeyPatch,
) -> Explorer:
    compares_states = LONG or _has_kills(flow)
    explorer = Explorer(flow, stack_of_tests, clock, compares_states=compares_states)
    permissions = Permissions(template)
    with monkeypatch.context() as patch:
        patch.setattr(Process, "begin", permissions.recording(Process.begin))
        assert explorer.calls
    permissions.check()
    return explorer


def _has_kills(flow: Flow) -> bool:
    """Whether the short run kills the processes of *flow*; otherwise it has faults."""
    return bool(_number(flow) % KINDS)


@pytest.fixture
def report(flow: Flow, record_property: Callable[[str, object], None]) -> Report:
    def report(family: str, findings: Findings) -> None:
        sites = sorted({call.site for call in findings.calls})
        counts = findings.points, findings.played, len(findings.failures)
        record_property(PROPERTY, [flow.name, family, sites, len(findings.calls), *counts])
        assert findings.played
        assert not findings.failures, findings.summary()

    return report


@each_flow
def test_the_system_survives_a_death_or_fault_at_any_call(
    flow: Flow, explorer: Explorer, report: Report
) -> None:
    if LONG:
        report("kills", explorer.explore_kills())
        report("faults", explorer.explore_faults())
    elif _has_kills(flow):
        report("kills", explorer.sample_kills(of=KILLS))
    else:
        report("faults", explorer.explore_faults(of=FAULTS))


@pytest.mark.skipif(not LONG, reason="minutes: make test-long")
@each_flow
def test_the_system_survives_two_deaths(explorer: Explorer, report: Report) -> None:
    report("pairs", explorer.explore_pairs(of=FIRST_DEATHS))
