"""Read the runs of a whole sequence at one logical time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from nextfire.domain.edges import Which
from nextfire.domain.errors import ConflictError, NotFoundError, UnavailableError
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.job_versions import has_occurrence, version_at
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run_graph import RunNode, critical_path, in_order

MAX_NODES = 2_000
"""Maximum number of jobs of a sequence that are read."""


def read_whole_sequence(jobs: JobStore, runs: RunStore, key: RunKey) -> list[RunNode]:
    """As `read_sequence`, for changes, which must not leave runs out.

    Raises:
        NotFoundError: As for `read_sequence`.
        ConflictError: The sequence has `MAX_NODES` jobs or more.
    """
    nodes = read_sequence(jobs, runs, key)
    if len(nodes) >= MAX_NODES:
        raise ConflictError(
            f"The sequence has {MAX_NODES:,} jobs or more",
            "Cancel or redrive its runs one by one.",
        )
    return nodes


def read_sequence(jobs: JobStore, runs: RunStore, key: RunKey) -> list[RunNode]:
    """Return the runs with the logical time of *key* of all jobs connected to its job by `same`
    edges: each after its parents. At most `MAX_NODES`, the nearest ones. Without jobs with a
    schedule and parents that have no occurrence then.

    The graph is that of the current definitions: jobs that were deleted are not part of it.

    Raises:
        NotFoundError: The job of *key* does not exist, or it has another uid.
    """
    first = jobs.get(key.job)
    if first is None or first.uid != key.uid:
        raise NotFoundError("execution", key.execution_id)
    found = _connected(jobs, first, key.scheduled_at)
    nodes: dict[str, RunNode] = {}
    for name, job in found.items():
        of = RunKey(job.key, run_id(job.uid, key.scheduled_at))
        run, definition = runs.get(of), job.definition
        began_with = None if run is None else run.job_revision
        nodes[name] = RunNode(
            of,
            run,
            [name for name in _parents(job) if name in found],
            rule=definition.trigger_rule,
            setups=definition.setups,
            redefined=began_with is not None and job.defined_after(began_with),
        )
    critical = critical_path(nodes)
    return [replace(nodes[name], critical=name in critical) for name in in_order(nodes)]


def _parents(job: Job) -> list[str]:
    """The parents whose runs have the same logical time."""
    return [edge.job for edge in job.definition.after if edge.which is Which.SAME]


def _connected(jobs: JobStore, first: Job, at: datetime) -> dict[str, Job]:
    """The jobs connected to *first* by edges that have runs at *at*, by id."""
    found = {first.key.job_id: first}
    level, above = [first], set[str]()
    while level:
        above |= {parent for job in level for parent in _parents(job)}
        near = {name for job in level for name in _neighbours(job)} - found.keys()
        near = {*sorted(near)[: MAX_NODES - len(found)]}
        level = [
            job
            for job in _read(jobs, first.key.tenant, near)
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
    an edge once.
    """
    return job.key.job_id in above or any(parent in found for parent in _parents(job))


def _read(jobs: JobStore, tenant: str, names: Collection[str]) -> list[Job]:
    read = jobs.get_many([JobKey(tenant, name) for name in sorted(names)], consistent=True)
    for job in read.values():
        if isinstance(job, UnavailableError):
            raise job  # without it, a part of the sequence would be left out
    readable = [job for job in read.values() if isinstance(job, Job)]
    return [job for job in readable if job.state is not JobState.CANCELLED]
