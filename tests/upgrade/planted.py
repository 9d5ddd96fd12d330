"""Defects of a version that show only next to another version, for processes of a history."""

from __future__ import annotations

from typing import Any

from nextfire.adapters.sqlite import table
from nextfire.domain import ids, message

PLANTED_NAMES = {"version_of_schedule": "version"}
"""Maps the new names of attributes to those of all versions."""


def a_renamed_attribute() -> None:
    """The due entries of this version have an attribute that the other one does not know, in place
    of one that it needs. This version reads both.
    """
    [(new, old)] = PLANTED_NAMES.items()
    encode, decode = table.Table._row, table._item  # noqa: SLF001

    def row(self: table.Table, item: Any) -> list[Any]:
        named = {new if name == old else name: value for name, value in item.items()}
        return encode(self, named if self is table.DUE else item)

    def item(stored: Any) -> Any:
        return {old if name == new else name: value for name, value in decode(stored).items()}

    table.Table._row = row  # type: ignore[method-assign] # noqa: SLF001
    table._item = item  # type: ignore[assignment] # noqa: SLF001


def another_group() -> None:
    """Runs of a job that must not overlap are in two groups of messages."""
    group_id = ids.group_id
    vars(message)["group_id"] = lambda *args, **kwargs: group_id(*args, **kwargs)[::-1]
