"""How the client reads the fields of a response: by its annotations, but leniently."""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter

from nextfire.domain.document import Document
from nextfire.responses.base import AllFields, ApiResponse, ResponseField

_UNIONS = {Union, UnionType}


class Reader(NamedTuple):
    """Reads one field from JSON. `optional`: the API may omit the field."""

    adapter: TypeAdapter[Any]
    optional: bool


_READERS: dict[type[ApiResponse], dict[str, Reader]] = {}


def read(response: ApiResponse, field: ResponseField) -> object:
    """The value of *field* in the document of *response*.

    Raises:
        AttributeError: The API omitted the field although it is not optional.
    """
    adapter, optional = _readers(type(response))[field.name]
    if field.alias not in response.document and not optional:
        name = type(response).__name__
        raise AttributeError(f"this {name} has no {field.alias!r}: {response!r}")
    return adapter.validate_python(response.document.get(field.alias))


def field_types(response: type[ApiResponse]) -> dict[str, Any]:
    """The types of the fields of a response class, by name."""
    hints = get_type_hints(response, include_extras=True)
    found = {
        each.name: hints[each.name] for each in response.parts if isinstance(each, ResponseField)
    }
    for each in response.parts:
        if isinstance(each, AllFields):
            fields = each.model.model_fields.items()
            found |= {name: info.annotation for name, info in fields}
    return found


def _readers(response: type[ApiResponse]) -> dict[str, Reader]:
    if response not in _READERS:
        _READERS[response] = {
            name: Reader(TypeAdapter(_lenient(kind)), type(None) in get_args(kind))
            for name, kind in field_types(response).items()
        }
    return _READERS[response]


def rebuilt(annotation: Any, parts: tuple[Any, ...]) -> Any:  # noqa: ANN401 — any type
    """The generic type *annotation* with other arguments."""
    origin = get_origin(annotation)
    return Union[parts] if origin in _UNIONS else origin[parts]  # noqa: UP007


def _lenient(annotation: Any) -> Any:  # noqa: ANN401 — any type
    """*annotation* as the client reads it: without bounds, arrays as lists, models of the domain as
    responses, one of several models as its JSON, and unknown values of an enum as str.
    """
    is_union = get_origin(annotation) in _UNIONS
    kinds = [_kind(each) for each in (get_args(annotation) if is_union else [annotation])]
    if sum(_is_a(each, ApiResponse) for each in kinds) > 1:
        return Any
    if any(_is_a(each, Enum) for each in kinds):
        # The first that fits: a member of the enum rather than its text.
        return Annotated[Union[(*kinds, str)], Field(union_mode="left_to_right")]
    return Union[tuple(kinds)]  # noqa: UP007


def _kind(annotation: Any) -> Any:  # noqa: ANN401 — any type
    """`_lenient` of a type that is not a union."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _lenient(parts[0])
    if origin is Literal:
        return _kind(type(parts[0]))
    if origin is tuple:
        return list[_lenient(parts[0])]  # type: ignore[misc] # computed
    if parts:
        return rebuilt(annotation, tuple(map(_lenient, parts)))
    return _view(annotation) if _is_a(annotation, Document) else annotation


def _is_a(annotation: Any, kind: type) -> bool:  # noqa: ANN401 — any type
    return isinstance(annotation, type) and issubclass(annotation, kind)


@cache
def _view(model: type[Document]) -> type[ApiResponse]:
    """A response class with the fields of *model*."""
    fields = {name: info.annotation for name, info in model.model_fields.items()}
    members = {"__doc__": model.__doc__, "__annotations__": fields}
    return type(model.__name__, (ApiResponse,), members)
