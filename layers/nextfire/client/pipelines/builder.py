"""Declares a pipeline in Python.

with nextfire.pipeline("etl") as p:
extract = p.job("extract", type="CRON", schedule="0 3 * * *", target={"handler": "extract"})
clean, count = (p.job(each, target={"handler": each}) for each in ("clean", "count"))
load = p.job("load", target={"handler": "load"})
extract >> [clean, count] >> load

with nextfire.Client() as client:
p.apply(client)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, overload

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from nextfire.client.api import Client
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.client.pipelines.document import Pipeline, read
from nextfire.client.pipelines.plan import JobChange, Plan, declare
from nextfire.client.pipelines.what_if import WhatIf, foresee
from nextfire.domain.schedule import ScheduleType


class PipelineJob:
    """A job of a `PipelineBuilder`. ``a >> b``: b runs after a."""

    def __init__(self, job_id: str, body: dict[str, Any]) -> None:
        self.job_id = job_id
        self.body = body
        """The JSON document of the job."""

    def after(self, *parents: PipelineJob | str, **edge: Any) -> PipelineJob:  # noqa: ANN401 — JSON
        """Add edges from *parents*: jobs of this pipeline, or ids of other jobs. A job without a
        type gets the type AFTER.

        Args:
            parents: The parents.
            edge: Fields of each edge, e.g. ``delay_sec=60``.

        Example:
            load.after(extract, delay_sec=60)
        """
        self.body.setdefault("type", ScheduleType.AFTER.value)
        for parent in parents:
            job = parent if isinstance(parent, str) else parent.job_id
            self.body.setdefault("after", []).append({"job": job, **_json(edge)})
        return self

    @overload
    def __rshift__(self, child: PipelineJob) -> PipelineJob: ...
    @overload
    def __rshift__(self, child: Iterable[PipelineJob]) -> JobGroup: ...
    def __rshift__(self, child: PipelineJob | Iterable[PipelineJob]) -> PipelineJob | JobGroup:
        return JobGroup([self]) >> child

    def __rrshift__(self, parents: Iterable[PipelineJob]) -> PipelineJob:
        return JobGroup(parents) >> self


class JobGroup(Sequence[PipelineJob]):
    """Several jobs. ``[a, b] >> c``: c runs after a and b."""

    def __init__(self, jobs: Iterable[PipelineJob]) -> None:
        self._jobs = [*jobs]

    @overload
    def __getitem__(self, at: int) -> PipelineJob: ...
    @overload
    def __getitem__(self, at: slice) -> list[PipelineJob]: ...
    def __getitem__(self, at: int | slice) -> PipelineJob | list[PipelineJob]:
        return self._jobs[at]

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PipelineJob]:
        return iter(self._jobs)

    @overload
    def __rshift__(self, child: PipelineJob) -> PipelineJob: ...
    @overload
    def __rshift__(self, child: Iterable[PipelineJob]) -> JobGroup: ...
    def __rshift__(self, child: PipelineJob | Iterable[PipelineJob]) -> PipelineJob | JobGroup:
        if isinstance(child, PipelineJob):
            return child.after(*self._jobs)
        group = JobGroup(child)
        for each in group:
            each.after(*self._jobs)
        return group


class PipelineBuilder:
    """A pipeline that is declared in Python; see `pipeline`. Used with ``with``, it checks the
    whole pipeline at the end of the block.
    """

    def __init__(self, name: str, *, deadline_sec: int | None = None) -> None:
        self.name = name
        self._deadline_sec = deadline_sec
        self._jobs: list[PipelineJob] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.pipeline()

    def job(
        self,
        job_id: str,
        body: Mapping[str, Any] | None = None,
        **fields: Any,  # noqa: ANN401 — JSON
    ) -> PipelineJob:
        """Declare a job.

        Args:
            job_id: Its id.
            body: Its JSON document.
            fields: Fields of the document, in Python's spelling: ``timeout_sec=60``.
        """
        made = PipelineJob(job_id, {**_json(body or {}), **_json(fields)})
        self._jobs.append(made)
        return made

    def document(self) -> dict[str, Any]:
        """Return the document of the pipeline, as in a file for `nextfire apply`.

        Raises:
            PipelineError: The pipeline is invalid.
        """
        return self.pipeline().document()

    def pipeline(self) -> Pipeline:
        """Return the checked pipeline.

        Raises:
            PipelineError: It is invalid. Its `errors` name all invalid fields.
        """
        jobs = [{"jobId": each.job_id, **each.body} for each in self._jobs]
        document = {"pipeline": self.name, "deadlineSec": self._deadline_sec, "jobs": jobs}
        [found] = read(document, f"the pipeline {self.name}")
        declare([found])
        return found

    def plan(self, client: Client, *, adopt: bool = False) -> Plan:
        """Return what `apply` would change. Changes nothing.

        Raises:
            PipelineError: The pipeline cannot be applied.
            ClientError: A call failed.
        """
        return make_plan(client, [self.pipeline()], adopt=adopt)

    def what_if(self, *fail: PipelineJob | str) -> WhatIf:
        """Decide what each job would do if the jobs *fail* failed. Needs no API.

        Raises:
            PipelineError: The pipeline is invalid, or *fail* are not jobs of it.
        """
        names = [each if isinstance(each, str) else each.job_id for each in fail]
        return foresee([self.pipeline()], names)

    def apply(
        self,
        client: Client,
        *,
        adopt: bool = False,
        report: Callable[[JobChange], None] = lambda _: None,
    ) -> Plan:
        """Create, update and remove jobs until they are as declared. May be repeated, also after
        an interruption.

        Args:
            client: The API.
            adopt: Take over jobs that belong to another pipeline or to none.
            report: Is called after each change.

        Returns:
            What was changed.

        Raises:
            PipelineError: The pipeline cannot be applied. Nothing was changed.
            ApplyError: A change failed. The changes before it are done.
            ClientError: A call failed. Nothing was changed.
        """
        changes = self.plan(client, adopt=adopt)
        apply_plan(client, changes, report=report)
        return changes


def pipeline(name: str, *, deadline_sec: int | None = None) -> PipelineBuilder:
    """Declare a pipeline.

    Args:
        name: 1 to 64 letters, digits, hyphens and underscores.
        deadline_sec: `deadlineSec` of each job with parents that has none itself.

    Example:
        with nextfire.pipeline("etl") as p:
            extract = p.job("extract", type="MANUAL", target={"handler": "extract"})
            load = p.job("load", target={"handler": "load"})
            extract >> load
        p.apply(client)
    """
    return PipelineBuilder(name, deadline_sec=deadline_sec)


def _json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The members of *fields* in JSON's spelling, models as JSON."""
    return {to_camel(name): _value(value) for name, value in fields.items()}


def _value(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return [_value(each) for each in value] if isinstance(value, list | tuple) else value
