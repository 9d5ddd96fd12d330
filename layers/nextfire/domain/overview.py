"""The overview: what a tenant's runs did, across its jobs, derived from the stream of the runs.

It is a set of steps. A step says in which state a run was, and since when. Steps are added in any
order and any number of times with the same result, so no delivery of the stream is ever wrong, and
a rebuild from the records adds the same steps. The overview only finds runs: what a listing returns
is read from the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from nextfire.dataclass import dataclass
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import to_ms
from nextfire.domain.run import Run, RunState

WINDOW = timedelta(seconds=30)
"""Segments are sorted by windows of this length, and within one by their id."""
MARGIN = timedelta(minutes=1)
"""How much later than the newest step a batch may be without causing a snapshot."""
MAX_STEPS = 2000
"""Steps in a segment. 200 KB at most: identifiers of 115 bytes hardly compress below that."""

_RANK = {RunState.RUNNING: 0, RunState.PENDING: 1, RunState.SKIPPED: 3}
"""The order of states with one dispatch and fence: a worker hands a run back; others end it; a DEAD
run can become SKIPPED."""
_ENDED = 2
ENDED = tuple(state for state in RunState if state.ended)
OPEN = tuple(state for state in RunState if not state.ended)
WINDOW_MS = WINDOW // timedelta(milliseconds=1)
_MARGIN_MS = MARGIN // timedelta(milliseconds=1)


class Step(NamedTuple):
    """A run in *state* since *at_ms*: its end, else its start, else its scheduled instant, in epoch
    milliseconds. `dispatch` and `fence`: those of the run, which order its steps.
    """

    at_ms: int
    job_id: str
    run_id: str
    state: RunState
    dispatch: int = 1
    fence: int = 0
    pool: str = ""

    def key(self, tenant: str) -> RunKey:
        return RunKey(JobKey(tenant, self.job_id), self.run_id)

    @property
    def run(self) -> tuple[str, str]:
        """Identifies the run within its tenant."""
        return self.job_id, self.run_id

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Of two steps of one run, the later one has the greater value."""
        return self.dispatch, self.fence, _RANK.get(self.state, _ENDED), self.at_ms


def step_at(run: Run) -> datetime:
    """The instant of the latest step of *run*: its end, else its start, else its schedule."""
    return run.finished_at or run.started_at or run.key.scheduled_at


def step_of(run: Run) -> Step:
    """The latest step of *run*."""
    return Step(
        to_ms(step_at(run)),
        run.key.job.job_id,
        run.key.run_id,
        run.state,
        run.dispatch,
        run.fence,
        run.pool or "",
    )


def newest(steps: Iterable[Step]) -> dict[tuple[str, str], Step]:
    """The latest of *steps* for each run."""
    found: dict[tuple[str, str], Step] = {}
    for step in steps:
        latest = found.get(step.run)
        if latest is None or latest.order < step.order:
            found[step.run] = step
    return found


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that were written together, up to `MAX_STEPS`.

    `log`: the state of ended runs, or `OPEN_LOG`. `window_ms`: start of the window that contains
    the instants of ended runs; for open runs, the instants at which the stream received them. `id`:
    the same whenever the same record of the stream comes first. `seen_ms`: when the stream received
    the newest step; `written_ms`: when the segment was written.
    """

    log: str
    window_ms: int
    id: str
    seen_ms: int
    written_ms: int
    steps: Sequence[Step]


OPEN_LOG = "OPEN"
LOGS = (*(state.value for state in ENDED), OPEN_LOG)


@dataclass(frozen=True, slots=True)
class DeliveredStep:
    """A step that a stream delivered. `id`: of its record; `seen_ms`: when the stream received
    it.
    """

    tenant: str
    step: Step
    id: str
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Head:
    """Where the open runs of a tenant are: in the `parts` parts of the snapshot `snapshot`, and in
    the segments of all logs from `since_ms`.

    `next_ms`: the `since_ms` of the head that replaces this one. `begins_ms`: the overview has all
    steps after this; 0: of all records. `seen_ms`: when the stream received the newest step that is
    in the snapshot. `folded_ms`: when it was written.
    """

    snapshot: str
    parts: int
    since_ms: int
    next_ms: int
    begins_ms: int
    seen_ms: int
    folded_ms: int


@dataclass(frozen=True, slots=True)
class BrokenHead:
    """A head that does not decode. `stored`: what the store has, which identifies it."""

    stored: Any
    problem: str


def first_head(since_ms: int, *, is_whole: bool) -> Head:
    """The head of a tenant without one: no snapshot, and the segments from *since_ms*. *is_whole*:
    the tenant has no earlier records.
    """
    since = window_ms(since_ms)
    return Head("", 0, since, since, 0 if is_whole else since_ms, 0, 0)


def window_ms(at_ms: int) -> int:
    """The start of the window that contains *at_ms*."""
    return at_ms - at_ms % WINDOW_MS


def segments_of(seen: Sequence[DeliveredStep], now: datetime) -> list[Segment]:
    """The segments of *seen*, records of one tenant in the order of their stream.

    If a run has several steps, the latest and its ends are kept. So most runs have one step: they
    start and end within one batch. A record that was deleted and written again can have an end that
    its steps' order does not show.
    """
    kept = newest(each.step for each in seen)
    groups: dict[tuple[str, int], list[DeliveredStep]] = {}
    for each in seen:
        of_end = each.step.state.ended
        if not of_end and kept.get(each.step.run) is not each.step:
            continue
        log, at_ms = (
            (each.step.state.value, each.step.at_ms) if of_end else (OPEN_LOG, each.seen_ms)
        )
        groups.setdefault((log, window_ms(at_ms)), []).append(each)
    return [
        Segment(
            log,
            window,
            part[0].id,
            max(each.seen_ms for each in part),
            to_ms(now),
            [each.step for each in part],
        )
        for (log, window), group in groups.items()
        for part in _parts(group)
    ]


def _parts(group: list[DeliveredStep]) -> list[list[DeliveredStep]]:
    return [group[start : start + MAX_STEPS] for start in range(0, len(group), MAX_STEPS)]


def next_since_ms(head: Head, seen_ms: int, now: datetime) -> int:
    """The `next_ms` of a head that replaces *head* at *now*. *seen_ms*: when the stream received
    the newest step. It follows the stream and not the clock: a projector that is behind with all
    shards of the stream is not late.
    """
    return max(head.next_ms, window_ms(min(seen_ms, to_ms(now)) - _MARGIN_MS))


def is_late(window: int, head: Head | BrokenHead | None) -> bool:
    """Whether readers of the open runs may pass a segment of *window*. *head*: the head after the
    segment was written.

    The head that replaces *head* has the segments from `next_ms`, and its snapshot may be made from
    what was read before the segment was written. All later ones are made from what is read after.
    """
    return not isinstance(head, Head) or window < head.next_ms


def still_open(steps: Iterable[Step]) -> list[Step]:
    """The runs that have not ended according to *steps*, their latest steps first."""
    found = [step for step in newest(steps).values() if not step.state.ended]
    return sorted(found, reverse=True)


@dataclass(frozen=True, slots=True)
class Counts:
    """Runs of a tenant. `open`: by state. `minutes`: runs that ended, by minute and state; minutes
    in which none ended are absent. `first`: the first minute that was counted.
    """

    open: Mapping[RunState, int]
    minutes: Mapping[datetime, Mapping[RunState, int]]
    first: datetime
