"""Bodies of requests that create or change a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema, WrapValidator
from pydantic_core import ErrorDetails

from functions.api.problems import ModelValidationError
from functions.api.requests import JobId, body_example, read_as
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import ConflictError, InvalidInputError, NextfireError
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.short_form import LONG_NAMES, SHORT_NAMES

_TASK_ID = "It is the id of the job and names its script. For example `daily-report`."
_ANOTHER_SCHEDULE = (
    "taskId is the id of the job: for another schedule of the same script, give another taskId, and"
    " the script as `target`."
)


class JobRequest(JobDefinition):
    """A new job. Without `jobId`, an id is generated."""

    model_config = ConfigDict(defer_build=True)  # built on first use

    spelt: ClassVar[Mapping[str, str]] = {}
    """Field names in the short form, by field name in the long form."""

    job_id: JobId | None = Field(
        default=None,
        description="Id of the job; only in a POST. By default `job_` and 16 hexadecimal digits.",
    )

    @property
    def definition(self) -> JobDefinition:
        # Each field has been validated.
        values = {name: getattr(self, name) for name in JobDefinition.model_fields}
        return JobDefinition.model_construct(self.model_fields_set - {"job_id"}, **values)

    def as_spelled(self, error: NextfireError) -> NextfireError:
        """*error* of this job, with the names of fields that the caller used."""
        if isinstance(error, InvalidInputError):
            return error.about(self.spelt.get(error.field, error.field))
        if type(error) is ConflictError and self.spelt:
            return ConflictError(error.problem, f"{error.remedy} {_ANOTHER_SCHEDULE}")
        return error


class ShortJob(JobRequest):
    """A new job in the short form: `taskId`, `cron` and `params` replace `jobId`, `schedule` and
    `payload`; all other fields except `type` are allowed. `taskId` is the id of the job and,
    without `target`, the name of its script: a second schedule of the same script needs another
    `taskId`, and a `target`.
    """

    spelt: ClassVar[Mapping[str, str]] = SHORT_NAMES


def read_job(body: object) -> JobRequest:
    """Parse a new job in the long or the short form.

    Raises:
        ValidationError, ModelValidationError, InvalidInputError: The body is invalid.
    """
    if not isinstance(body, dict) or not body.keys() & LONG_NAMES.keys():
        return read_as(JobRequest, body)
    for name in ("type", *LONG_NAMES.values()):
        if name in body:
            remedy = "Write the job with `type` and `schedule`, or with `taskId` and `cron`."
            raise InvalidInputError(
                name, body[name], "not allowed together with taskId, cron and params", remedy
            )
    long: dict[str, Any] = {"type": ScheduleType.CRON, "schedule": None}
    if isinstance(body.get("taskId"), str):
        long["target"] = {"handler": body["taskId"]}
    long |= {LONG_NAMES.get(name, name): value for name, value in body.items()}
    try:
        job = read_as(ShortJob, long)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        if "target" not in body and any(fault["loc"][:1] == ("jobId",) for fault in faults):
            faults = [fault for fault in faults if fault["loc"][:1] != ("target",)]
        errors = [_as_spelt(fault, "target" in body) for fault in faults]
        raise ModelValidationError(errors, ShortJob) from error
    if job.job_id is None:
        raise InvalidInputError(
            "taskId",
            body.get("taskId"),
            "required field is missing",
            _TASK_ID,
        )
    return job


def _as_spelt(fault: ErrorDetails, has_target: bool) -> ErrorDetails:  # noqa: FBT001
    if not fault["loc"]:  # a fault of several fields together
        return fault
    first, *rest = fault["loc"]
    if first == "target" and not has_target:
        # which is its handler
        named: ErrorDetails = {**fault, "loc": ("taskId",)}
        return {**named, "ctx": {"remedy": _TASK_ID}} if fault["type"] == "missing" else named
    return {**fault, "loc": (ShortJob.spelt.get(str(first), first), *rest)}


CRON_JOB_EXAMPLE = {
    "jobId": "daily-invoices",
    "type": "CRON",
    "schedule": "0 3 * * *",
    "timezone": "America/Los_Angeles",
    "target": {"handler": "generate_invoices"},
    "payload": {"customer": "acme"},
}
SHORT_JOB_EXAMPLE = {"taskId": "daily-report", "cron": "*/5 * * * *", "params": {"region": "eu"}}
reading_job = WrapValidator(lambda body, _: read_job(body))
JobBody = Annotated[
    JobRequest,
    Body(openapi_examples=body_example(CRON_JOB_EXAMPLE) | {"short": {"value": SHORT_JOB_EXAMPLE}}),
    reading_job,
]
JobPutBody = Annotated[
    JobRequest,
    Body(
        openapi_examples=body_example({k: v for k, v in CRON_JOB_EXAMPLE.items() if k != "jobId"})
    ),
    reading_job,
]
JobPatchBody = Annotated[
    dict[str, Any],
    Body(openapi_examples=body_example({"schedule": "0 4 * * *", "labels": {"team": "billing"}})),
    WithJsonSchema({"type": "object", "title": "JobPatch"}),
]
"""A JSON merge patch (RFC 7396) of a job."""
