"""The graph of jobs: check the edges of a job before it is stored, and note them at its parents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from threading import Lock

from nextfire.domain.alignment import check_alignment
from nextfire.domain.definition import JobDefinition
from nextfire.domain.edges import Which
from nextfire.domain.errors import ConflictError, InvalidInputError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import MAX_CHILDREN, Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.when import SCHEDULE_FIELDS
from nextfire.usecases.forget_children import must_be_written
from nextfire.usecases.job_revisions import contended
from nextfire.usecases.read_parents import check_above, in_batches, read_above

_TRIES = 10  # of a change that races with other changes of the same parent
_MAX_GRAPH = 5_000
"""Maximum number of ancestors of a job."""
_MAX_LEVELS = 1_000
"""Maximum number of ancestors in a row. Each is read after the one below it, in one request."""
_RECENT = 200
"""More children than are added to a parent while a request adds one and stores it."""


class JobEdges:
    """Checks and stores the edges of jobs. The executors read the children of a job from the job
    itself; whether an edge exists is decided by the definition of the child.
    """

    def __init__(
        self,
        jobs: JobStore,
        check: Callable[[JobDefinition, JobDefinition | None], None],
        all_jobs: JobStore,
    ) -> None:
        """*check*: raises if the caller may not use a job with this definition. *jobs*: those that
        the caller may access, *all_jobs*: also others: a change must not harm their sequences.
        """
        self._jobs = jobs
        self._all_jobs = all_jobs
        self._check_caller = check
        # The jobs of a batch are stored concurrently. Without it, they would race for their parent.
        self._adding = Lock()

    def attach(
        self, key: JobKey, definition: JobDefinition, former: Job | None, now: datetime
    ) -> None:
        """Check the edges of *definition*, which the job *key* gets in place of that of *former*,
        and add the job to the children of its new parents. Call it before the job is stored: if the
        job is not stored then, the addition has no effect. Idempotent.

        Raises:
            InvalidInputError: A parent does not exist, or has too many children; the edges form a
                cycle, which the message shows; the job has too many ancestors; or the schedules
                cannot meet.
            UndecodableError: A parent, or a parent of one, does not decode.
        """
        was = None if former is None else former.definition
        known = {edge.job for edge in was.after} if was is not None else set()
        added = [edge.job for edge in definition.after if edge.job not in known]
        if added:
            self._check_acyclic(key, added)
        if definition.is_timed_join and (was is None or _times_differ(definition, was)):
            asked = [edge.job for edge in definition.after if edge.which is not Which.LATEST]
            above = read_above(in_batches(self._jobs), key.tenant, asked)
            check_above(above)
            # A pause may end before the next occurrence.
            active = {name: replace(job, state=JobState.ACTIVE) for name, job in above.items()}
            kept = former is not None and not _schedules_differ(definition, former.definition)
            counted_from = former.counted_since if former is not None and kept else now
            check_alignment(definition, counted_from, now, active)
        for parent in added:
            with self._adding:
                self._add_child(JobKey(key.tenant, parent), key.job_id, now)

    def check_deletable(self, job: Job) -> None:
        """Check that no job has *job* as a parent.

        Raises:
            ConflictError: One has.
        """
        for child in _living(self._all_jobs, job.key.tenant, job.children):
            if child.definition.edge_from(job.key.job_id) is None:
                continue
            if not self._may_access([child.key]):
                raise ConflictError(
                    f"Job {job.key.job_id!r} is a parent of a job that you may not access",
                    "Ask your operator to delete that job first, or to remove the parent from it.",
                )
            raise ConflictError(
                f"Job {job.key.job_id!r} is a parent of {child.key.job_id!r}"
                f" ({job.key.job_id} → {child.key.job_id})",
                f"Delete {child.key.job_id!r} first, or remove the parent from its `after`.",
            )

    def _check_acyclic(self, key: JobKey, added: Collection[str]) -> None:
        """Walk from the parents *added* to their ancestors: none may be the job itself."""
        below = dict.fromkeys(added, key.job_id)
        level = list(below)
        if key.job_id in below:
            raise _cycle([key.job_id, key.job_id])
        for _ in range(_MAX_LEVELS):
            above: list[str] = []
            for job in self._existing(key, level, below):
                for edge in job.definition.after:
                    if edge.job == key.job_id:
                        raise self._cycle_through(job.key.job_id, key, below)
                    if edge.job not in below:
                        below[edge.job] = job.key.job_id
                        above.append(edge.job)
            if len(below) > _MAX_GRAPH:
                raise _too_large(key, f"{_MAX_GRAPH:,} ancestors")
            if not above:
                return
            level = above
        raise _too_large(key, f"{_MAX_LEVELS:,} ancestors in a row")

    def _existing(self, key: JobKey, names: Collection[str], below: dict[str, str]) -> list[Job]:
        """The jobs *names*. Only a parent of *key* must exist: deleted jobs further up have no
        effect.
        """
        parents = [name for name in names if below[name] == key.job_id]
        others = [name for name in names if below[name] != key.job_id]
        living = [
            *_living(self._jobs, key.tenant, parents),
            *_living(self._all_jobs, key.tenant, others),
        ]
        found = {job.key.job_id: job for job in living}
        for name in parents:
            if name not in found:
                raise InvalidInputError(
                    "after",
                    name,
                    "job not found",
                    "Create the parent first, or use the id of an existing job.",
                )
        return [*found.values()]

    def _cycle_through(
        self, child: str, key: JobKey, below: Mapping[str, str]
    ) -> InvalidInputError:
        """The error for *child*, of which *key* is a parent. *below*: a child of each ancestor."""
        path = [key.job_id, child]
        while path[-1] != key.job_id:
            path.append(below[path[-1]])
        if self._may_access([JobKey(key.tenant, name) for name in path if name != key.job_id]):
            return _cycle(path)
        return InvalidInputError(
            "after",
            path[-2],
            "forms a cycle through jobs that you may not access",
            "Remove this edge.",
        )

    def _may_access(self, keys: Collection[JobKey]) -> bool:
        """Whether the caller may access all of these jobs, which exist."""
        return all(self._jobs.get(key) is not None for key in keys)

    def _add_child(self, key: JobKey, child: str, now: datetime) -> None:
        for _ in range(_TRIES):
            parent = self._jobs.get(key)
            if parent is None or parent.state is JobState.CANCELLED:
                raise InvalidInputError(
                    "after", key.job_id, "job not found", "Create the parent first."
                )
            self._check_caller(parent.definition, parent.definition)
            children = parent.children
            if child not in children:
                children = (*self._with_room(parent), child)
            elif not must_be_written(parent, now):
                return
            changed = replace(parent.revised(now), children=children)
            if self._jobs.update(changed, None, changed.updated_at):
                return
        raise contended(key)

    def _with_room(self, parent: Job) -> tuple[str, ...]:
        """The children of *parent*, without deleted ones if it has the maximum number.

        Raises:
            InvalidInputError: They are too many nevertheless.
        """
        children = parent.children
        if len(children) >= MAX_CHILDREN:
            children = self._remaining(parent)
        if len(children) >= MAX_CHILDREN:
            raise InvalidInputError(
                "after",
                parent.key.job_id,
                f"already has {MAX_CHILDREN:,} children",
                "Use another parent.",
            )
        return children

    def _remaining(self, parent: Job) -> tuple[str, ...]:
        """The children of *parent* without those that were deleted, or lost the edge; with the
        `_RECENT` latest, if there is room: other requests may be about to store them.
        """
        living = {
            job.key.job_id
            for job in _living(self._all_jobs, parent.key.tenant, parent.children)
            if job.definition.edge_from(parent.key.job_id) is not None
        }
        kept = living | {*parent.children[-_RECENT:]}
        kept = kept if len(kept) < MAX_CHILDREN else living
        return tuple(child for child in parent.children if child in kept)


def _living(jobs: JobStore, tenant: str, names: Collection[str]) -> list[Job]:
    """Those of the jobs *names* that exist and are not CANCELLED."""
    keys = [JobKey(tenant, name) for name in names]
    found = jobs.get_many(keys, consistent=True) if keys else {}
    living = []
    for key in keys:
        # A key can be missing because it could not be read this time.
        job = found.get(key) or jobs.get(key)
        if isinstance(job, Exception):
            raise job
        if job is not None and job.state is not JobState.CANCELLED:
            living.append(job)
    return living


def _times_differ(definition: JobDefinition, was: JobDefinition) -> bool:
    """Whether the edges or the schedule differ."""
    return definition.after != was.after or _schedules_differ(definition, was)


def _schedules_differ(definition: JobDefinition, was: JobDefinition) -> bool:
    return any(getattr(definition, name) != getattr(was, name) for name in SCHEDULE_FIELDS)


def _too_large(key: JobKey, most: str) -> InvalidInputError:
    return InvalidInputError("after", key.job_id, f"has more than {most}", "Split the sequence.")


def _cycle(path: Sequence[str]) -> InvalidInputError:
    """*path*: from the job, parent by parent, back to it."""
    return InvalidInputError(
        "after",
        path[-2] if len(path) > 1 else path[0],
        f"forms a cycle: {' → '.join(path)}",
        "Remove one of these edges.",
    )
