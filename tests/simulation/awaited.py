"""What runs in sequences wait for, by the definitions of jobs that never changed. The occurrences
of their schedules are enumerated, without the product's code for edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from nextfire.domain.edges import Edge, Which
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.recurrence import occurrences
from nextfire.domain.run import RunState
from nextfire.domain.schedule import UNTIMED
from tests.simulation.sequences import Seen, Sequences

_CLOCKS = timedelta(seconds=4)
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Waits:
    """A run of a parent that is awaited, by its name in reasons, and its ends."""

    name: str
    edge: Edge
    ends: list[Seen]

    def is_old(self, end: Seen, at: datetime) -> bool:
        """Whether *end* is perhaps not recent enough for the occurrence at *at*."""
        latest, finished_at = self.edge.which is Which.LATEST, end.run.finished_at
        return latest and finished_at is not None and finished_at < at - self.edge.within + _CLOCKS


def finished(ends: Iterable[Seen]) -> list[datetime]:
    """When the runs ended, by their records: their writes may have been repeated."""
    return [at for each in ends if (at := each.run.finished_at) is not None]


@dataclass(frozen=True)
class AwaitedBySequences:
    """*unchanged*: the jobs whose definitions and states never changed, except to COMPLETED."""

    sequences: Sequences
    unchanged: Mapping[JobKey, Job]

    def awaited(self, job: Job, key: RunKey) -> list[Waits] | None:
        """What the run *key* of this version of *job* waits for; None: unknown."""
        found: list[Waits] = []
        for edge in job.definition.after:
            at = key.scheduled_at
            if edge.which is Which.SAME:
                found.append(Waits(edge.job, edge, [*self.ended(edge.job, at)]))
            elif edge.which is Which.LATEST:
                found.append(Waits(edge.job, edge, [*self._successes(edge, at)]))
            else:
                times = self._of_interval(job, edge, at)
                if times is None:
                    return None
                found += [
                    Waits(f"{edge.job} at {isoformat(each)}", edge, [*self.ended(edge.job, each)])
                    for each in times
                ]
        return found

    def ended(self, name: str, at: datetime) -> Iterator[Seen]:
        """The ends of the runs of the parent *name* at the logical time *at*."""
        by_time = self.sequences.seen[JobKey(self.sequences.tenant, name)]
        for first, runs in [*by_time.items()]:
            for seen in runs.values():
                yield from (
                    each
                    for each in seen
                    if each.run.state.ended
                    and (
                        first == at
                        or (each.run.covered > 1 and first < at <= each.run.covers_until)
                    )
                )

    def _successes(self, edge: Edge, at: datetime) -> Iterator[Seen]:
        for runs in [*self.sequences.seen[JobKey(self.sequences.tenant, edge.job)].values()]:
            for seen in runs.values():
                yield from (
                    each
                    for each in seen
                    if each.run.state is RunState.SUCCEEDED
                    and each.run.finished_at is not None
                    and each.run.finished_at >= at - edge.within - _CLOCKS
                )

    def _of_interval(self, job: Job, edge: Edge, at: datetime) -> list[datetime] | None:
        own = self._times(job.key, at)
        parents = self._times(JobKey(job.key.tenant, edge.job), at)
        if own is None or parents is None or at not in own:
            return None
        since = max((each for each in own if each < at), default=job.effective_from)
        return [each for each in parents if since < each <= at]

    def _times(self, key: JobKey, until: datetime) -> list[datetime] | None:
        """The logical times of a job up to *until*; None if it changed."""
        job = self.unchanged.get(key)
        if job is None:
            return None
        if job.definition.type not in UNTIMED:
            every = occurrences(job.schedule, job.effective_from)
            some = islice(every, job.definition.max_runs or _MOST)
            return [each.at for each in takewhile(lambda each: each.at <= until, some)]
        found: set[datetime] = set()
        for edge in job.definition.after:
            times = self._times(JobKey(key.tenant, edge.job), until)
            if times is None:
                return None
            found |= {*times}
        return sorted(found)
