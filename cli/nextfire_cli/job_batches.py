"""The requests in which many jobs are created."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from nextfire.domain.json_text import json_size
from nextfire_cli.documents import Document
from nextfire_cli.errors import CliError

AT_ONCE = 25
"""Maximum number of jobs in a request."""
MAX_BYTES = 255 * 1024
"""Maximum size of these jobs as JSON: the body has 256 KiB, with its braces."""


def batches(jobs: Sequence[Document]) -> Iterator[list[int]]:
    """Yield the numbers of the *jobs* of each request: as many as it can have, parents before their
    children, otherwise in their order. A job that is too large for a request is alone in one.
    """
    batch: list[int] = []
    size = 0
    for number in _parents_first(jobs):
        more = _bytes_of(jobs[number])
        if batch and (len(batch) == AT_ONCE or size + more > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(number)
        size += more
    if batch:
        yield batch


def interrupted(error: CliError, made: int, asked: int, every: int, file: str) -> CliError:
    """The *error* of a request with *asked* jobs of *file*, which has *every* job, after *made* of
    them have a result.
    """
    remedy = (
        f"{made} of {every} jobs have a result above. The {asked} of the request that failed may "
        f"have been created: look with `nextfire jobs list`. The others were not sent. To "
        f"continue, remove the jobs that have one from {file} and repeat the command: a job with "
        "an id is never created twice."
    )
    return CliError(error.problem, "\n".join(filter(None, [error.remedy, remedy])))


def _parents_first(jobs: Sequence[Document]) -> list[int]:
    """The numbers of *jobs* in the order of their levels; jobs of cycles, which the API rejects,
    are last.
    """
    numbers = {_id_of(job): number for number, job in enumerate(jobs)}
    parents = {
        number: [numbers[name] for name in _parents_of(job) if name in numbers]
        for number, job in enumerate(jobs)
    }
    sorter = TopologicalSorter(parents)
    with suppress(CycleError):  # it still yields what precedes the cycle
        sorter.prepare()
    order: list[int] = []
    while sorter.is_active():
        level = sorted(sorter.get_ready())
        order += level
        sorter.done(*level)
    return [*order, *sorted(parents.keys() - order)]


def _id_of(job: Document) -> object:
    return next((job[name] for name in ("jobId", "taskId") if isinstance(job.get(name), str)), None)


def _parents_of(job: Document) -> list[str]:
    after = job.get("after")
    edges = after if isinstance(after, list) else []
    names = [edge.get("job") for edge in edges if isinstance(edge, Mapping)]
    return [name for name in names if isinstance(name, str)]


def _bytes_of(job: Document) -> int:
    return json_size(job) + len(",")
