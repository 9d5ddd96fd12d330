"""Verdicts: killed, survived or equivalent; kept in a ledger; a child that fails gives none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.mutation import running
from tests.mutation.children import LOG, ChildError, fan_out
from tests.mutation.conftest import ROOT
from tests.mutation.equivalents import EQUIVALENTS, Equivalent, split_equivalents
from tests.mutation.imports import imports, with_helpers
from tests.mutation.source import Mutant
from tests.mutation.trial import in_order, within

GUARDED = """
def may_work(run):
    return run.fence == 1

def may_end(run):
    return run.fence == 1

POOL = "fast"
QUEUE = f"{POOL}-queue"

def queue():
    return QUEUE
"""
TESTS_OF_GUARDED = """
from types import SimpleNamespace
from nextfire.guarded import may_end, may_work, queue

def test_work():
    assert may_work(SimpleNamespace(fence=1))
    assert not may_work(SimpleNamespace(fence=2))

def test_end():
    assert may_end(SimpleNamespace(fence=1))

def test_queue():
    assert queue() == "fast-queue"
"""
CONFTEST = "import hypothesis; hypothesis.settings.register_profile('nextfire')"
TRIES = """
from pathlib import Path
import json, sys
from tests.mutation.derive import FOLDERS, derived
from tests.mutation.ledger import Ledger
from tests.mutation.meeting import CoverageCache
from tests.mutation.source import Product
from tests.mutation.trial import Plan, tried

folder = Path(sys.argv[1])
product = Product.read(folder, FOLDERS)
mutants = derived(product)
sources = {each.path: each.source for each in product.modules}
kept, ledger = CoverageCache(folder, folder / "kept"), Ledger(folder / "ledger")
found = tried(Plan(sources, mutants, [folder], kept, ledger, lambda text: None))
print(json.dumps([[mutants[n].where, mutants[n].change, found[n].killer] for n in sorted(found)]))
"""


def test_a_tested_guard_is_killed_and_an_untested_one_survives(
    tmp_path: Path,
) -> None:
    for name, text in {
        "layers/nextfire/__init__.py": "",  # otherwise an installed package takes precedence
        "layers/nextfire/guarded.py": GUARDED,
        "tests/unit/test_guarded.py": TESTS_OF_GUARDED,
        "tests/conftest.py": CONFTEST,
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['layers']\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    done = subprocess.run(
        [sys.executable, "-c", TRIES, str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )

    tests = "tests/unit/test_guarded.py::"
    assert json.loads(done.stdout) == [
        ["may_work", "False for run.fence == 1", f"{tests}test_work"],
        ["may_work", "True for run.fence == 1", f"{tests}test_work"],
        ["may_end", "False for run.fence == 1", f"{tests}test_end"],
        ["may_end", "True for run.fence == 1", None],
        ["QUEUE", 'the same for all: {POOL} in f"{POOL}-queue"', f"{tests}test_queue"],
        ["QUEUE", 'without {POOL} in f"{POOL}-queue"', f"{tests}test_queue"],
    ]


def test_equivalents_match_by_change_and_unused_entries_are_reported(
    mutants: list[Mutant],
) -> None:
    known = [
        Equivalent("use_case.py", "Retry.retry", "5 for max…", "for the test"),
        Equivalent("use_case.py", "Retry.retry", "True for run.gone", "for the test"),
    ]
    to_try, equivalent, unused = split_equivalents(mutants, known)
    assert [each.change for each in equivalent] == ["5 for max(run.epoch + 1, 5)"]
    assert len(to_try) == len(mutants) - 1
    assert unused == known[1:]


def test_every_entry_has_a_reason() -> None:
    assert all(each.reason for each in EQUIVALENTS)


def test_the_module_s_own_tests_come_first_then_one_case_of_each_and_histories_always() -> None:
    own = "tests/unit/test_lease.py::test_slow"
    near = [f"tests/unit/test_near.py::test_{n}" for n in range(3)]
    others = [f"tests/unit/test_file{n}.py::test[{case}]" for n in range(200) for case in "ab"]
    histories = [f"tests/simulation/test_any.py::test_history[{seed}]" for seed in range(300)]
    met = [*near, *others, own, *histories]
    seconds = dict.fromkeys(met, 0.1) | {own: 5.0} | dict.fromkeys(histories, 20.0)

    chosen = in_order(met, seconds, "lease")

    assert chosen[:4] == [own, *near]
    assert {*others[::2], *histories} <= {*chosen[: 4 + 201], *chosen[4 + 201 + 150 :]}
    assert len(chosen) == 4 + 201 + 150 + 299
    assert sorted(in_order(met, seconds, "lease", thorough=True)) == sorted(met)


def test_a_test_file_imports_what_the_helpers_in_its_folder_import(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unit" / "leases"
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text("from nextfire.domain.lease import Lease\n")
    (folder / "test_own.py").write_text("from tests.unit.leases.conftest import lease\n")
    (folder / "test_other.py").write_text("import json\n")
    files = [f"tests/unit/leases/test_{name}.py" for name in ("own", "other")]

    module = {"layers/nextfire/domain/lease.py"}

    assert [imports(with_helpers(tmp_path, file), module) for file in files] == [True, False]


def test_the_first_tests_within_a_time_are_one_at_least() -> None:
    seconds = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert within(["a", "b", "c"], seconds, 3.0) == ["a", "b"]
    assert within(["c", "a"], seconds, 2.0) == ["c"]
    assert within([], seconds, 2.0) == []


def test_children_answer_or_are_ended(tmp_path: Path) -> None:
    def work(task: str, _: Path) -> str:
        while task == "never ends":
            pass
        if task == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return task.upper()

    limits = {"never ends": 0.5}
    outcomes = fan_out(
        ["answers", "is killed", "never ends"],
        work,
        [tmp_path],
        limit=lambda task: limits.get(task, 60),
    )

    assert {each.task: each.answer for each in outcomes} == {
        "answers": "ANSWERS",
        "is killed": None,
        "never ends": None,
    }


def test_a_child_that_fails_ends_all_without_a_verdict(tmp_path: Path) -> None:
    def work(_task: int, _folder: Path) -> None:
        raise ZeroDivisionError

    with pytest.raises(ChildError, match=r"child\.log"):
        list(fan_out([1], work, [tmp_path], limit=lambda _: 60))
    assert "ZeroDivisionError" in (tmp_path / LOG).read_text()


def test_an_error_inside_pytest_counts_as_a_failure() -> None:
    def protocol(**_: object) -> None:
        raise TypeError("tb_lineno is None")

    hook = SimpleNamespace(pytest_runtest_protocol=protocol)
    items = {name: SimpleNamespace(nodeid=name, config=SimpleNamespace(hook=hook)) for name in "ab"}
    tests = running.Tests(lambda _: None, _items=cast("dict[str, pytest.Item]", items))
    tests.run(["a", "b"], stop=True)
    assert tests.red == ["a"]


def test_a_file_whose_tests_execute_no_product_code_can_be_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(of=lambda _path: [], run=lambda *_, **__: None, seconds={}, red=[])
    monkeypatch.chdir(tmp_path)

    found = running.traced(cast("running.Tests", nothing), "tests/unit/test_prices.py")

    assert found == {"tests": [], "red": [], "lines": {}}
