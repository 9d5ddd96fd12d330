"""Texts that are not instants."""

from __future__ import annotations

import pytest

from nextfire.domain.instants import parse_instant


@pytest.mark.parametrize(
    "text",
    ["", "noon", "2026-05-24T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"],
)
def test_what_is_not_an_instant_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_instant(text)
