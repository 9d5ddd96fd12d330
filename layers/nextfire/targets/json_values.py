"""Reads JSON of others."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def read(data: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value of *data*. NaN, and numbers beyond all floats such as 1e999, become None: as
    results they would not be valid JSON.

    Raises:
        ValueError, RecursionError: *data* is not JSON, or is nested too deeply.
    """
    return json.loads(data, parse_constant=lambda _: None, parse_float=_number)


def _number(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None
