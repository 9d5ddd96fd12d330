"""The harness finds guards in new code, and changes only these."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutation.at_import import TESTS, covering
from tests.mutation.conditions import clauses
from tests.mutation.conftest import PORTS, ROOT, SAMPLE, SOURCES, USE_CASE
from tests.mutation.derive import FOLDERS, derived
from tests.mutation.equivalents import split_equivalents
from tests.mutation.ledger import Ledger
from tests.mutation.source import Module, Mutant, Product


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


def test_the_tests_of_what_runs_at_import_exist() -> None:
    for beginning, files in TESTS.items():
        assert (ROOT / beginning).exists()
        assert {*covering(beginning, ROOT)} >= {*files}
