"""Reads jobs back as the documents of their pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from nextfire.client.api import Client
from nextfire.client.errors import MissingError
from nextfire.client.pipelines.document import OWNER, Pipeline, split, unreadable
from nextfire.client.pipelines.graph import find_cycle, parents_first
from nextfire.dataclass import dataclass
from nextfire.domain.definition import JobDefinition
from nextfire.domain.occurrences import JobState
from nextfire.responses.base import UNREADABLE


@dataclass(frozen=True)
class Exported:
    """The result of an export. `pipelines`: by name; last the jobs of no pipeline, if there are
    any. `unreadable`: ids of jobs that are left out because the API cannot decode them. `added`:
    names of pipelines whose other jobs were included, although they do not have the labels.
    """

    pipelines: list[Pipeline]
    unreadable: list[str]
    added: list[str]


def export(
    client: Client, *, pipeline: str | None = None, labels: Mapping[str, str] | None = None
) -> Exported:
    """Read all jobs that are not deleted, or those of *pipeline*, or those with all *labels*. A
    pipeline is always exported whole, so that applying the result removes nothing. Changes of the
    last second may be missing.

    Raises:
        MissingError: *pipeline* has no jobs.
        ClientError: A call failed.
    """
    wanted = dict(labels or {}) | ({} if pipeline is None else {OWNER: pipeline})
    found = _Found()
    found.add(_listed(client, wanted))
    if pipeline is not None and not found.jobs:
        raise MissingError(
            f"The pipeline {pipeline!r} has no jobs.",
            "List all jobs with their pipelines: nextfire export",
        )
    before = set(found.jobs)
    names = {name for name in found.owners.values() if name is not None} if labels else set()
    added = []
    for name in sorted(names):
        found.add(_listed(client, {OWNER: name}))
        if found.jobs.keys() - before:
            added.append(name)
            before = set(found.jobs)
    return Exported(found.pipelines(), sorted(found.unreadable), added)


class _Found:
    def __init__(self) -> None:
        self.jobs: dict[str, JobDefinition] = {}
        self.owners: dict[str, str | None] = {}
        self.unreadable: set[str] = set()

    def add(self, documents: Iterable[Mapping[str, Any]]) -> None:
        for document in documents:
            job_id, state = str(document["jobId"]), document.get("state")
            if state == UNREADABLE:
                self.unreadable.add(job_id)
            elif state != JobState.CANCELLED:
                try:
                    self.owners[job_id], self.jobs[job_id] = split(document)
                except ValidationError as error:
                    raise unreadable(document) from error

    def pipelines(self) -> list[Pipeline]:
        # A race of changes can leave a cycle in what a listing shows.
        order = sorted(self.jobs) if find_cycle(self.jobs) else parents_first(self.jobs)
        names = sorted({each for each in self.owners.values() if each is not None})
        return [
            Pipeline(name, {each: self.jobs[each] for each in order if self.owners[each] == name})
            for name in (*names, *([None] if None in self.owners.values() else []))
        ]


def _listed(client: Client, labels: Mapping[str, str]) -> Iterable[Mapping[str, Any]]:
    pairs = [f"{name}:{value}" for name, value in labels.items()]
    return (job.document for job in client.jobs(label=pairs or None))
