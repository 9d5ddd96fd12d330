"""The rows of a table's field list: one row for each attribute.

A row has the attribute's name, how its values are stored, and who writes it. Encoders, decoders,
projections and the permissions of executors are made from the list of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar

from nextfire.adapters.dynamodb.items import Item
from nextfire.dataclass import dataclass
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.instants import from_ms, isoformat, parse_instant, to_ms

T = TypeVar("T")

_INVALID = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Writer(Enum):
    """Who may use an attribute in a write, conditions included."""

    EXECUTORS = "executors, API, watchers and auditor"
    OTHERS = "API, watchers and auditor"


EXECUTORS, OTHERS = Writer


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type are stored.

    `kind`: the type of the attribute in DynamoDB. `encode`: makes the content from a value.
    `decode`: the inverse; it raises an error of the kinds that a decoder catches if the content is
    invalid.
    """

    kind: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    def attribute(self, value: object) -> Item:
        """*value* as the value of an attribute: ``{"S": "text"}``."""
        return {self.kind: self.encode(value)}


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One attribute of a table. T: the domain type that the items of the table hold.

    - `get`: returns the value to store. Default: the field of T with the attribute's name.
    - `part`: the field of T, if it has another name.
    - `unless`: the value that is not stored, in addition to None. An absent attribute means it.
    - `required`: an item without the attribute is invalid.
    - `decoded`: whether the attribute alone gives the field of T. Otherwise, the table's decoder
      handles it, or it is for queries only.
    """

    name: str
    codec: Codec
    writer: Writer = OTHERS
    get: Callable[[T], Any] | None = None
    part: str = ""
    unless: object = None
    required: bool = False
    decoded: bool = True

    @property
    def field(self) -> str:
        """The field of T."""
        return self.part or self.name


def names(fields: Iterable[Field[Any]], *, of: Writer | None = None) -> tuple[str, ...]:
    """The names of *fields*; with *of*, only of those that this writer may use."""
    return tuple(each.name for each in fields if of in (None, each.writer))


def projection(fields: Iterable[Field[Any]]) -> dict[str, Any]:
    """The parameters of a read that returns *fields* only."""
    found = names(fields)
    return {
        "ProjectionExpression": ", ".join(f"#{name}" for name in found),
        "ExpressionAttributeNames": {f"#{name}": name for name in found},
    }


def unchanged(
    fields: Iterable[Field[Any]], item: Mapping[str, Any], *conditions: str
) -> dict[str, Any]:
    """The parameters of a write that is made only if *fields* of the stored item are still those of
    *item*, and *conditions* hold.
    """
    all_names = names(fields)
    present = [name for name in all_names if name in item]
    tests = (
        f"#{name} = :{name}" if name in present else f"attribute_not_exists(#{name})"
        for name in all_names
    )
    request: dict[str, Any] = {
        "ConditionExpression": " AND ".join([*conditions, *tests]),
        "ExpressionAttributeNames": {f"#{name}": name for name in all_names},
    }
    if present:
        request["ExpressionAttributeValues"] = {f":{name}": item[name] for name in present}
    return request


def encoder(fields: Iterable[Field[T]]) -> Callable[[T], Item]:
    """Return the function that encodes *fields* of a value as an item."""
    plan = [
        (each.name, each.get or attrgetter(each.field), each.unless, each.codec) for each in fields
    ]
    rows = [(name, get, unless, codec.kind, codec.encode) for name, get, unless, codec in plan]

    def encode(value: T) -> Item:
        item: Item = {}
        for name, get, unless, kind, content in rows:
            found = get(value)
            if found is None or (unless is not None and found == unless):
                continue
            item[name] = {kind: content(found)}
        return item

    return encode


def decoder(fields: Iterable[Field[Any]]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function that decodes *fields* from plain values, see `from_item`.

    It returns the arguments of the domain type. Absent fields, and those that are NULL where their
    codec allows it, are left out: the domain type has the default. It raises ValueError or
    LookupError for values that are not of the table.
    """
    decoded = [each for each in fields if each.decoded]
    required = [(each.name, each.field, each.codec.decode) for each in decoded if each.required]
    optional = {each.name: (each.field, each.codec.decode) for each in decoded if not each.required}

    def decode(values: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, field, read in required:
                found[field] = read(values[name])
            for name, row in optional.items():
                if name in values:
                    field, read = row
                    if (value := read(values[name])) is not None:
                        found[field] = value
        except _INVALID as error:
            raise _invalid(name, error) from error
        return found

    return decode


def raw_decoder(fields: Iterable[Field[Any]]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """As `decoder`, for an item with type descriptors: saves the conversion to plain values."""
    rows = [(each.name, each.field, each.codec, each.required) for each in fields if each.decoded]
    required = [(name, field, codec.kind, codec.decode) for name, field, codec, yes in rows if yes]
    optional = {
        name: (field, codec.kind, codec.decode) for name, field, codec, yes in rows if not yes
    }

    def decode(item: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, field, kind, read in required:
                found[field] = read(item[name][kind])
            for name, row in optional.items():
                if name in item:
                    field, kind, read = row
                    found[field] = read(item[name][kind])
        except _INVALID as error:
            raise _invalid(name, error) from error
        return found

    return decode


def _invalid(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name}: {type(error).__name__}: {error}")


def nullable(codec: Codec) -> Codec:
    """*codec* that decodes NULL as None."""
    read = codec.decode
    return Codec(codec.kind, codec.encode, lambda value: None if value is None else read(value))


def member_of(members: type[Enum]) -> Codec:
    """The codec of an enum, by its values."""
    return Codec("S", attrgetter("value"), members)


def _text(content: object) -> str | None:
    # Found later, a wrong type would fail the response of a listing.
    if content is not None and not isinstance(content, str):
        raise TypeError("not a string")
    return content


TEXT = Codec("S", str, _text)
FLAG = Codec("BOOL", bool, bool)
INTEGER = Codec("N", str, int)
INSTANT = Codec("S", isoformat, parse_instant)
"""An instant as ISO 8601 text."""
MILLISECONDS = Codec("N", lambda at: str(to_ms(at)), lambda number: from_ms(int(number)))
"""An instant that conditions compare, in epoch milliseconds."""

STAMP: Field[Any] = Field(CHANGED_BY, TEXT, EXECUTORS, get=lambda _: None, decoded=False)
"""`with_changed_by` writes it; executors remove it."""
