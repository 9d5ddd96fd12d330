"""Plain values as DynamoDB's attribute values, and back: boto3's rules, without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Rounded, Underflow
from typing import Any

Item = dict[str, Any]
"""A DynamoDB item with its type descriptors, as the client speaks it."""

# What a number in DynamoDB can be: one that does not fit is an error, not another number.
_NUMBERS = Context(
    Emin=-128, Emax=126, prec=38, traps=[Clamped, Overflow, Inexact, Rounded, Underflow]
)


def to_item(values: Mapping[str, object]) -> Item:
    """*values* as an item, without those that are None."""
    return {name: _encode(value) for name, value in values.items() if value is not None}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of *item*; numbers are Decimal."""
    return {name: _decode(value) for name, value in item.items()}


def _encode(value: object) -> Item:
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": _number(value)}
        case None:
            return {"NULL": True}
        case Mapping():
            return {"M": {name: _encode(member) for name, member in value.items()}}
        case list() | tuple():
            return {"L": [_encode(member) for member in value]}
        case bytes():
            return {"B": value}
        case AbstractSet():
            return _encode_set(value)
    raise TypeError(f"Unsupported type {type(value).__name__}: DynamoDB has no such value")


def _encode_set(members: AbstractSet[Any]) -> Item:
    if all(isinstance(member, str) for member in members):
        return {"SS": list(members)}
    if all(isinstance(member, int | Decimal) for member in members):
        return {"NS": [_number(member) for member in members]}
    raise TypeError("Unsupported set: DynamoDB has sets of texts and sets of numbers")


def _number(value: int | Decimal) -> str:
    number = _NUMBERS.create_decimal(value)
    if not number.is_finite():
        raise TypeError(f"Unsupported number {number}: DynamoDB has finite numbers only")
    return str(number)


def _decode(value: Mapping[str, Any]) -> Any:
    if not value:
        raise TypeError("An attribute value without a type")
    ((kind, content), *_) = value.items()
    match kind:
        case "S" | "BOOL" | "B":
            return content
        case "N":
            return _NUMBERS.create_decimal(content)
        case "NULL":
            return None
        case "M":
            return {name: _decode(member) for name, member in content.items()}
        case "L":
            return [_decode(member) for member in content]
        case "SS" | "BS":
            return set(content)
        case "NS":
            return {_NUMBERS.create_decimal(member) for member in content}
    raise TypeError(f"Unsupported attribute type {kind!r}")
