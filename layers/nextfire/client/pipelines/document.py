"""The document of a pipeline: its name, and the whole documents of its jobs.

    pipeline: etl
    jobs:
      - jobId: extract
        type: CRON
        schedule: 0 3 * * *
        target: {handler: extract}
      - jobId: load
        type: AFTER
        after: [{job: extract}]
        target: {handler: load}

Members that begin with `x-` are ignored: they hold what YAML anchors name.
`deadlineSec` next to `pipeline` applies to each of its jobs with parents that has none itself.

A job belongs to a pipeline if its label `nextfire.pipeline` has the pipeline's name. The label is
not part of the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from nextfire.client.errors import ClientError, Fault, InvalidValueError
from nextfire.client.pipelines.graph import circular, find_cycle
from nextfire.client.requests import JobRequest
from nextfire.dataclass import dataclass
from nextfire.domain.definition import MAX_LABELS, JobDefinition
from nextfire.domain.errors import shorten
from nextfire.domain.ids import JOB_ID
from nextfire.domain.invalid_fields import invalid_fields

OWNER = "nextfire.pipeline"
"""The label whose value is the name of the job's pipeline."""
_MEMBERS = {"pipeline", "deadlineSec", "jobs"}
_IGNORED = "x-"
"""Members with this prefix hold what YAML anchors name, as in Docker Compose."""
_NOT_JSON = (TypeError, ValueError, RecursionError)
"""What `json.dumps` raises, after a `ValidationError` was caught."""
_NAME = "Use 1 to 64 letters, digits, hyphens and underscores. For example `etl`."


class PipelineError(InvalidValueError):
    """A pipeline cannot be read, or not be applied. `errors`: what is wrong, and how to fix it."""

    def __init__(self, problem: str, errors: Sequence[Fault]) -> None:
        self.errors = [*errors]
        super().__init__(problem, "\n".join(map(str, errors)))


@dataclass(frozen=True)
class Pipeline:
    """A pipeline. `name`: None for jobs that belong to no pipeline. `jobs`: their definitions by
    id, without the label of the owner. `source`: where it is from, for messages.
    """

    name: str | None
    jobs: Mapping[str, JobDefinition]
    source: str = "the pipeline"

    def document(self) -> dict[str, Any]:
        """Return the document, without fields that have their default. `read` returns the same
        pipeline for it.
        """
        name = {} if self.name is None else {"pipeline": self.name}
        return name | {"jobs": [{"jobId": each} | compact(self.jobs[each]) for each in self.jobs]}


def read(document: object, source: str = "the pipeline") -> list[Pipeline]:
    """Parse the document of a pipeline, or a list of these. *source*: its name in messages.

    Raises:
        PipelineError: A document is invalid. Its `errors` name all invalid fields.
    """
    documents = document if isinstance(document, list) else [document]
    faults: list[Fault] = []
    found = [_pipeline(each, source, faults) for each in documents]
    if faults:
        faults += [circular(cycle) for each in found if (cycle := find_cycle(each.jobs))]
        raise PipelineError(f"{source} is invalid.", faults)
    return found


def split(document: Mapping[str, Any]) -> tuple[str | None, JobDefinition]:
    """Split a job as the API returns it into the name of its pipeline and its definition without
    that label.

    Raises:
        ValidationError: A newer API wrote a definition that this version cannot read.
    """
    fields = {name: document[name] for name in _FIELDS if name in document}
    labels = dict(fields.get("labels", {}))
    owner = labels.pop(OWNER, None)
    return owner, _parsed(JobDefinition, {**fields, "labels": labels})


def unreadable(document: Mapping[str, Any]) -> ClientError:
    """The error for a job that `split` cannot read."""
    return ClientError(
        f"This version cannot read the definition of the job {document.get('jobId')}.",
        "Install the version of the API, or a newer one: pip install -U nextfire",
    )


def owned(definition: JobDefinition, owner: str | None) -> JobDefinition:
    """Return *definition* with the label of its *owner*."""
    if owner is None:
        return definition
    return definition.model_copy(update={"labels": {**definition.labels, OWNER: owner}})


def compact(definition: JobDefinition) -> dict[str, Any]:
    """Return the document of *definition* without the fields that have their default."""
    whole = definition.document()
    short = definition.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    short.pop("payload", None)
    if definition.payload != {}:
        short["payload"] = definition.payload
    # Some defaults depend on other fields: an absent `maxDelayMs` on `initialDelayMs`.
    again = _parsed(JobDefinition, short)
    for name, field in JobDefinition.model_fields.items():
        alias = field.alias or name
        if getattr(again, name) != getattr(definition, name):
            short[alias] = whole[alias]
    return short


