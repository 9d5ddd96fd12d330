"""Mutants of checks of ids, versions and states: comparisons, increments and maxima removed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.mutation.source import Module, Mutant, Product

KIND = "check"
NAMES = frozenset(
    {
        *("uid", "version", "schedule_version", "revision", "fence", "epoch", "beat", "dispatch"),
        *("claim_token", "lease_until", "not_before", "state", "buried", "cancel_requested"),
        # Derived from these: properties and return values.
        *("ended", "tries", "taken", "released", "attempt_base", "holder", "covers_until"),
    }
)
_EXCEPT = tuple(
    f"layers/nextfire/domain/{name}.py"
    for name in (
        "cron",
        "cron_calendar",
        "jitter",
        "preview",
        "recurrence",
        "schedule",
        "schedule_text",
        "stretch",
        "wall_clock",
    )
)
_NEUTRAL = {ast.And: "True", ast.Or: "False"}


def mutants(product: Product) -> Iterator[Mutant]:
    """Everything that compares, or depends on, one of `NAMES`."""
    for module in product.modules:
        if module.path in _EXCEPT:
            continue
        for node in module.nodes:
            if isinstance(node, ast.BoolOp):
                yield from _operands(product, module, node)
            yield from _tests(product, module, node)
            if isinstance(node, ast.Compare) and _mentions_names(node):
                yield from _parts(product, module, node)
                if _is_answer(module, node):
                    yield from _both(product, module, node)
            if isinstance(node, ast.Call) and _mentions_names(node):
                yield from _greater(product, module, node)
            if isinstance(node, ast.BinOp) and _mentions_names(node.left):
                yield from _steps(product, module, node)


def _mentions_names(node: ast.AST) -> bool:
    """Whether *node* mentions one of `NAMES`."""
    return any(
        (isinstance(each, ast.Attribute) and each.attr.lstrip("_") in NAMES)
        or (isinstance(each, ast.Name) and each.id.lstrip("_") in NAMES)
        for each in ast.walk(node)
    )


def _operands(product: Product, module: Module, node: ast.BoolOp) -> Iterator[Mutant]:
    neutral = _NEUTRAL[type(node.op)]
    for value in node.values:
        if _mentions_names(value) and _decides(value):
            text = f"{neutral} for {module.text(value)} in {module.text(node)}"
            yield product.mutant(KIND, module, value, neutral, text)


def _decides(value: ast.expr) -> bool:
    """Whether *value* is a condition, not a value followed by a fallback."""
    atom = value.operand if isinstance(value, ast.UnaryOp) else value
    return isinstance(atom, ast.Compare | ast.BoolOp | ast.Attribute | ast.Call)


def _tests(product: Product, module: Module, node: ast.AST) -> Iterator[Mutant]:
    tests: list[ast.expr] = []
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            tests = [test]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            tests = [test for each in node.generators for test in each.ifs]
        case ast.Match(cases=cases):
            tests = [each.guard for each in cases if each.guard is not None]
    for test in tests:
        if not _mentions_names(test):
            continue
        if isinstance(test, ast.BoolOp):
            yield _replaced(product, module, test, "False")
        else:
            yield from _both(product, module, test)


def _is_answer(module: Module, node: ast.Compare) -> bool:
    """Whether *node* is not part of a test: it is returned, stored or passed on."""
    parent = module.parent(node)
    if isinstance(parent, ast.UnaryOp):
        parent = module.parent(parent)
    tests = ast.BoolOp | ast.If | ast.IfExp | ast.While | ast.comprehension | ast.match_case
    return not isinstance(parent, tests | ast.Assert)


def _both(product: Product, module: Module, node: ast.expr) -> Iterator[Mutant]:
    for outcome in ("False", "True"):
        yield _replaced(product, module, node, outcome)


def _replaced(product: Product, module: Module, node: ast.expr, outcome: str) -> Mutant:
    return product.mutant(KIND, module, node, outcome, f"{outcome} for {module.text(node)}")


def _parts(product: Product, module: Module, node: ast.Compare) -> Iterator[Mutant]:
    """Remove one of several compared values."""
    [right, *more] = node.comparators
    if more:
        return
    left = node.left
    sides: list[ast.Tuple | ast.Set]
    match node.ops[0]:
        case ast.Eq() | ast.NotEq() if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple):
            sides = [left, right]
        case ast.In() | ast.NotIn() if isinstance(right, ast.Tuple | ast.Set):
            sides = [right]
        case _:
            return
    for index, each in enumerate(sides[0].elts):
        text = module.text(node)
        offset = module.span(node)[0]
        data = text.encode()
        for side in reversed(sides):
            rest = [module.text(e) for i, e in enumerate(side.elts) if i != index]
            start, end = (at - offset for at in module.span(side))
            data = data[:start] + f"({', '.join(rest)},)".encode() + data[end:]
        change = f"without {module.text(each)} in {text}"
        yield product.mutant(KIND, module, node, data.decode(), change)


def _greater(product: Product, module: Module, node: ast.Call) -> Iterator[Mutant]:
    """`max(a, b)`: only one of them."""
    match node:
        case ast.Call(func=ast.Name(id="max" | "min"), args=[a, b]):
            for each in (a, b):
                change = f"{module.text(each)} for {module.text(node)}"
                yield product.mutant(KIND, module, node, f"({module.text(each)})", change)


def _steps(product: Product, module: Module, node: ast.BinOp) -> Iterator[Mutant]:
    """`n + 2`: one less."""
    match node:
        case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int(step))):
            left = module.text(node.left)
            changed = f"({left} + {step - 1})"
            yield product.mutant(
                KIND, module, node, changed, f"{left} + {step - 1} for {module.text(node)}"
            )
