"""Mutants of the order of writes: two consecutive writes swapped, or a write's result ignored."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tests.mutation.source import Module, Mutant, Product, names_in
from tests.mutation.writers import Writers

ORDER, ANSWER = "order", "answer"


def mutants(product: Product) -> Iterator[Mutant]:
    """Every two consecutive writes of a block, and every test of a write's result."""
    writers = Writers(product)
    for module in product.modules:
        for node in [module.tree, *module.nodes]:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and not isinstance(node, ast.Module | ast.ClassDef):
                    yield from _swapped(product, module, writers, block)
            if isinstance(node, ast.BoolOp):
                yield from _operands(product, module, writers, node)
            if isinstance(node, ast.FunctionDef) and module.function(node) is None:
                yield from _answers(product, module, writers, node)


def _swapped(
    product: Product, module: Module, writers: Writers, block: list[ast.stmt]
) -> Iterator[Mutant]:
    writes = [
        index
        for index, each in enumerate(block)
        if not isinstance(each, ast.FunctionDef | ast.ClassDef) and writers.is_in(module, each)
    ]
    for first, second in pairwise(writes):
        bound = names_in(block[first], ast.Store)
        if any(bound & names_in(each, ast.Load) for each in block[first + 1 : second + 1]):
            continue  # the second write needs the first one's result
        texts = [module.text(each) for each in block[first : second + 1]]
        last = block[second]
        if isinstance(last, ast.Return) and last.value is not None:
            texts[-1] = f"_answer = {module.text(last.value)}"
            texts.append("return _answer")
            order = [*texts[1:-1], texts[0], texts[-1]]
        else:
            order = [*texts[1:], texts[0]]
        joined = ("\n" + " " * block[first].col_offset).join(order)
        span = module.span(block[first])[0], module.span(last)[1]
        change = f"first {_head(texts[second - first])}, then {_head(texts[0])}"
        mutant = product.mutant_of_span(ORDER, module, last, span, joined, change)
        # A caller that leaves after the first write does not reach the second, but would if the
        # order were swapped.
        met = {(module.path, line) for line in module.line_span(block[first])}
        yield replace(mutant, lines=mutant.lines | met)


def _operands(
    product: Product, module: Module, writers: Writers, node: ast.BoolOp
) -> Iterator[Mutant]:
    word = " and " if isinstance(node.op, ast.And) else " or "
    for index, (a, b) in enumerate(zip(node.values, node.values[1:], strict=False)):
        if writers.is_in(module, a) and writers.is_in(module, b):
            texts = [f"({module.text(each)})" for each in node.values]
            texts[index], texts[index + 1] = texts[index + 1], texts[index]
            yield product.mutant(
                ORDER, module, node, f"({word.join(texts)})", f"swapped: {module.text(node)}"
            )


def _answers(
    product: Product, module: Module, writers: Writers, function: ast.FunctionDef
) -> Iterator[Mutant]:
    answers = _results_of_writes(module, writers, function)
    for node in ast.walk(function):
        tests: list[ast.expr] = []
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                tests = [test]
            case ast.comprehension(ifs=ifs):
                tests = ifs
            case ast.match_case(guard=ast.expr() as guard):
                tests = [guard]
        for test in tests:
            if names_in(test, ast.Load) & answers or writers.is_in(module, test):
                text = module.text(test)
                for outcome in ("False", "True"):
                    if isinstance(node, ast.While) and outcome == "True":
                        continue  # would be an endless loop
                    yield product.mutant(
                        ANSWER, module, test, f"(({text}), {outcome})[1]", f"{outcome} for {text}"
                    )


def _results_of_writes(module: Module, writers: Writers, function: ast.FunctionDef) -> set[str]:
    """The variables that hold a write's result, or something derived from it."""
    answers: set[str] = set()
    while True:
        before = len(answers)
        for node in ast.walk(function):
            match node:
                case (
                    ast.Assign(value=value)
                    | ast.AugAssign(value=value)
                    | ast.NamedExpr(value=value)
                    | ast.For(iter=value)
                    | ast.comprehension(iter=value)
                ) if writers.is_in(module, value) or names_in(value, ast.Load) & answers:
                    targets = [
                        target
                        for field, child in ast.iter_fields(node)
                        if field in {"targets", "target"}
                        for target in (child if isinstance(child, list) else [child])
                    ]
                    answers |= {n for each in targets for n in names_in(each, ast.Store)}
                case ast.Try(body=body, handlers=handlers) if any(
                    writers.is_in(module, each) for each in body
                ):
                    answers |= {each.name for each in handlers if each.name}
        if len(answers) == before:
            return answers


def _head(text: str) -> str:
    return " ".join(text.split())
