"""Parses JSON that other systems send: responses, and results of AWS calls."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from nextfire.domain.attempt import MAX_NESTING, is_nested_too_deeply

_MAX_NESTING = MAX_NESTING // 2
"""Maximum levels of arrays and objects: results have a value at some level of their own."""


def read(data: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value of *data*. NaN, and numbers beyond all floats such as 1e999, become None: as
    results they would not be valid JSON.

    Raises:
        ValueError, RecursionError: *data* is not JSON, or is nested too deeply.
    """
    value = json.loads(data, parse_constant=lambda _: None, parse_float=_number)
    if is_nested_too_deeply(data.encode() if isinstance(data, str) else data, _MAX_NESTING):
        raise ValueError(f"nested more than {_MAX_NESTING} levels deep")
    return value


def _number(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None
