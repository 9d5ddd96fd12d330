"""That the fakes are honest: every port has a contract suite, every suite runs on the fake and on
all that plays its service, and where something is let off, that stands on the list of deviations
and is held to it elsewhere.
"""

from __future__ import annotations

import ast
import importlib
import inspect
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
    MEMORY,
    Deviation,
    parameters_of,
)

SUITES = sorted(Path(__file__).parent.glob("test_contract_*.py"))
WITHOUT_A_SUITE = {
    "JobRole": "it has no fake; tests/integration/test_job_role.py holds its adapter to it",
    "Supervisor": "a use case implements it; tests/unit/test_execute_run.py holds that to it",
}
LET_OFF = re.compile(r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)\b")


def is_port(thing: object) -> bool:
    return inspect.isclass(thing) and Protocol in thing.__bases__


PORTS = {name: port for name, port in vars(ports).items() if is_port(port) and name != "Protocol"}


def module(suite: Path) -> ModuleType:
    return importlib.import_module(f"tests.integration.{suite.stem}")


def suites_of(port: object) -> list[Path]:
    return [suite for suite in SUITES if port in module(suite).CONTRACT_OF]


def names_in(suite: Path) -> set[str]:
    """What *suite* names: variables, classes, attributes."""
    tree = ast.walk(ast.parse(suite.read_text()))
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
def test_no_suite_lets_anything_off_by_itself(suite: Path) -> None:
    assert not LET_OFF.search(suite.read_text()), "name a Deviation, which says why"


def test_a_deviation_is_named_once() -> None:
    names = [deviation.name for deviation in DEVIATIONS]

    assert len(names) == len(set(names))


@dataclass(slots=True)
class Case:
    """A test with its other parameters: the backends it runs on, and where it is let off."""

    backends: set[str] = field(default_factory=set)
    deviations: set[Deviation] = field(default_factory=set)

    @property
    def passes_on(self) -> set[str]:
        return self.backends - {deviation.backend for deviation in self.deviations} - {MEMORY}


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Mapping[tuple[object, ...], Case]:
    """The cases of all suites that have backends, as pytest has collected them."""
    collected = request.config.stash[COLLECTED]
    if not {item.path for item in collected} >= set(SUITES):
        pytest.skip("needs all contract suites: run tests/integration")
    found: defaultdict[tuple[object, ...], Case] = defaultdict(Case)
    for item in collected:
        if item.path in SUITES and "backend" in (parameters := parameters_of(item)):
            others = sorted((k, repr(v)) for k, v in parameters.items() if k != "backend")
            case = found[item.path.stem, item.originalname, *others]
            case.backends.add(parameters["backend"])
            case.deviations |= {mark.args[0] for mark in item.iter_markers("deviates")}
    return found


def test_a_case_runs_on_all_that_plays_its_service(
    cases: Mapping[tuple[object, ...], Case],
) -> None:
    assert {frozenset(case.backends - {MEMORY}) for case in cases.values()} == {
        frozenset(DYNAMODB),
        frozenset(AWS),
    }


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


def test_what_one_backend_does_not_show_another_does(
    cases: Mapping[tuple[object, ...], Case],
) -> None:
    uncovered = {key: case.deviations for key, case in cases.items() if not case.passes_on}

    assert {
        key for key, deviations in uncovered.items() if not all(d.uncovered for d in deviations)
    } == set()
    assert {d for deviations in uncovered.values() for d in deviations} == {
        d for d in DEVIATIONS if d.uncovered
    }
