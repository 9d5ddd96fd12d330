"""Converts plain values to DynamoDB attribute values and back, by boto3's rules but without it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Clamped, Context, Decimal, Inexact, Overflow, Rounded, Underflow
from typing import Any

Item = dict[str, Any]
"""A DynamoDB item with type descriptors, as the low-level client uses it."""

# The range and precision of DynamoDB numbers. Numbers that do not fit raise; they are not rounded.
_NUMBERS = Context(
    Emin=-128, Emax=126, prec=38, traps=[Clamped, Overflow, Inexact, Rounded, Underflow]
)


def to_item(values: Mapping[str, object]) -> Item:
    """Encode *values* as an item. None is omitted."""
    return {name: _encode(value) for name, value in values.items() if value is not None}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Decode *item* to plain values. Numbers are Decimal."""
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
    raise TypeError(f"Unsupported type {type(value).__name__}: DynamoDB cannot store it")


def _encode_set(members: AbstractSet[Any]) -> Item:
    if all(isinstance(member, str) for member in members):
        return {"SS": list(members)}
    if all(isinstance(member, int | Decimal) for member in members):
        return {"NS": [_number(member) for member in members]}
    raise TypeError("Unsupported set: use a set of strings or a set of numbers")


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
