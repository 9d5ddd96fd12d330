"""The store of joins."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from nextfire.domain.ids import RunKey


class JoinStore(Protocol):
    """Stores the marks of joins, see `nextfire.domain.joins`, for as long as run records."""

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:
        """Add *mark* to item *group* of the join of *run*. A mark that is stored is not added
        again.

        Returns:
            All marks of the item after the addition. Of concurrent callers, at least one gets the
            marks of all.
        """

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        """Return the marks of the items *groups* of the join of *run*, by consistent reads."""
