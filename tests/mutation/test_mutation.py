"""The harness finds guards in new code, changes only these, and reports survivors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.mutation import running
from tests.mutation.children import LOG, ChildError, fan_out
from tests.mutation.conditions import clauses
from tests.mutation.derive import FOLDERS, derived
from tests.mutation.equivalents import EQUIVALENTS, Equivalent, split_equivalents
from tests.mutation.ledger import Ledger
from tests.mutation.source import Module, Mutant, Product
from tests.mutation.trial import in_order, within

ROOT = Path(__file__).parents[2]
PORTS = """
class RunStore(Protocol):
    def advance(self, run): ...
class DueStore(Protocol):
    def put(self, entries): ...
    def read(self, minute, *, consistent): ...
class Adapter:
    def advance(self, run):
        self._client.update_item(Key=run, ConditionExpression="fence = :fence AND beat = :beat")
class Due:
    def put(self, entries):
        return self._client.batch_write_item(entries)
    def read(self, minute, *, consistent):
        while True:
            page = self._client.query(minute, ConsistentRead=True)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
"""
USE_CASE = """
class Retry:
    def __init__(self, runs: RunStore, due: DueStore):
        self._runs = runs
        self._due = due
    def retry(self, run, entry):
        if not self._due.put([entry]):
            raise UnavailableError
        note = f"run {run.uid} again"
        self._runs.advance(f"{run.uid}#{run.dispatch:03d}")
        if run.fence == 1 and run.mine:
            return max(run.epoch + 1, 5)
        return note
"""
SAMPLE = Product([Module("ports.py", PORTS.encode()), Module("use_case.py", USE_CASE.encode())])
SOURCES = {module.path: module.source.decode() for module in SAMPLE.modules}


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


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    return derived(SAMPLE)


def one(mutants: list[Mutant], kind: str, change: str) -> Mutant:
    [found] = [each for each in mutants if each.kind == kind and each.change.startswith(change)]
    return found


def lines_changed(mutant: Mutant) -> list[tuple[str, str]]:
    """The changed lines, before and after, of a mutant that keeps the number of lines."""
    before = SOURCES[mutant.path]
    after = mutant.applied(before.encode()).decode()
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return [(a.strip(), b.strip()) for a, b in pairs if a != b]


def test_each_clause_of_a_condition_is_found_and_replaced_by_what_is_always_true(
    mutants: list[Mutant],
) -> None:
    [(before, after)] = lines_changed(one(mutants, "condition", "without beat"))
    assert '"fence = :fence AND beat = :beat"' in before
    assert "'fence = :fence AND (beat = :beat OR NOT beat = :beat)'" in after
    one(mutants, "condition", "without fence")
    one(mutants, "condition", "no condition")


def test_a_condition_is_found_through_variables_parameters_and_joins() -> None:
    source = b"""
FREE = "absent OR (a = :a AND b = :b)"
def change(self, condition):
    self._client.put_item(ConditionExpression=condition)
def advance(self):
    condition = "c = :c"
    condition += " AND d = :d"
    self.change(condition=condition)
    self.change(condition=FREE)
def unchanged(fields):
    tests = [f"#{name} = :{name}" for name in fields]
    return {"ConditionExpression": " AND ".join(["there", *tests])}
