"""Routes for sequences: the executions of several jobs that share a logical time."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import BeforeValidator, Field, StrictBool

from functions.api.app import tenant
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import (
    JOB_ID_SCHEMA,
    REASON_EXAMPLE,
    ExecutionId,
    Reason,
    body_example,
    check_job_id,
    reading,
)
from functions.api.respond import respond
from functions.api.services import services
from nextfire.domain.document import Document
from nextfire.domain.ids import RunKey, parse_execution_id
from nextfire.domain.keys import Scope
from nextfire.domain.redrive_plan import Definition
from nextfire.responses.executions import (
    SequenceCancelResponse,
    SequenceRedriveResponse,
    SequenceResponse,
)
from nextfire.usecases.read_sequence import MAX_NODES, read_sequence


class RedriveChainRequest(Document):
    """Redrive a sequence from one of its jobs on. `downstream`: below it, also start executions
    again that are DEAD, or that an executor skipped. `definition`: `run` refuses with 409 if a job
    that starts again has changed what it does since its run started. `dryRun`: return the plan and
    change nothing.
    """

    from_: Annotated[str, BeforeValidator(check_job_id), JOB_ID_SCHEMA] = Field(
        alias="from", description="Id of the job to redrive from.", examples=["load"]
    )
    downstream: StrictBool = False
    definition: Definition = Definition.CURRENT
    dry_run: StrictBool = False
    reason: Reason = None


RedriveChainBody = Annotated[
    RedriveChainRequest,
    Body(openapi_examples=body_example({"from": "load", "downstream": True})),
    reading(RedriveChainRequest),
]


class CancelChainRequest(Document):
    """Cancel an execution and those below it. `dryRun`: return the plan and change nothing."""

    dry_run: StrictBool = False
    reason: Reason = None


CancelChainBody = Annotated[
    CancelChainRequest, Body(openapi_examples=REASON_EXAMPLE), reading(CancelChainRequest)
]


routes = area()


@routes.get(
    "/v1/executions/<execution_id>/chain",
    **operation(
        "Get the executions of a sequence",
        {HTTPStatus.OK: ("The executions, each after its parents.", SequenceResponse)},
        scope=Scope.READ,
        more="Returns the executions with the same logical time of all jobs that are connected to "
        f"the job of this execution by `after`, at most {MAX_NODES:,}.",
    ),
)
def get_chain(execution_id: ExecutionId) -> Response[str]:
    key = _key(execution_id)
    nodes = read_sequence(services().job_store, services().runs, key, services().clock)
    shown = [node for node in nodes if not node.created_late]
    return respond(SequenceResponse.of(shown, key.scheduled_at))


@routes.post(
    "/v1/executions/<execution_id>/chain/redrive",
    **operation(
        "Redrive a sequence from one of its jobs on",
        {HTTPStatus.OK: ("What happens to each execution.", SequenceRedriveResponse)},
        problems=(HTTPStatus.CONFLICT,),
        more="The execution of `from` starts again if it is DEAD, CANCELLED or SKIPPED, and the "
        "sequence continues from there. Executions that succeeded or have not ended stay. Safe to "
        "repeat.",
    ),
)
def redrive_chain(execution_id: ExecutionId, request: RedriveChainBody) -> Response[str]:
    key, sequences = _key(execution_id), services().sequences
    if request.dry_run:
        steps = sequences.plan(
            key, request.from_, downstream=request.downstream, definition=request.definition
        )
    else:
        steps = sequences.redrive(
            key,
            request.from_,
            downstream=request.downstream,
            reason=request.reason,
            definition=request.definition,
            asked_at=once().first_sent_at,
        )
    return respond(SequenceRedriveResponse.of(steps, key.scheduled_at, request.dry_run))


@routes.post(
    "/v1/executions/<execution_id>/chain/cancel",
    **operation(
        "Cancel an execution and those below it in its sequence",
        {HTTPStatus.OK: ("What happens to each execution.", SequenceCancelResponse)},
        problems=(HTTPStatus.CONFLICT,),
        more="Executions that have ended stay. Running ones are ended by their workers within "
        "seconds. Safe to repeat.",
    ),
)
def cancel_chain(
    execution_id: ExecutionId,
    request: CancelChainBody = CancelChainRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    key, sequence = _key(execution_id), services().cancel_sequence
    steps = sequence.plan(key) if request.dry_run else sequence.cancel(key, request.reason)
    return respond(SequenceCancelResponse.of(steps, key.scheduled_at, request.dry_run))


def _key(execution_id: str) -> RunKey:
    return parse_execution_id(tenant(), execution_id)
