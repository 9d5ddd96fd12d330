"""Responses about the API itself."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from nextfire.responses.base import ApiResponse


class Health(ApiResponse):
    """The API is up."""

    status: Literal["ok"]
    time: datetime
