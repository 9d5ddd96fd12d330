"""Checks the number of entries of a document before pydantic reads it. Pydantic would build an
error for each entry and each of its possible forms, and copy these errors several times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, get_args, get_origin

from annotated_types import MaxLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nextfire.domain.errors import InvalidInputError

MAX_UNKNOWN_FIELDS = 32
"""Maximum number of unknown fields of an object that are reported by name."""


def check_bounds(model: type[BaseModel], document: object, place: str = "") -> None:
    """Check all maps and lists of *document*, at *place* of the body, against the limits that
    *model* gives to its fields.

    Raises:
        InvalidInputError: A map or list has more entries than its limit.
    """
    if not isinstance(document, dict):
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    _check_size(len(fields) + MAX_UNKNOWN_FIELDS, document, place or "body")
    for name, field in fields.items():
        if name in document:
            where = f"{place}.{name}" if place else name
            _check(document[name], field.annotation, field.metadata, where)


def _check(value: object, kind: Any, metadata: Iterable[Any], place: str) -> None:  # noqa: ANN401
    """Check *value* against the annotation *kind* with *metadata*, and the values inside it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        check_bounds(kind, value, place)
    elif origin is Annotated:
        _check(value, arguments[0], _flat(arguments[1:]), place)
    elif origin in {dict, list, tuple}:
        if not isinstance(value, dict if origin is dict else list):
            return
        for limit in metadata:
            if isinstance(limit, MaxLen):
                _check_size(limit.max_length, value, place)
        within = arguments[1] if origin is dict else arguments[0]
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            _check(each, within, (), f"{place}.{name}")
    else:
        for form in arguments:  # of a union; a string has none
            _check(value, form, metadata, place)


def _flat(metadata: Iterable[Any]) -> list[Any]:
    """*metadata* with the limits that a `Field(…)` among it holds."""
    return [
        limit
        for each in metadata
        for limit in (each.metadata if isinstance(each, FieldInfo) else [each])
    ]


def _check_size(most: int, value: dict[str, Any] | list[Any], place: str) -> None:
    if len(value) > most:
        raise InvalidInputError(
            place,
            f"{len(value)} entries",
            f"more than {most} entries",
            f"Send at most {most}.",
        )
