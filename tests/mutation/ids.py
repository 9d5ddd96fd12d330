"""Mutants of ids: each interpolated part removed, or made constant.

An f-string without a space is an id or a part of one (a name, key or path); texts for people have
spaces. A constant part keeps its form (1 for each letter and digit), so that the result still
parses as an id.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.mutation.source import Module, Mutant, Product

KIND = "id"
_SAME = "__import__('re').sub('[0-9A-Za-z]', '1', {})"


def mutants(product: Product) -> Iterator[Mutant]:
    """Every part of every id."""
    joining = {name for module in product.modules for name in _joining(module)}
    for module in product.modules:
        for node in module.nodes:
            if isinstance(node, ast.JoinedStr) and _is_id(module, node):
                yield from _parts(product, module, node)
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in joining:
                    yield from _arguments(product, module, node)


def _is_id(module: Module, node: ast.JoinedStr) -> bool:
    texts = [str(v.value) for v in node.values if isinstance(v, ast.Constant)]
    inside = any(isinstance(each, ast.Raise | ast.FormattedValue) for each in module.above(node))
    return not inside and not any(char.isspace() for text in texts for char in text)


def _parts(product: Product, module: Module, node: ast.JoinedStr) -> Iterator[Mutant]:
    for index, part in enumerate(node.values):
        if not isinstance(part, ast.FormattedValue):
            continue
        shown = f"{{{ast.unparse(part.value)}}} in {module.text(node)}"
        rest = [*node.values[:index], *node.values[index + 1 :]]
        yield product.mutant(KIND, module, node, _concatenated(rest), f"without {shown}")
        same = [*map(_piece, node.values)]
        same[index] = _SAME.format(same[index])
        yield product.mutant(
            KIND, module, node, f"({' + '.join(same)})", f"the same for all: {shown}"
        )


def _concatenated(parts: list[ast.expr]) -> str:
    return f"({' + '.join(map(_piece, parts)) or repr('')})"


def _piece(part: ast.expr) -> str:
    """An expression for the text that *part* of an f-string adds."""
    if not isinstance(part, ast.FormattedValue):
        return ast.unparse(part)
    convert = {-1: "", ord("r"): "repr", ord("s"): "str", ord("a"): "ascii"}[part.conversion]
    spec = (
        _concatenated(part.format_spec.values)
        if isinstance(part.format_spec, ast.JoinedStr)
        else "''"
    )
    return f"format({convert}({ast.unparse(part.value)}), {spec})"


def _joining(module: Module) -> Iterator[str]:
    """Functions that join all their arguments into one text."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef) and node.args.vararg is not None:
            name = node.args.vararg.arg
            for each in ast.walk(node):
                match each:
                    case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Name(id=used)]) if (
                        used == name
                    ):
                        yield node.name


def _arguments(product: Product, module: Module, call: ast.Call) -> Iterator[Mutant]:
    texts = [module.text(each) for each in call.args]
    for index, text in enumerate(texts):
        rest = ", ".join([*texts[:index], *texts[index + 1 :]])
        changed = f"{module.text(call.func)}({rest})"
        yield product.mutant(KIND, module, call, changed, f"without {text} in {module.text(call)}")
