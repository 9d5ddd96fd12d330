"""The store of joins."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from nextfire.domain.ids import JobKey, RunKey


class JoinStore(Protocol):
    """Stores the marks of joins, see `nextfire.domain.joins`, for as long as run records; and which
    sequences of a job with `maxParallel` are under way.
    """

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:
        """Add *mark* to item *group* of the join of *run*. A mark that is stored is not added
        again.

        Returns:
            All marks of the item after the addition. Of concurrent callers, at least one gets the
            marks of all.
        """

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        """Return the marks of the items *groups* of the join of *run*, by consistent reads."""

    def begin_sequence(self, first: RunKey, most: int, now: datetime) -> bool:
        """Note that the sequence of the run *first* is under way, if fewer than *most* of its job
        are, or if it is noted already. Returns whether it is noted. Of concurrent callers, as many
        succeed as there is room for.
        """

    def begun_sequences(self, job: JobKey) -> Collection[str]:
        """Return the run ids of the first runs of the sequences of *job* that are noted, by a
        consistent read.
        """

    def end_sequences(self, job: JobKey, first: Collection[str]) -> None:
        """Remove the notes of the run ids *first*. Those that are not noted have no effect."""
