"""Query parameters of lists of executions."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import AfterValidator, WithJsonSchema

from functions.api.requests import JOB_ID_SCHEMA, one_of_states, optional_job_id
from nextfire.domain.run import RunState
from nextfire.responses.base import UNREADABLE

_STATES = [*RunState, UNREADABLE]
ExecutionState = Annotated[
    str | None,
    Query(description="Only this state. UNREADABLE: stored items that cannot be decoded."),
    AfterValidator(one_of_states(_STATES, "an execution")),
    WithJsonSchema({"enum": _STATES}),
]
OfJob = Annotated[
    str | None,
    Query(alias="jobId", description="Only executions of this job."),
    AfterValidator(optional_job_id),
    WithJsonSchema(JOB_ID_SCHEMA.json_schema),
]
OfLabels = Annotated[
    list[str] | None,
    Query(
        alias="label",
        description="`key:value`: only executions of jobs that have this label now. Repeat the"
        " parameter or separate labels by commas to require all of them.",
    ),
]