"""
    found = derived(Product([Module("store.py", source)]))
    changes = {each.change for each in found if each.kind == "condition"}
    assert {f"without {each}" for each in ("absent", "a = :a", "b = :b", "d = :d")} <= changes
    assert {"without (a = :a AND b = :b)", "without there"} <= changes
    assert {"without #{name} = :{name}", 'no condition "c = :c"', "no condition FREE"} & changes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = :a", [("a = :a", "AND")]),
        ("a OR b", [("a", "OR"), ("b", "OR")]),
        (" AND a", [("a", "AND")]),
        (
            "a OR (b AND f(c))",
            [("a", "OR"), ("(b AND f(c))", "OR"), ("b", "AND"), ("f(c)", "AND")],
        ),
    ],
)
def test_clauses(text: str, found: list[tuple[str, str]]) -> None:
    assert [(text[start:end], word) for start, end, word in clauses(text)] == found


def test_each_part_of_an_id_is_mutated_but_not_texts_for_people(mutants: list[Mutant]) -> None:
    ids = [each for each in mutants if each.kind == "id"]
    assert {each.change.partition(" in ")[0] for each in ids} == {
        *("without {run.uid}", "without {run.dispatch}"),
        *("the same for all: {run.uid}", "the same for all: {run.dispatch}"),
    }
    [(_, after)] = lines_changed(one(ids, "id", "without {run.uid}"))
    assert "('#' + format((run.dispatch), ('03d')))" in after


def test_two_writes_are_swapped_with_what_guards_them(mutants: list[Mutant]) -> None:
    mutant = one(mutants, "order", "first self._runs.advance")
    after = mutant.applied(USE_CASE.encode()).decode()
    assert after.index("self._runs.advance(") < after.index("self._due.put(")
    assert sorted(after.split()) == sorted(USE_CASE.split())


def test_the_result_of_a_write_is_ignored(mutants: list[Mutant]) -> None:
    [(before, after)] = lines_changed(one(mutants, "answer", "False for not self._due.put"))
    assert before == "if not self._due.put([entry]):"
    assert after == "if ((not self._due.put([entry])), False)[1]:"


def test_a_loop_over_pages_ends_after_the_first(mutants: list[Mutant]) -> None:
    page = one(mutants, "page", "True for")
    assert lines_changed(page) == [('if "LastEvaluatedKey" not in page:', "if True:")]
    after = one(mutants, "page", "one round of while").applied(PORTS.encode()).decode()
    assert after.split() == [*PORTS.split(), "break"]


def test_a_check_is_removed_from_its_expression(mutants: list[Mutant]) -> None:
    fence = one(mutants, "check", "True for run.fence == 1")
    assert lines_changed(fence) == [("if run.fence == 1 and run.mine:", "if True and run.mine:")]
    step = one(mutants, "check", "run.epoch + 0")
    assert lines_changed(step)[0][1] == "return max((run.epoch + 0), 5)"
    one(mutants, "check", "5 for max")


def test_a_consistent_read_is_made_eventually_consistent(mutants: list[Mutant]) -> None:
    [(_, after)] = lines_changed(one(mutants, "read", "not ConsistentRead"))
    assert "ConsistentRead=False" in after


def test_every_mutant_reads_as_python_and_differs(mutants: list[Mutant]) -> None:
    for each in mutants:
        after = each.applied(SOURCES[each.path].encode()).decode()
        compile(after, each.path, "exec")
        assert after != SOURCES[each.path], each.name


def test_every_kind_is_found_in_the_code_itself_and_no_two_are_named_alike() -> None:
    found = derived(Product.read(ROOT, FOLDERS))
    kinds = Counter(each.kind for each in found)
    assert set(kinds) == {"answer", "check", "condition", "id", "order", "page", "read"}
    assert max(Counter(each.name for each in found).values()) == 1
    assert not split_equivalents(found)[2], "equivalents that match no mutant"


def test_equal_mutants_of_a_function_are_numbered() -> None:
    source = b"def f(run):\n    return g(run.fence + 1, run.fence + 1)\n"
    found = derived(Product([Module("twice.py", source)]))
    assert [each.change for each in found] == [
        "run.fence + 0 for run.fence + 1",
        "run.fence + 0 for run.fence + 1 (number 2)",
    ]


def test_killers_are_kept_in_the_ledger(mutants: list[Mutant], tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    killed, survived, untried = mutants[:3]
    Ledger(file).keep(survived, None)
    Ledger(file).keep(killed, None)
    Ledger(file).keep(killed, "tests/unit/test_run.py::test")
    ledger = Ledger(file)
    assert ledger.killer(killed) == "tests/unit/test_run.py::test"
    assert ledger.near(survived) == [ledger.killer(killed)]
    assert [each for each in (killed, survived, untried) if ledger.survived(each)] == [survived]


def test_a_verdict_is_valid_while_its_function_is_unchanged(
    mutants: list[Mutant], tmp_path: Path
) -> None:
    Ledger(tmp_path / "ledger.jsonl").keep(mutants[0], "tests/unit/test_run.py::test")

    def kept(ports: str) -> list[str | None]:
        product = Product([Module("ports.py", ports.encode()), *SAMPLE.modules[1:]])
        alike = [each for each in derived(product) if each.name == mutants[0].name]
        return [Ledger(tmp_path / "ledger.jsonl").still(each) for each in alike]

    assert kept("# new" + PORTS) == ["tests/unit/test_run.py::test"]
    assert kept(PORTS.replace("Key=run", "Key=run.key")) == [None]


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


def test_a_child_that_fails_ends_all_since_it_is_no_verdict(tmp_path: Path) -> None:
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
