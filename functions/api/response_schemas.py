"""JSON schemas of the response classes, derived from their annotations.

Only the OpenAPI document needs them: building pydantic models is a measurable part of a cold start.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import models_json_schema

from nextfire.domain.document import Document
from nextfire.responses.base import AllFields, ApiResponse, ResponseField
from nextfire.responses.reading import field_types, rebuilt

_MODELS: dict[type[ApiResponse], type[BaseModel]] = {}


def schemas(responses: Iterable[type[ApiResponse]], template: str) -> dict[str, Any]:
    """The schemas of *responses* and of their parts, by name. *template*: of references."""
    models = [(_model(each), "serialization") for each in sorted(responses, key=_name)]
    _, found = models_json_schema(models, ref_template=template)  # type: ignore[arg-type]
    return found["$defs"]  # type: ignore[no-any-return]


def _name(response: type[ApiResponse]) -> str:
    return response.__name__


def _model(response: type[ApiResponse]) -> type[BaseModel]:
    """A pydantic model whose JSON schema is that of *response*: the same one for each call."""
    if response not in _MODELS:
        _MODELS[response] = _new_model(response)
    return _MODELS[response]


def _new_model(response: type[ApiResponse]) -> type[BaseModel]:
    types = field_types(response)
    fields: dict[str, Any] = {
        # With the underscore, no field hides a method of the model.
        f"{each.name}_": (
            _with_models(each.schema or types[each.name]),
            Field(alias=each.alias, description=each.description),
        )
        for each in response.parts
        if isinstance(each, ResponseField)
    }
    bases = [each.model for each in response.parts if isinstance(each, AllFields)]
    return create_model(
        response.__name__,
        __base__=bases[0] if bases else Document,
        __doc__=inspect.getdoc(response),
        __cls_kwargs__={"json_schema_extra": _omit_null},
        **fields,
    )


def _with_models(annotation: Any) -> Any:  # noqa: ANN401 — any type
    """*annotation* with models instead of response classes."""
    if isinstance(annotation, type) and issubclass(annotation, ApiResponse):
        return _model(annotation)
    parts = tuple(map(_with_models, get_args(annotation)))
    return rebuilt(annotation, parts) if parts else annotation


def _omit_null(schema: dict[str, Any]) -> None:
    """Make nullable fields optional and all others required: responses omit null."""
    optional = set()
    for name, given in schema.get("properties", {}).items():
        given.pop("default", None)
        if {"type": "null"} in given.get("anyOf", ()):
            optional.add(name)
            given["anyOf"].remove({"type": "null"})
            if len(given["anyOf"]) == 1:
                given.update(given.pop("anyOf")[0])
    schema["required"] = [name for name in schema.get("properties", {}) if name not in optional]