def _pipeline(document: object, source: str, faults: list[Fault]) -> Pipeline:
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        remedy = "Write `pipeline: NAME` and `jobs:` with a list of job documents."
        if isinstance(document, dict) and "type" in document:
            remedy += " For one job without a pipeline: nextfire jobs create -f FILE"
        faults.append(Fault("jobs", "absent", "a pipeline has a list of jobs", remedy))
        return Pipeline(None, {}, source)
    for member in sorted(document.keys() - _MEMBERS, key=str):  # YAML has other keys than texts
        if str(member).startswith(_IGNORED):
            continue
        remedy = "A pipeline has the fields `pipeline`, `deadlineSec` and `jobs`."
        faults.append(Fault(str(member), shorten(document[member]), "unknown field", remedy))
    name = document.get("pipeline")
    if name is not None and not (isinstance(name, str) and JOB_ID.fullmatch(name)):
        faults.append(Fault("pipeline", shorten(name), "not the name of a pipeline", _NAME))
        name = None
    jobs: dict[str, JobDefinition] = {}
    deadline = _deadline(document.get("deadlineSec"), faults)
    for number, body in enumerate(document["jobs"]):
        has_parents = isinstance(body, dict) and body.get("after")
        usual = {} if deadline is None or not has_parents else {"deadlineSec": deadline}
        _add_job(jobs, {**usual, **body} if usual else body, f"jobs[{number}]", name, faults)
    return Pipeline(name, jobs, source)


def _deadline(seconds: object, faults: list[Fault]) -> object:
    """Return *seconds*, the deadline of a pipeline, if a job can have it; else add to *faults*."""
    job = {"type": "AFTER", "after": [{"job": "a"}], "target": {"handler": "a"}}
    try:
        _parsed(JobRequest, job if seconds is None else {**job, "deadlineSec": seconds})
    except ValidationError as error:
        faults += _faults(error)
        return None
    except _NOT_JSON as error:
        faults.append(_not_json("deadlineSec", error))
        return None
    return seconds


def _not_json(field: str, error: Exception) -> Fault:
    remedy = "Use texts, numbers, true, false, null, lists and objects."
    return Fault(field, None, f"not JSON: {error}", remedy)


def _faults(error: ValidationError, job_id: str = "") -> list[Fault]:
    found = invalid_fields(error.errors(include_url=False), JobRequest, job_id)
    return [Fault(each.field, each.value, each.problem, each.remedy) for each in found]


def _add_job(
    jobs: dict[str, JobDefinition],
    body: object,
    place: str,
    owner: str | None,
    faults: list[Fault],
) -> None:
    job_id = body.get("jobId") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
        remedy = "Each job needs an id of 1 to 64 letters, digits, hyphens and underscores."
        given = "absent" if job_id is None else shorten(job_id)
        faults.append(Fault(f"{place}.jobId", given, "not the id of a job", remedy))
        return
    if job_id in jobs:
        remedy = "Give each job of a pipeline its own id."
        faults.append(Fault(f"{place}.jobId", shorten(job_id), "listed twice", remedy))
    try:
        jobs[job_id] = parse_job(job_id, body, owner)
    except PipelineError as error:
        faults += error.errors


def parse_job(job_id: str, body: Mapping[str, Any], owner: str | None) -> JobDefinition:
    """Parse the document *body* of the job *job_id*, which *owner* is to own.

    Raises:
        PipelineError: It is invalid. Fields are named ``job_id.field``.
    """
    labels = body.get("labels")
    if isinstance(labels, dict) and OWNER in labels:
        remedy = "Omit it: `pipeline: NAME` at the top of the file sets it."
        fault = Fault(f"{job_id}.labels.{OWNER}", shorten(labels[OWNER]), "reserved", remedy)
        raise PipelineError(f"Job {job_id} is invalid.", [fault])
    if isinstance(labels, dict) and owner is not None and len(labels) == MAX_LABELS:
        remedy = f"A job of a pipeline has at most {MAX_LABELS - 1}: its owner is one more."
        fault = Fault(f"{job_id}.labels", f"{len(labels)} labels", "too many", remedy)
        raise PipelineError(f"Job {job_id} is invalid.", [fault])
    try:
        request = _parsed(JobRequest, body)
    except ValidationError as error:
        raise PipelineError(f"Job {job_id} is invalid.", _faults(error, job_id)) from error
    except _NOT_JSON as error:
        raise PipelineError(f"Job {job_id} is invalid.", [_not_json(job_id, error)]) from error
    values = {name: getattr(request, name) for name in JobDefinition.model_fields}
    return JobDefinition.model_construct(None, **values)


def _parsed(model: type[Any], document: Mapping[str, Any]) -> Any:  # noqa: ANN401 — a model
    # As the API does: JSON types only, and no names of Python.
    text = json.dumps(document, allow_nan=False)
    return model.model_validate_json(text, by_alias=True, by_name=False)


_FIELDS = frozenset(field.alias or name for name, field in JobDefinition.model_fields.items())
