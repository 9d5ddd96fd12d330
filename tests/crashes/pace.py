"""Makes moto and the SDK faster by caching what they compute for each call. The behaviour is
unchanged.
"""

from __future__ import annotations

import copy
import pickle
from functools import cache
from typing import Any

import pytest
from botocore import useragent  # noqa: TID251 — its clients make very many calls
from moto.core import responses, utils
from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.parsing import ast_nodes, expressions, validators
from moto.sqs import models as queues


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the caches until *monkeypatch* is undone."""
    methods = cache(utils.method_names_from_class)
    monkeypatch.setattr(responses, "method_names_from_class", methods)
    underscored = cache(utils.camelcase_to_underscores)
    monkeypatch.setattr(responses, "camelcase_to_underscores", underscored)
    monkeypatch.setattr(queues, "camelcase_to_underscores", underscored)
    _quicken_updates(monkeypatch)
    component = useragent.UserAgentComponent
    monkeypatch.setattr(component, "to_string", cache(component.to_string))
    monkeypatch.setattr(ast_nodes, "isinstance", _is_instance, raising=False)
    serialize = BaseJSONSerializer._serialize_type_structure  # noqa: SLF001 — moto's

    def serialize_structure(
        self: BaseJSONSerializer, serialized: Any, value: Any, shape: Any, key: str
    ) -> None:
        # Stored and sent in the same form, except bytes.
        if shape.name == "AttributeValue" and "B" not in value:
            serialized[key] = value
        else:
            serialize(self, serialized, value, shape, key)

    monkeypatch.setattr(BaseJSONSerializer, "_serialize_type_structure", serialize_structure)


def _quicken_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse an expression once, copy it by unpickling, and count clauses at the root only, where
    all of them are.
    """
    parser: Any = expressions.UpdateExpressionParser  # type: ignore[attr-defined] # untyped there
    make = parser.make
    trees: dict[str, Any] = {}
    dumped: dict[int, bytes] = {}

    def make_once(expression: str) -> Any:
        if expression not in trees:
            tree = trees[expression] = make(expression)
            dumped[id(tree)] = pickle.dumps(tree)
        return trees[expression]

    def copied(thing: Any) -> Any:
        there = dumped.get(id(thing))
        return copy.deepcopy(thing) if there is None else pickle.loads(there)  # noqa: S301 — our own

    monkeypatch.setattr(parser, "make", make_once)
    monkeypatch.setattr(validators, "deepcopy", copied)
    for each in (validators.ActionCountValidator, validators.OverlappingPathsValidator):
        monkeypatch.setattr(each, "traverse", each.process)


def _is_instance(thing: Any, kind: Any) -> bool:
    """`isinstance` without the checks for abstract classes."""
    made_of: Any = type(thing)
    return bool(_is_subclass(made_of, kind))


@cache
def _is_subclass(kind: Any, of: Any) -> bool:
    return issubclass(kind, of)
