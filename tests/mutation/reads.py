"""Mutants of consistent reads: made eventually consistent."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.mutation.source import Mutant, Product

KIND = "read"
_NAMES = {"consistent", "ConsistentRead"}


def mutants(product: Product) -> Iterator[Mutant]:
    """Every consistent read."""
    for module in product.modules:
        for node in module.nodes:
            found: list[tuple[str | None, ast.expr]] = []
            match node:
                case ast.keyword(arg=name, value=value):
                    found = [(name, value)]
                case ast.Dict(keys=keys, values=values):
                    found = [
                        (str(key.value), value)
                        for key, value in zip(keys, values, strict=True)
                        if isinstance(key, ast.Constant)
                    ]
            for name, value in found:
                if name in _NAMES and isinstance(value, ast.Constant) and value.value is True:
                    text = module.text(
                        module.parent(node) or node if name == "consistent" else value
                    )
                    yield product.mutant(KIND, module, value, "False", f"not {name}: {text}")
