"""The graph of the jobs of pipelines: orders that the edges allow, cycles, and parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from nextfire.client.errors import Fault
from nextfire.domain.definition import JobDefinition


def parents(definition: JobDefinition) -> tuple[str, ...]:
    """The ids of the jobs that *definition* waits for, in the order of its edges."""
    return tuple(edge.job for edge in definition.after)


def with_ancestors(
    jobs: Mapping[str, JobDefinition], others: Mapping[str, JobDefinition]
) -> Mapping[str, JobDefinition]:
    """*jobs*, and their ancestors among *others*, by id."""
    found, left = {**jobs}, [*jobs.values()]
    while left:
        above = {each: others[each] for each in parents(left.pop()) if each in others}
        left += [above[each] for each in above.keys() - found.keys()]
        found = above | found
    return found


def find_cycle(jobs: Mapping[str, JobDefinition]) -> tuple[str, ...]:
    """The ids of the jobs of one cycle among *jobs*, each a parent of the next one; the first id
    is repeated at the end. Empty without a cycle.
    """
    try:
        _sorter(jobs).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def circular(cycle: Sequence[str]) -> Fault:
    """What is wrong with *cycle*, as `find_cycle` returns it."""
    path = " -> ".join(cycle)
    remedy = f"Remove one of these edges. For example the parent {cycle[-2]} of {cycle[-1]}."
    problem = f"the jobs wait for each other: {path}"
    return Fault(f"{cycle[-1]}.after", None, problem, remedy)


def parents_first(jobs: Mapping[str, JobDefinition]) -> list[str]:
    """The ids of *jobs*, parents before children, independent jobs by id.

    Raises:
        ValueError: The jobs have a cycle.
    """
    return [job_id for level in levels(jobs) for job_id in level]


def levels(jobs: Mapping[str, JobDefinition]) -> Iterator[list[str]]:
    """The ids of *jobs* in levels: the parents of a job are in earlier levels.

    Raises:
        ValueError: The jobs have a cycle.
    """
    sorter = _sorter(jobs)
    sorter.prepare()
    while sorter.is_active():
        level = sorted(sorter.get_ready())
        sorter.done(*level)
        yield level


def unknown_parents(
    jobs: Mapping[str, JobDefinition], known: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """The pairs of a job of *jobs* and a parent that is in neither *jobs* nor *known*."""
    existing = {*jobs, *known}
    for job_id in jobs:
        yield from ((job_id, parent) for parent in parents(jobs[job_id]) if parent not in existing)


def _sorter(jobs: Mapping[str, JobDefinition]) -> TopologicalSorter[str]:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for job_id, definition in jobs.items():
        sorter.add(job_id, *(each for each in parents(definition) if each in jobs))
    return sorter
