"""Checks that the fakes are faithful: every port has a contract suite, and every suite runs on the
fake and on all emulators of its service. Every exemption is a listed deviation, and another backend
covers it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

from nextfire.domain import ports
from tests import fakes
from tests.integration.backends import (
    AWS,
    COLLECTED,
    DEVIATIONS,
    DYNAMODB,
    LOCAL,
    MEMORY,
    SQS,
    Deviation,
    parameters_of,
    server_of,
)

SUITES = sorted(Path(__file__).parent.glob("test_contract_*"))
"""A suite is a file; or a folder, whose `conftest.py` says of what."""
WITHOUT_A_SUITE = {
    "JobRole": "it has no fake; tests/integration/test_job_role.py tests its adapter",
    "FifoDelivery": "it is a `Delivery` with an id and a group",
    "Inbox": "tests/integration/test_contract_run_queue receives through its adapter",
    "ServiceClock": "it has no separate fake; tests/integration/test_service_clock.py",
    "TaskProtection": "it has no fake; tests/integration/test_task_protection.py",
    "TaskDeployment": "it has no fake; tests/integration/test_ecs_deployment.py",
    "Notices": "Telemetry is its adapter: tests/unit/test_telemetry.py",
    "Waker": "it has no fake; tests/integration/test_wakers.py tests its adapters",
    "RunControl": "a use case implements it; tests/unit/test_calls_executed.py tests that",
    "TargetRunner": "each kind of target implements it; tests/unit/test_calls_executed.py",
    "Supervisor": "a use case implements it; tests/unit/test_lost_workers.py tests that",
}
NOT_ON_ONE_MACHINE = {
    "test_contract_audit_log",  # the embedded stack has no audit chain
    "test_contract_overview",  # there an index of the runs answers: test_contract_run_overview.py
}
LET_OFF = re.compile(r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)\b")


def is_port(thing: object) -> bool:
    return inspect.isclass(thing) and Protocol in thing.__bases__


PORTS = {
    name: port
    for module in pkgutil.iter_modules(ports.__path__, f"{ports.__name__}.")
    for name, port in vars(importlib.import_module(module.name)).items()
    if is_port(port) and name != "Protocol"
}


def module(suite: Path) -> ModuleType:
    name = f"tests.integration.{suite.stem}"
    return importlib.import_module(f"{name}.conftest" if suite.is_dir() else name)


def source_of(suite: Path) -> str:
    files = sorted(suite.glob("*.py")) if suite.is_dir() else [suite]
    return "\n".join(file.read_text() for file in files)


def suites_of(port: object) -> list[Path]:
    return [suite for suite in SUITES if port in module(suite).CONTRACT_OF]


def names_in(suite: Path) -> set[str]:
    """The names in *suite*: variables, classes, attributes."""
    tree = ast.walk(ast.parse(source_of(suite)))
    return {getattr(node, "attr", getattr(node, "id", "")) for node in tree}


@pytest.mark.parametrize("name", PORTS)
def test_every_port_has_a_contract_suite(name: str) -> None:
    suites = suites_of(PORTS[name])

    assert len(suites) == (0 if name in WITHOUT_A_SUITE else 1)


@pytest.mark.parametrize("name", sorted(PORTS.keys() - WITHOUT_A_SUITE.keys()))
def test_a_contract_suite_calls_all_of_its_port_on_each_fake(name: str) -> None:
    (suite,) = suites_of(PORTS[name])
    methods = {each for each in vars(PORTS[name]) if not each.startswith("_")}
    implementations = {
        each.__name__
        for each in vars(fakes).values()
        if inspect.isclass(each) and (each.__doc__ or "").startswith(f"`{name}`")
    }

    assert implementations, f"its fake begins its docstring with `{name}`"
    assert names_in(suite) >= methods | implementations


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.stem)
def test_suites_exempt_cases_only_by_deviations(suite: Path) -> None:
    assert not LET_OFF.search(source_of(suite)), "use a Deviation, which gives the reason"


def test_a_deviation_is_named_once() -> None:
    names = [deviation.name for deviation in DEVIATIONS]

    assert len(names) == len(set(names))


def suite_of(item: pytest.Item) -> Path:
    """The suite that has *item*, or its file."""
    return item.path.parent if item.path.parent in SUITES else item.path


@dataclass(slots=True)
class Case:
    """A test with its other parameters: the backends it runs on, and its exemptions."""

    backends: set[str] = field(default_factory=set)
    deviations: set[Deviation] = field(default_factory=set)

    @property
    def passes_on(self) -> set[str]:
        deviating = {deviation.backend for deviation in self.deviations}
        passing = {each for each in self.backends if server_of(each) not in deviating}
        return passing - {MEMORY} - LOCAL


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Mapping[tuple[object, ...], Case]:
    """The cases of all suites that have backends, as collected by pytest."""
    collected = request.config.stash[COLLECTED]
    if not {suite_of(item) for item in collected} >= set(SUITES):
        pytest.skip("needs all contract suites: run tests/integration")
    found: defaultdict[tuple[object, ...], Case] = defaultdict(Case)
    for item in collected:
        suite = suite_of(item)
        if suite in SUITES and "backend" in (parameters := parameters_of(item)):
            others = sorted((k, repr(v)) for k, v in parameters.items() if k != "backend")
            case = found[suite.stem, item.originalname, *others]
            case.backends.add(parameters["backend"])
            case.deviations |= {mark.args[0] for mark in item.iter_markers("deviates")}
    return found


def test_a_case_runs_on_all_that_plays_its_service(
    cases: Mapping[tuple[object, ...], Case],
) -> None:
    assert {frozenset(case.backends - {MEMORY} - LOCAL) for case in cases.values()} == {
        frozenset(DYNAMODB),
        frozenset(SQS),
        frozenset(AWS),
    }


def test_a_case_of_the_fake_runs_on_the_stack_on_one_machine(
    cases: Mapping[tuple[object, ...], Case],
) -> None:
    by_fake = {key: case for key, case in cases.items() if MEMORY in case.backends}

    assert by_fake
    elsewhere = {key[0] for key, case in by_fake.items() if not case.backends & LOCAL}
    assert elsewhere == NOT_ON_ONE_MACHINE


def test_every_deviation_concerns_a_case_that_runs_there(
    cases: Mapping[tuple[object, ...], Case],
) -> None:
    named = {
        deviation
        for case in cases.values()
        for deviation in case.deviations
        if deviation.backend in case.backends
    }

    assert named == set(DEVIATIONS)


def test_cases_that_pass_nowhere_are_marked_uncovered(
    cases: Mapping[tuple[object, ...], Case],
) -> None:
    uncovered = {key: case.deviations for key, case in cases.items() if not case.passes_on}

    assert {
        key for key, deviations in uncovered.items() if not all(d.uncovered for d in deviations)
    } == set()
    assert {d for deviations in uncovered.values() for d in deviations} == {
        d for d in DEVIATIONS if d.uncovered
    }
