"""What applying pipelines changes: the comparison of what is declared with what exists. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from nextfire.client.errors import Fault
from nextfire.client.pipelines.diff import FieldChange, changed_fields
from nextfire.client.pipelines.document import Pipeline, PipelineError, owned
from nextfire.client.pipelines.graph import (
    circular,
    find_cycle,
    parents,
    parents_first,
    unknown_parents,
    with_ancestors,
)
from nextfire.dataclass import dataclass
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.recurrence import check
from nextfire.domain.remedies import nearest
from nextfire.domain.when import SCHEDULE_FIELDS


class Action(StrEnum):
    """What happens to a job."""

    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Existing:
    """A job as it is stored. `definition`: None if the job is deleted; otherwise without the label
    of the `owner`, the name of its pipeline. `etag`: its version.
    """

    etag: str
    definition: JobDefinition | None
    owner: str | None = None


@dataclass(frozen=True)
class JobChange:
    """What happens to the job `job_id` of the pipeline `owner`. `definition`: the new one; None if
    it is removed. `was`: the stored job; None if it never existed. `fields`: what an update
    changes. `adopted`: the job gets its owner by this.
    """

    action: Action
    job_id: str
    owner: str | None
    definition: JobDefinition | None
    was: Existing | None
    fields: Sequence[FieldChange] = ()
    adopted: bool = False

    def request(self) -> dict[str, Any]:
        """The document to send for a job that is created or updated."""
        if self.definition is None:
            raise ValueError(f"{self.job_id} is removed")
        return owned(self.definition, self.owner).document()

    def key(self) -> str:
        """The idempotency key of the creation: the same for each repetition of it, and another one
        after the job was deleted or its document changed.
        """
        former = None if self.was is None else self.was.etag
        text = json.dumps([self.job_id, former, self.request()], sort_keys=True)
        return f"apply-{hashlib.sha256(text.encode()).hexdigest()}"

    def document(self) -> dict[str, Any]:
        """Return the change as JSON."""
        found: dict[str, Any] = {"action": self.action.value, "jobId": self.job_id}
        if self.owner is not None:
            found["pipeline"] = self.owner
        if self.adopted:
            found["adopted"] = True
        if self.fields:
            found["fields"] = [each.document() for each in self.fields]
        return found


@dataclass(frozen=True)
class Plan:
    """Changes in the order in which they are applied: parents are created and updated before their
    children, then children are removed before their parents.
    """

    changes: Sequence[JobChange]

    def __bool__(self) -> bool:
        return any(each.action is not Action.UNCHANGED for each in self.changes)

    def of(self, action: Action) -> list[JobChange]:
        """The changes of one kind, in order."""
        return [each for each in self.changes if each.action is action]

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {"changes": [each.document() for each in self.changes]}


@dataclass(frozen=True)
class Declared:
    """The jobs of several pipelines. `jobs`: the definition of each job by id. `owners`: the name
    of its pipeline. `names`: the pipelines whose other jobs are removed.
    """

    jobs: Mapping[str, JobDefinition]
    owners: Mapping[str, str | None]
    names: frozenset[str]

    def outside(self) -> frozenset[str]:
        """The ids of parents that are not declared themselves."""
        return frozenset(parent for _, parent in unknown_parents(self.jobs, ()))


def declare(pipelines: Iterable[Pipeline]) -> Declared:
    """Combine *pipelines*. Pipelines with the same name are one.

    Raises:
        PipelineError: A job is declared twice, or the edges have a cycle.
    """
    jobs: dict[str, JobDefinition] = {}
    owners: dict[str, str | None] = {}
    sources: dict[str, str] = {}
    faults: list[Fault] = []
    names: set[str] = set()
    for each in pipelines:
        names |= set() if each.name is None else {each.name}
        for job_id, definition in each.jobs.items():
            if job_id in jobs:
                problem = f"declared in {sources[job_id]} and in {each.source}"
                faults.append(Fault("jobId", repr(job_id), problem, "Declare each job once."))
            jobs[job_id], owners[job_id], sources[job_id] = definition, each.name, each.source
    if not faults and (cycle := find_cycle(jobs)):
        faults.append(circular(cycle))
    if faults:
        raise PipelineError("The pipelines are invalid.", faults)
    return Declared(jobs, owners, frozenset(names))


def plan(
    declared: Declared,
    existing: Mapping[str, Existing],
    *,
    adopt: bool = False,
    faults: Iterable[Fault] = (),
) -> Plan:
    """Compare what is *declared* with what is *existing*: all declared jobs that exist, their
    parents, all jobs of the declared pipelines, and if `gains_parents` all ancestors. *adopt*: take
    over jobs that belong to another pipeline or to none. *faults*: what else is wrong.

    Raises:
        PipelineError: There are *faults*; a job belongs to another pipeline, or to none; a parent
            does not exist; or the edges have a cycle, together with those of other jobs.
    """
    living = {job_id: each for job_id, each in existing.items() if each.definition is not None}
    removed = {
        job_id: each.definition
        for job_id, each in living.items()
        if job_id not in declared.jobs and each.owner in declared.names and each.definition
    }
    others = {
        job_id: each.definition
        for job_id, each in living.items()
        if job_id not in declared.jobs and job_id not in removed and each.definition
    }
    graph = with_ancestors(declared.jobs, others)
    ties = [*_foreign(declared, living, adopt=adopt), *_orphans(declared, living, removed)]
    if cycle := find_cycle(graph):
        graph = declared.jobs  # a race of changes can leave a cycle of other jobs
        ties += [circular(_from_one_of(cycle, graph))] if graph.keys() & {*cycle} else []
    if faults := [*ties, *faults]:
        raise PipelineError("The pipelines cannot be applied. Nothing was changed.", faults)
    kept = [
        _change(job_id, declared.jobs[job_id], declared.owners[job_id], existing.get(job_id))
        for job_id in parents_first(graph)
        if job_id in declared.jobs
    ]
    gone = [
        JobChange(Action.REMOVE, job_id, living[job_id].owner, None, living[job_id])
        for job_id in reversed(parents_first(removed))
    ]
    return Plan([*kept, *gone])


def gains_parents(declared: Declared, existing: Mapping[str, Existing]) -> bool:
    """Whether a declared job that exists gets a new parent: only then can the edges of jobs that
    are not declared close a cycle.
    """
    return any(
        {*parents(declared.jobs[job_id])} - {*parents(each.definition)}
        for job_id, each in existing.items()
        if job_id in declared.jobs and each.definition is not None
    )


def new_schedules(
    declared: Declared, existing: Mapping[str, Existing]
) -> Mapping[str, JobDefinition]:
    """The declared jobs, by id, whose schedule differs from that of the existing job."""
    found: dict[str, JobDefinition] = {}
    for job_id, new in declared.jobs.items():
        was = existing[job_id].definition if job_id in existing else None
        if was is None or any(getattr(new, n) != getattr(was, n) for n in SCHEDULE_FIELDS):
            found[job_id] = new
    return found


def schedule_faults(jobs: Mapping[str, JobDefinition], now: datetime) -> Iterator[Fault]:
    """What is wrong with the schedules of *jobs*: each must be valid, and fire after *now*, the
    instant of the API.
    """
    for job_id, definition in jobs.items():
        try:
            check(definition.schedule_from(now))
        except InvalidInputError as error:
            named = error.about(f"{job_id}.{error.field}")
            yield Fault(named.field, named.value, named.problem, named.remedy)


def _from_one_of(cycle: Sequence[str], names: Collection[str]) -> Sequence[str]:
    """*cycle*, beginning and ending with one of *names*."""
    first = next(place for place, name in enumerate(cycle) if name in names)
    return [*cycle[first:-1], *cycle[: first + 1]]


def _change(
    job_id: str, definition: JobDefinition, owner: str | None, was: Existing | None
) -> JobChange:
    if was is None or was.definition is None:
        return JobChange(Action.CREATE, job_id, owner, definition, was)
    old, new = owned(was.definition, was.owner), owned(definition, owner)
    fields = changed_fields(old, new)
    action = Action.UPDATE if fields else Action.UNCHANGED
    return JobChange(action, job_id, owner, definition, was, fields, was.owner != owner)


def _foreign(declared: Declared, living: Mapping[str, Existing], *, adopt: bool) -> Iterator[Fault]:
    """Declared jobs that belong to another owner."""
    for job_id, owner in declared.owners.items():
        if job_id not in living or living[job_id].owner == owner or (adopt and owner is not None):
            continue
        has = living[job_id].owner
        problem = f"the job belongs to the pipeline {has}" if has else "the job has no pipeline"
        if owner is None:
            remedy = f"Declare it in a file with `pipeline: {has}`, or use another id."
        else:
            remedy = f"To let the pipeline {owner} own it, add --adopt (in Python: adopt=True)."
        yield Fault("jobId", repr(job_id), problem, remedy)


def _orphans(
    declared: Declared,
    living: Mapping[str, Existing],
    removed: Mapping[str, JobDefinition],
) -> Iterator[Fault]:
    """Edges to jobs that do not exist after the change."""
    for child, parent in unknown_parents(declared.jobs, living.keys() - removed.keys()):
        if parent in removed:
            problem = f"the parent {parent!r} is removed: it left its pipeline's file"
        else:
            problem = f"the parent {parent!r} does not exist"
        remedy = "Declare the parent too, or remove the edge."
        others = {*declared.jobs, *living} - {child, *removed}
        if parent not in removed and (like := nearest(parent, sorted(others))):
            remedy = f"{like} If not, declare the parent too, or remove the edge."
        yield Fault(f"{child}.after", repr(parent), problem, remedy)
    for child, each in living.items():
        if child in declared.jobs or child in removed or each.definition is None:
            continue
        for parent in parents(each.definition):
            if parent in removed:
                remedy = f"Keep {parent}, or change {child} first."
                problem = f"the job {child!r} of another pipeline waits for it"
                yield Fault("jobId", repr(parent), problem, remedy)
