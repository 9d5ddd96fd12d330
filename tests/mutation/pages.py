"""Mutants of paging: further pages ignored, and loops that end after their first iteration."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.mutation.source import Module, Mutant, Product, names_in

KIND = "page"
_MORE = {"LastEvaluatedKey", "NextToken", "UnprocessedKeys", "UnprocessedItems", "Failed"}
_PLACE = {"cursor", "after"}
_ASKED = re.compile(r"\b(read|between|scan|list|paginate|pages?|attempts|map)\(")


def mutants(product: Product) -> Iterator[Mutant]:
    """Every place that continues with a next page, and every loop over pages or with `while`."""
    for module in product.modules:
        for node in module.nodes:
            match node:
                case ast.Constant(value=str(word)) if word in _MORE:
                    yield from _nothing_more(product, module, node)
                case ast.While():
                    yield from _one_round(product, module, node)
                case ast.For(iter=iterated) if _ASKED.search(module.text(iterated)):
                    yield from _first(product, module, iterated)
                case ast.Call(func=ast.Name(id="chunks")):
                    yield product.mutant(
                        KIND,
                        module,
                        node,
                        f"{module.text(node)}[:1]",
                        f"only the first of {module.text(node)}",
                    )
        for function in module.nodes:
            if isinstance(function, ast.FunctionDef):
                yield from _places(product, module, function)


def _nothing_more(product: Product, module: Module, node: ast.Constant) -> Iterator[Mutant]:
    """The answer does not indicate that there is more."""
    whole = module.parent(node)
    match whole:
        case ast.Compare(ops=[ast.In() | ast.NotIn() as op]):
            text = "True" if isinstance(op, ast.NotIn) else "False"
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, default]):
            text = module.text(default)
        case ast.Call(func=ast.Attribute(attr="get"), args=[_]):
            text = "None"
        case ast.Subscript(ctx=ast.Load()) if not isinstance(module.parent(whole), ast.Assign):
            text = "{}"
        case _:
            return
    yield product.mutant(KIND, module, whole, text, f"{text} for {module.text(whole)}")


def _one_round(product: Product, module: Module, loop: ast.While) -> Iterator[Mutant]:
    if isinstance(loop.body[-1], ast.Return | ast.Raise | ast.Break):
        return
    end = module.span(loop.body[-1])[1]
    text = "\n" + " " * loop.body[0].col_offset + "break"
    change = f"one round of while {module.text(loop.test)}"
    yield product.mutant_of_span(KIND, module, loop.test, (end, end), text, change)


def _first(product: Product, module: Module, iterated: ast.expr) -> Iterator[Mutant]:
    text = module.text(iterated)
    changed = f"__import__('itertools').islice({text}, 1)"
    yield product.mutant(KIND, module, iterated, changed, f"only the first of {text}")


def _places(product: Product, module: Module, function: ast.FunctionDef) -> Iterator[Mutant]:
    """The position to continue from is ignored or not returned."""
    places = set(_PLACE)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Constant) and each.value in _MORE for each in ast.walk(node.value)
        ):
            places |= {name for target in node.targets for name in names_in(target, ast.Store)}
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp) and names_in(node.test, ast.Load) & places:
            text = module.text(node.test)
            yield product.mutant(KIND, module, node.test, "(False)", f"False for {text}")
