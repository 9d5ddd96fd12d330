"""Attribute values of DynamoDB, compared with boto3."""

from __future__ import annotations

from decimal import Decimal, Inexact, Rounded
from typing import Any

import pytest
from boto3.dynamodb.types import (  # noqa: TID251 - the reference
    TypeDeserializer,
    TypeSerializer,
)
from hypothesis import given
from hypothesis import strategies as st

from nextfire.adapters.dynamodb.items import from_item, to_item

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**37), 10**37)
    | st.decimals(-1000, 1000, places=3)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain | st.sets(st.text(), min_size=1) | st.sets(st.integers(0, 9), min_size=1))
def test_values_are_those_of_boto3(value: Any) -> None:
    ours = to_item({"x": value})

    assert ours == ({} if value is None else {"x": TypeSerializer().serialize(value)})
    if ours:
        assert from_item(ours) == {"x": TypeDeserializer().deserialize(ours["x"])}


@pytest.mark.parametrize(
    "value", [1.5, object(), Decimal("NaN"), {b"x"}], ids=lambda value: type(value).__name__
)
def test_values_that_dynamodb_does_not_have_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        to_item({"x": value})


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises((Inexact, Rounded)):
        to_item({"x": 10**40 + 1})


@pytest.mark.parametrize("value", [{}, {"X": 1}])
def test_an_attribute_value_without_a_known_type_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        from_item({"x": value})
