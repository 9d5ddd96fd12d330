"""The overview of a tenant's runs across its jobs, and the store from which it is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from nextfire.dataclass import dataclass
from nextfire.domain.overview import BrokenHead, Counts, Head, Segment, Step
from nextfire.domain.ports.pages import Unreadable
from nextfire.domain.run import Run, RunState


@dataclass(frozen=True, slots=True)
class StepFilter:
    """Runs whose latest step is at or after `first` and before `before`. `states`: in one of these
    states. `pool`: of this pool.
    """

    first: datetime
    before: datetime
    states: Collection[RunState] = tuple(RunState)
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """How complete an answer is.

    `as_of`: all steps up to this instant are in it; None: unknown, because no run has ever been
    recorded. `lag`: how long the latest step took to get into the overview. `begins_at`: the
    overview has only steps after this; None: of all records.
    """

    as_of: datetime | None = None
    lag: timedelta = timedelta()
    begins_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """Runs, latest step first. `cursor`: None on the last page."""

    items: Sequence[Run]
    cursor: str | None
    unreadable: Sequence[Unreadable]
    freshness: Freshness


class RunOverview(Protocol):
    """Finds a tenant's runs across its jobs by their latest step; see `domain.overview`."""

    def covers(self, tenant: str) -> bool:
        """Whether there is an overview of *tenant*'s runs. False: it has none yet, for example
        because the stack was just updated.
        """

    def list(
        self, tenant: str, wanted: StepFilter, *, cursor: str | None, limit: int
    ) -> OverviewPage:
        """Return *tenant*'s runs that match *wanted*, latest step first, then by execution id,
        descending. *limit*: page size, ≥ 1; a page may have fewer runs, even none, although more
        follow. A *cursor* may be used with another filter.

        A run that changes while a caller reads pages may be on two of them, or, if it moves to the
        front, on none.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def counts(self, tenant: str, first: datetime) -> tuple[Counts, Freshness]:
        """Return the number of *tenant*'s open runs, and of those that ended since the minute of
        *first*, by minute; with very many runs, since a later minute, which the counts name. A run
        that was redriven may also count where it ended before.
        """


@dataclass(frozen=True, slots=True)
class ScannedRuns:
    """A page of a scan of the records: the steps of runs by tenant, the number of items that do not
    decode, and the place where the scan continues; None at the end.
    """

    steps: Mapping[str, Sequence[Step]]
    undecodable: int
    after: str | None


class RunScan(Protocol):
    """Reads the records of all tenants."""

    def pages(self, after: str | None) -> Iterator[ScannedRuns]:
        """Iterate over the records after the place *after*, in the order of the store, by
        eventually consistent reads. Pages are read on demand.
        """


class SegmentStore(Protocol):
    """Stores the segments of the overview, and for each tenant a head with a snapshot."""

    def add(self, tenant: str, segments: Sequence[Segment]) -> int:
        """Store *segments*; one with the same log, window and id is replaced. Returns the size of
        their steps in bytes.
        """

    def read(
        self, tenant: str, log: str, first_ms: int, last_ms: int, *, newest_first: bool = False
    ) -> Iterator[Segment]:
        """Iterate over the segments of *log* whose windows start from *first_ms* to *last_ms*, both
        inclusive, by window and id, by consistent reads. Pages are read on demand.

        A segment that does not decode is left out.
        """

    def head(self, tenant: str) -> Head | BrokenHead | None:
        """Return the head, by a consistent read; None if the tenant has none."""

    def snapshot(self, tenant: str, head: Head) -> Sequence[Step] | None:
        """Return the steps of the snapshot of *head*, none if it has no parts; None if it is gone,
        because a later head replaced it or it expired, or does not decode.
        """

    def replace_head(
        self, tenant: str, was: Head | BrokenHead | None, to: Head, steps: Sequence[Step]
    ) -> bool:
        """Store *steps* as the snapshot of *to*, then replace *was* with *to*, if it is the stored
        head, then delete the snapshot of *was*. Of concurrent callers exactly one succeeds. If the
        caller dies in between, *was* stays complete, or parts are left over, which expire.

        The stored head has the number of parts of *steps*; `to.parts` is ignored.
        """
