"""Makes moto and the SDK quicker, at what they reckon anew for each call. What they do stays."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from botocore import useragent  # noqa: TID251 — its clients make very many calls
from moto.core import responses, utils
from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.parsing import ast_nodes


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until *monkeypatch* is undone."""
    methods = cache(utils.method_names_from_class)
    monkeypatch.setattr(responses, "method_names_from_class", methods)
    component = useragent.UserAgentComponent
    monkeypatch.setattr(component, "to_string", cache(component.to_string))
    monkeypatch.setattr(ast_nodes, "isinstance", _is_instance, raising=False)
    serialize = BaseJSONSerializer._serialize_type_structure  # noqa: SLF001 — moto's

    def serialize_structure(
        self: BaseJSONSerializer, serialized: Any, value: Any, shape: Any, key: str
    ) -> None:
        if shape.name == "AttributeValue":  # as it is stored, so it is sent
            serialized[key] = value
        else:
            serialize(self, serialized, value, shape, key)

    monkeypatch.setattr(BaseJSONSerializer, "_serialize_type_structure", serialize_structure)


def _is_instance(thing: Any, kind: Any) -> bool:
    """`isinstance`, without the detour that abstract classes take."""
    made_of: Any = type(thing)
    return bool(_is_subclass(made_of, kind))


@cache
def _is_subclass(kind: Any, of: Any) -> bool:
    return issubclass(kind, of)
