"""The runs that a run of a job with a schedule and parents waits for. Pure.

The run of the occurrence at T needs its time to come, and for each edge: with `same` the run of the
parent with the logical time T; with `latest` one that succeeded; with `all` each run of the parent
since the previous occurrence of the job, up to T.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, islice
from zlib import crc32

from nextfire.dataclass import dataclass, replace
from nextfire.domain.audit import spans
from nextfire.domain.edges import Edge, Which
from nextfire.domain.instants import MOMENT, from_ms, isoformat, to_ms
from nextfire.domain.job import Job
from nextfire.domain.job_versions import has_occurrence, version_at
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import UNTIMED
from nextfire.domain.trigger_rules import ParentState

MAX_AWAITED = 1_000
"""Maximum number of runs of a parent that a run waits for. If there are more, it does not start."""
MAX_INTERVAL = timedelta(days=80)
"""Maximum interval of a job with an `all` edge: the records of its parent expire after 90 days."""

_TIME, _LEFT = "@time", "@left"  # a job id has no @
_NEAR = (timedelta(hours=1), timedelta(days=2), timedelta(days=64))
"""Increasing look-back periods to find the previous occurrence. Then everything."""
_FOREVER = datetime.max.replace(tzinfo=UTC)

Above = Mapping[str, Job]
"""Jobs by id: parents, and the parents of those that have no schedule."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The runs of the parent of `edge` that are awaited: those at `times`, at most one more than
    `MAX_AWAITED`; for `latest` any that succeeded and ended at `since` or later.
    """

    edge: Edge
    times: tuple[datetime, ...] = ()
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ParentRun:
    """An awaited run. `at`: its logical time; None for `latest`. `run`: its record, or the range
    record that covers it; None if it has none.
    """

    edge: Edge
    at: datetime | None
    run: Run | None

    @property
    def name(self) -> str:
        """How reasons name it: ``extract``, for `all` ``extract at 2026-05-24T02:00:00Z``."""
        if self.edge.which is not Which.ALL or self.at is None:
            return self.edge.job
        return f"{self.edge.job} at {isoformat(self.at)}"

    @property
    def state(self) -> ParentState:
        return ParentState.WAITING if self.run is None else ParentState.of(self.run.state)


def awaited(child: Job, at: datetime, above: Above) -> list[Awaited]:
    """What the run of *child* at *at* waits for, one by one for its edges.

    Raises:
        InvalidInputError: A schedule is invalid.
    """
    return [_awaited(child, edge, at, above) for edge in child.definition.after]


def _awaited(child: Job, edge: Edge, at: datetime, above: Above) -> Awaited:
    match edge.which:
        case Which.SAME:
            return Awaited(edge, (at,))
        case Which.LATEST:
            return Awaited(edge, since=at - edge.within)
        case Which.ALL:
            parent, since = above.get(edge.job), interval_start(child, at)
            if parent is None:
                return Awaited(edge)
            times = logical_times(parent, above, since, at, limit=MAX_AWAITED + 1)
            return Awaited(edge, tuple(times))


def states_of(parents: Iterable[ParentRun]) -> dict[str, ParentState]:
    """The states of *parents*, by name."""
    return {each.name: each.state for each in parents}


def ready_at(parents: Iterable[ParentRun], now: datetime) -> datetime:
    """When the delays of the edges are over; *now* if no parent has ended."""
    ended = [
        each.run.finished_at + each.edge.delay
        for each in parents
        if each.run is not None and each.run.finished_at is not None
    ]
    return max(ended, default=now)


def run_at(records: Sequence[Run], at: datetime) -> Run | None:
    """The record of the run at *at* among *records*, or the range that covers it. A parent that was
    deleted and created again can have two runs: the later one is decisive.
    """
    exact = [run for run in records if run.key.scheduled_at == at]
    if exact:
        return max(exact, key=lambda run: (run.finished_at or at, run.key.uid))
    return next((run for run in records if run.key.scheduled_at < at <= run.covers_until), None)


def latest_success(records: Iterable[Run], since: datetime) -> Run | None:
    """The first of *records* that succeeded and ended at *since* or later."""
    for run in records:
        ended = run.finished_at is not None and run.finished_at >= since
        if run.state is RunState.SUCCEEDED and ended:
            return run
    return None


def logical_times(
    job: Job, above: Above, after: datetime, until: datetime, *, limit: int = MAX_AWAITED
) -> list[datetime]:
    """The logical times in (*after*, *until*] at which *job* runs, ascending, the first *limit*:
    its occurrences; for an AFTER job those of its parents, which *above* has. A job that is paused
    has none after its pause began, and runs on request are not among them.

    Raises:
        InvalidInputError: A schedule is invalid.
    """
    roots = _timed_jobs(job, above)
    every = (span for root in roots for span in spans(root, after, until))
    times = merge(*((at for at in span.occurrences()) for span in every))
    return [at for at, _ in islice(groupby(times), limit)]


def _timed_jobs(job: Job, above: Above) -> list[Job]:
    """The jobs with a schedule from which the logical times of *job* come: itself, or all above
    it; each once, however many paths lead to it.
    """
    seen: dict[str, Job] = {}
    left = [job]
    while left:
        each = left.pop()
        if each.key.job_id in seen:
            continue
        seen[each.key.job_id] = each
        if each.definition.type in UNTIMED:
            left += [above[edge.job] for edge in each.definition.after if edge.job in above]
    return [each for each in seen.values() if each.definition.type not in UNTIMED]


def interval_start(child: Job, at: datetime) -> datetime:
    """The occurrence of *child* before *at*; its creation if *at* is the first one.

    Raises:
        InvalidInputError: Its schedule is invalid.
    """
    begin = min([child.effective_from, *(past.effective_from for past in child.replaced)])
    for near in _NEAR:
        since = max(at - near, begin)
        found = _last_occurrence(child, since, at - MOMENT)
        if found is not None or since == begin:
            return found or begin
    return _last_occurrence(child, begin, at - MOMENT) or begin


def _last_occurrence(child: Job, after: datetime, until: datetime) -> datetime | None:
    active = replace(child, state=JobState.ACTIVE)
    for span in reversed(spans(active, after, until)):
        first = next(span.occurrences(), None)
        entry = None if first is None else span.owner.entry_of(first)
        if entry is not None:
            return span.owner.stretch(entry, span.until).last
    return None


def occurrence_fed(child: Job, edge: Edge, at: datetime) -> datetime | None:
    """The occurrence of *child* that waits for the run of the parent of *edge* with the logical
    time *at*; None if none does. Not for `latest`.

    Raises:
        InvalidInputError: Its schedule is invalid.
    """
    if edge.which is Which.SAME:
        owner = version_at(child, at)
        return at if owner is not None and has_occurrence(owner, at) else None
    active = replace(child, state=JobState.ACTIVE)
    for span in spans(active, at - MOMENT, _FOREVER):
        found = next(span.occurrences(), None)
        if found is not None:
            return found
    return None


def recent_occurrences(child: Job, now: datetime, *, limit: int) -> list[datetime]:
    """The occurrences of *child* up to *now* whose runs may still wait for their parents: the last
    *limit*, ascending.

    Raises:
        InvalidInputError: Its schedule is invalid.
    """
    active, patience = replace(child, state=JobState.ACTIVE), longest_wait(child)
    found: deque[datetime] = deque(maxlen=limit)
    for near in (*_NEAR, patience):
        every = spans(active, now - min(near, patience), now)
        found = deque((at for span in every for at in span.occurrences()), maxlen=limit)
        if len(found) == limit or near >= patience:
            break
    return [*found]


def longest_wait(child: Job) -> timedelta:
    """How long after its occurrence a run of *child* may still wait for its parents."""
    longest = max((edge.delay for edge in child.definition.after), default=timedelta())
    return child.definition.join_timeout + longest + child.definition.jitter_width


# The mark of the time, in the join of a run


def time_mark(ends_at: datetime) -> str:
    """The mark that the time of a run has come, whose join ends at *ends_at*."""
    return f"{_TIME}:{to_ms(ends_at)}"


def time_of(marks: Iterable[str]) -> datetime | None:
    """When the join with *marks* ends; None if the time of its run has not come."""
    found = [int(each.split(":")[1]) for each in marks if each.startswith(f"{_TIME}:")]
    return from_ms(max(found)) if found else None


# The mark of a run that is left, in the join of a run that waits for many


def left_mark(child: Job, parents: Iterable[ParentRun]) -> str | None:
    """The mark of one of the runs of *parents* that *child* waits for with `all`; None if it waits
    for none, or has setups, whose states alone decide nothing. Which one does not depend on the
    order in which they end: of N runs that end in any order, about ln N are marked before all have
    ended.
    """
    if child.definition.setups:
        return None
    waiting = (each for each in parents if each.state is ParentState.WAITING)
    left = [
        f"{_LEFT}/{child.revision}/{each.edge.job}/{to_ms(each.at)}:-"
        for each in waiting
        if each.edge.which is Which.ALL and each.at is not None
    ]
    return max(left, key=_spread, default=None)


def run_left(child: Job, marks: Iterable[str]) -> tuple[Edge, datetime] | None:
    """The edge and the logical time of the run that was marked last for this revision of *child*;
    None if none was.
    """
    mine = [each for each in marks if each.startswith(f"{_LEFT}/{child.revision}/")]
    if not mine:
        return None
    _, _, parent, at = min(mine, key=_spread).removesuffix(":-").split("/")
    edge = child.definition.edge_from(parent)
    return None if edge is None else (edge, from_ms(int(at)))


def _spread(mark: str) -> tuple[int, str]:
    return crc32(mark.encode()), mark
