"""Read the runs of a whole sequence at one logical time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from nextfire.domain.edges import Which
from nextfire.domain.errors import ConflictError, NotFoundError, UnavailableError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.job_versions import has_occurrence, version_at
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.domain.run_graph import RunNode, critical_path, in_order
from nextfire.usecases.find_run import possible_instant

MAX_NODES = 2_000
"""Maximum number of jobs of a sequence that are read."""
_TOGETHER = 100
"""Jobs or runs that are read together: the maximum number of keys of one BatchGetItem."""
_AT_MOST = timedelta(seconds=15)
"""The time after which no other batch is read. A batch itself may take some seconds, and the API
Gateway waits 30 s for a response.
"""

T = TypeVar("T")


def read_whole_sequence(jobs: JobStore, runs: RunStore, key: RunKey, clock: Clock) -> list[RunNode]:
    """As `read_sequence`, for changes, which must not leave runs out.

    Raises:
        NotFoundError, UnavailableError, UndecodableError: As for `read_sequence`.
        ConflictError: The sequence has `MAX_NODES` jobs or more.
    """
    nodes = read_sequence(jobs, runs, key, clock)
    if len(nodes) >= MAX_NODES:
        raise ConflictError(
            f"The sequence has {MAX_NODES:,} jobs or more",
            "Cancel or redrive its runs one by one.",
        )
    return nodes


def read_sequence(jobs: JobStore, runs: RunStore, key: RunKey, clock: Clock) -> list[RunNode]:
    """Return the runs with the logical time of *key* of all jobs connected to its job by `same`
    edges: each after its parents. At most `MAX_NODES`, the nearest ones. Without jobs with a
    schedule and parents that have no occurrence then.

    The graph is that of the current definitions: jobs that were deleted are not part of it. The
    reads are consistent: one for each 100 runs, and for each 100 jobs at the same distance.

    Raises:
        NotFoundError: The job of *key* does not exist, or it has another uid; or no run has the
            instant of *key*.
        UnavailableError: Something could not be read, or not all was read within 15 s.
        UndecodableError: A run does not decode.
    """
    first = jobs.get(key.job)
    if first is None or first.uid != key.uid:
        raise NotFoundError("execution", key.execution_id)
    at, reader = possible_instant(key), _Reader(jobs, runs, clock)
    found = _connected(reader, first, at)
    keys = {name: job.run_key(at) for name, job in found.items()}
    records = reader.runs([*keys.values()])
    nodes: dict[str, RunNode] = {}
    for name, job in found.items():
        run, definition = records.get(keys[name]), job.definition
        began_with = None if run is None else run.job_revision
        nodes[name] = RunNode(
            keys[name],
            run,
            [name for name in _parents(job) if name in found],
            rule=definition.trigger_rule,
            setups=definition.setups,
            redefined=began_with is not None and job.defined_after(began_with),
        )
    critical, order = critical_path(nodes), in_order(nodes)
    late = _created_late(found, nodes, order)
    return [
        replace(nodes[name], critical=name in critical, created_late=name in late) for name in order
    ]


def _created_late(
    jobs: Mapping[str, Job], nodes: Mapping[str, RunNode], order: Iterable[str]
) -> set[str]:
    """The *jobs* without a record that were created after the runs of all their parents had ended,
    and the jobs below them: these runs were not handed over to them. *order*: parents first.
    """
    late, settled = set[str](), dict[str, datetime]()
    for name in order:
        job, run, parents = jobs[name], nodes[name].run, nodes[name].parents
        above = [each in settled or each in late for each in parents]
        if run is not None:
            # What its parents skipped starts after all if one of them was redriven.
            if run.state.ended and (all(above) or not run.skipped_by_parents):
                settled[name] = run.finished_at or job.created_at
        elif parents and all(above) and not job.definition.is_timed_join:
            ended = [settled[each] for each in parents if each in settled]
            late |= {name} if all(at < job.created_at for at in ended) else set()
    return late


def _parents(job: Job) -> list[str]:
    """The parents whose runs have the same logical time."""
    return [edge.job for edge in job.definition.after if edge.which is Which.SAME]


def _connected(reader: _Reader, first: Job, at: datetime) -> dict[str, Job]:
    """The jobs connected to *first* by edges that have runs at *at*, by id."""
    found = {first.key.job_id: first}
    level, above, left = [first], set[str](), list[str]()
    while level or left:
        above |= {parent for job in level for parent in _parents(job)}
        near = {name for job in level for name in _neighbours(job)} - {*left}
        names = [name for name in (*left, *sorted(near)) if name not in found]
        # Of those that are read now, some may turn out not to be connected.
        room = MAX_NODES - len(found)
        now, left = names[:room], names[room:] if room else []
        level = [
            job
            for job in reader.jobs(JobKey(first.key.tenant, name) for name in sorted(now))
            if _is_connected(job, found, above) and _runs_at(job, at)
        ]
        found |= {job.key.job_id: job for job in level}
    return found


def _neighbours(job: Job) -> list[str]:
    return [*job.children, *_parents(job)]


def _runs_at(job: Job, at: datetime) -> bool:
    """Whether *job* has a run at *at*, as far as its schedule decides it."""
    if not job.definition.is_timed_join:
        return True
    owner = version_at(job, at)
    return owner is not None and has_occurrence(owner, at) is not False


def _is_connected(job: Job, found: Collection[str], above: Collection[str]) -> bool:
    """Whether *job* is connected to one of *found*, whose parents are *above*: not if it only had
    an edge earlier.
    """
    return job.key.job_id in above or any(parent in found for parent in _parents(job))


class _Reader:
    """Reads jobs and runs in batches, for at most `_AT_MOST`."""

    def __init__(self, jobs: JobStore, runs: RunStore, clock: Clock) -> None:
        self._jobs, self._runs, self._clock = jobs, runs, clock
        self._until = clock.now() + _AT_MOST

    def jobs(self, keys: Iterable[JobKey]) -> list[Job]:
        """Those of the jobs *keys* that exist and decode, and are not CANCELLED."""
        found: list[Job] = []
        for batch in self._batches([*keys]):
            for job in self._jobs.get_many(batch, consistent=True).values():
                if isinstance(job, UnavailableError):
                    raise job  # without it, a part of the sequence would be left out
                if isinstance(job, Job) and job.state is not JobState.CANCELLED:
                    found.append(job)
        return found

    def runs(self, keys: Sequence[RunKey]) -> dict[RunKey, Run]:
        """Those of the runs *keys* that have a record."""
        found: dict[RunKey, Run] = {}
        for batch in self._batches(keys):
            page = self._runs.find(batch, consistent=True)
            if page.unreadable:
                raise UndecodableError(page.unreadable[0].problem)
            found |= {run.key: run for run in page.items}
        return found

    def _batches(self, keys: Sequence[T]) -> Iterator[Sequence[T]]:
        for start in range(0, len(keys), _TOGETHER):
            if self._clock.now() >= self._until:
                seconds = _AT_MOST.total_seconds()
                raise UnavailableError(f"read sequence: not done within {seconds:g} s. Try again.")
            yield keys[start : start + _TOGETHER]
