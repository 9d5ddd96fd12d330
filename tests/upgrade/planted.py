"""Defects of a version that show only next to another version, for processes of a history."""

from __future__ import annotations

from typing import Any

from nextfire.adapters.sqlite import table
from nextfire.domain import ids, message

PLANTED_NAMES = {"version_of_schedule": "version", "leased_until": "lease_until"}
"""Maps the new names of attributes to those of all versions."""


def _rename(of: table.Table, new: str) -> None:
    """Store an attribute of a table as *new*, and read both names."""
    old = PLANTED_NAMES[new]
    encode, decode = table.Table._row, table._item  # noqa: SLF001

    def row(self: table.Table, item: Any) -> list[Any]:
        named = {new if name == old else name: value for name, value in item.items()}
        return encode(self, named if self is of else item)

    def item(stored: Any) -> Any:
        return {old if name == new else name: value for name, value in decode(stored).items()}

    table.Table._row = row  # type: ignore[method-assign] # noqa: SLF001
    table._item = item  # type: ignore[assignment] # noqa: SLF001


def a_renamed_version() -> None:
    """The other version cannot read the due entries of this one."""
    _rename(table.DUE, "version_of_schedule")


def a_renamed_lease() -> None:
    """The other version takes over runs of this one whose leases are valid."""
    _rename(table.RUNS, "leased_until")


def another_group() -> None:
    """Runs of a job that must not overlap are in two groups of messages."""
    group_id = ids.group_id
    vars(message)["group_id"] = lambda *args, **kwargs: group_id(*args, **kwargs)[::-1]
