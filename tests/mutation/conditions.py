"""Mutants of the conditions of DynamoDB writes: each clause removed, and the whole condition.

A clause is replaced by one that is always true (in an alternative: never true) and uses the same
attributes and values: DynamoDB rejects a request with unused values, and every test would notice
that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.mutation.source import Module, Mutant, Product

KIND = "condition"
_SINK = "ConditionExpression"
_WORD = re.compile(r"\s(AND|OR)\s")


def mutants(product: Product) -> Iterator[Mutant]:
    """Every clause of every condition, and every condition."""
    for module in product.modules:
        seen: set[ast.AST] = set()
        for sink in _sinks(module):
            yield from _whole(product, module, sink)
            for source in _sources(module, sink, set()):
                if source is not sink:
                    yield from _whole(product, module, source)
                for leaf in _leaves(module, source):
                    if leaf not in seen:
                        seen.add(leaf)
                        yield from _clauses(product, module, leaf)


def _sinks(module: Module) -> Iterator[ast.expr]:
    """The expressions that are used as conditions."""
    for node in module.nodes:
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == _SINK:
                        yield value
            # The keyword of `RunUpdates.change`, which is in another module than its callers.
            case ast.keyword(arg="ConditionExpression" | "condition", value=value):
                yield value
            case ast.Assign(
                targets=[ast.Subscript(slice=ast.Constant(value="ConditionExpression"))],
                value=value,
            ):
                yield value


def _sources(
    module: Module, node: ast.expr, seen: set[tuple[ast.AST | None, str]]
) -> Iterator[ast.expr]:
    """The expressions that *node* may get its value from, through variables and parameters."""
    function = module.function(node)
    if not isinstance(node, ast.Name):
        yield node
        return
    if (function, node.id) in seen:
        return
    seen = {*seen, (function, node.id)}
    for each in ast.walk(function or module.tree):
        match each:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
            ) if name == node.id:
                yield from _sources(module, value, seen)
    for each in module.tree.body:
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == node.id:
                yield value
    if isinstance(function, ast.FunctionDef):
        for argument in _arguments(module, function, node.id):
            yield from _sources(module, argument, seen)


def _arguments(module: Module, function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """The keyword arguments for the parameter *name* in calls of *function*."""
    for node in module.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(attr=called) | ast.Name(id=called), keywords=keywords
            ) if called == function.name:
                yield from (each.value for each in keywords if each.arg == name)


def _leaves(module: Module, node: ast.expr) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The string literals that *node* is composed of."""
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            yield node
        case ast.BinOp(left=left, right=right):
            yield from _leaves(module, left)
            yield from _leaves(module, right)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _leaves(module, body)
            yield from _leaves(module, orelse)
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[things]):
            yield from _leaves(module, things)
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            for each in elts:
                yield from _leaves(module, each)
        case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
            yield from _leaves(module, elt)
        case ast.Starred(value=value):
            yield from _leaves(module, value)
        case ast.Name():
            for source in _sources(module, node, set()):
                yield from _leaves(module, source)


def _whole(product: Product, module: Module, node: ast.expr) -> Iterator[Mutant]:
    text = module.text(node)
    if isinstance(node, ast.Constant) and str(node.value).startswith(" "):
        return  # an appended part: its clause is removed separately
    always = f'(lambda c: f"({{c}}) OR NOT ({{c}})")({text})'
    if isinstance(node, ast.Constant) and not _WORD.search(str(node.value)):
        always = repr(_neutral(str(node.value), "AND"))
    yield product.mutant(KIND, module, node, always, f"no condition {text}")


def _clauses(
    product: Product, module: Module, leaf: ast.Constant | ast.JoinedStr
) -> Iterator[Mutant]:
    """Remove each clause of *leaf*."""
    if isinstance(leaf, ast.Constant):
        body, prefix, suffix = str(leaf.value), "", ""
    else:
        text = module.text(leaf)
        prefix, body, suffix = text[:2], text[2:-1], text[-1]
    only = not _WORD.search(body)
    if only and isinstance(leaf, ast.Constant) and not _is_part(module, leaf):
        return  # this is the whole condition, see `_whole`
    for start, end, word in clauses(body):
        clause = body[start:end]
        changed = body[:start] + _neutral(clause, word) + body[end:]
        new = repr(changed) if isinstance(leaf, ast.Constant) else prefix + changed + suffix
        yield product.mutant(KIND, module, leaf, new, f"without {clause}")


def _is_part(module: Module, leaf: ast.AST) -> bool:
    """Whether *leaf* is combined with other strings."""
    return isinstance(module.parent(leaf), ast.List | ast.ListComp | ast.GeneratorExp | ast.IfExp)


def _neutral(clause: str, word: str) -> str:
    return f"({clause} {'OR' if word == 'AND' else 'AND'} NOT {clause})"


def clauses(text: str, word: str = "AND") -> Iterator[tuple[int, int, str]]:
    """Spans of the clauses of the condition *text*, including nested ones, with the word that joins
    them; *word* for a single clause.
    """
    parts = _split(text)
    words = {text[e:s].strip() for (_, e), (s, _) in pairwise(parts)}
    joined = words.pop() if words else word
    if text.lstrip().startswith(("AND ", "OR ")):
        joined = text.split(maxsplit=1)[0]
    for start, end in parts:
        yield start, end, joined
        inner = text[start:end]
        if inner.startswith("(") and inner.endswith(")"):
            nested = clauses(inner[1:-1], joined)
            yield from ((start + 1 + s, start + 1 + e, w) for s, e, w in nested)


def _split(text: str) -> list[tuple[int, int]]:
    """The spans of the operands of AND or OR at the outermost level of *text*."""
    depth, start, spans, at = 0, 0, [], 0
    while at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        match = re.match(r"\s*(AND|OR)\s+", text[at:]) if depth == 0 else None
        if match and (text[at].isspace() or at == 0):
            spans.append((start, at))
            start = at = at + match.end()
            continue
        at += 1
    spans.append((start, len(text)))
    return [(s, e) for s, e in spans if text[s:e].strip()]
