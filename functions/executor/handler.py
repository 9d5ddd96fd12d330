"""The executor as a Lambda function on a pool's queue."""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws import sqs
from nextfire.adapters.run_queue import SqsDelivery
from nextfire.domain.errors import UnavailableError
from nextfire.settings import ExecutorSettings
from nextfire.usecases.execute_run import Disposition, ExecuteRun
from nextfire.wiring.execution import build_execute_run
from nextfire.wiring.telemetry import Telemetry

_HAND_BACK_BEFORE_MS = 15_000
"""What is left of an invocation when its run is handed back: grace, record, acknowledgement."""

_MARGIN = timedelta(seconds=2)

telemetry = Telemetry("executor")


@cache
def _execute_run() -> ExecuteRun:
    return build_execute_run(ExecutorSettings.read(), worker=f"lambda-{uuid.uuid4().hex[:12]}")


class _LeftError(Exception):
    """The message stays in the queue."""


def _hand_back(delivery: SqsDelivery) -> None:
    try:
        delivery.hide(timedelta())
    except Exception as error:
        # It comes again when the queue's own time is over.
        telemetry.logger.warning("not handed back", exc_info=error)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Carry out each message; report those that stay, and what follows them in their groups."""
    settings, execute_run, client = ExecutorSettings.read(), _execute_run(), sqs()

    # What this invocation can give a script. Less, and a run that fills it would be handed back
    # again and again. One that comes later in the batch finds less, and is handed back.
    left = timedelta(milliseconds=context.get_remaining_time_in_millis() - _HAND_BACK_BEFORE_MS)
    longest = max(left - _MARGIN, timedelta(seconds=1))

    def delivery_of(record: SQSRecord) -> SqsDelivery:
        return SqsDelivery(
            client,
            settings.queue_url,
            record.body,
            record.receipt_handle,
            record.message_id,
            record.attributes.message_group_id or "",
        )

    begun: set[str] = set()

    def carry_out(record: SQSRecord) -> None:
        begun.add(record.message_id)
        delivery = delivery_of(record)
        try:
            delivery.hide(settings.lease)
            handled = execute_run.handle(
                delivery,
                longest=longest,
                stopping=lambda: context.get_remaining_time_in_millis() < _HAND_BACK_BEFORE_MS,
            )
        except UnavailableError as error:
            telemetry.logger.warning("stays in the queue", error=str(error))
            raise
        except Exception:
            telemetry.logger.exception("stays in the queue")
            raise
        telemetry.handled(handled)
        if handled.disposition is Disposition.LEAVE:
            raise _LeftError(handled.reason)

    processor = SqsFifoPartialProcessor(skip_group_on_error=True)
    processor.raise_on_entire_batch_failure = False
    with processor(event["Records"], carry_out):
        processor.process()
    # As long as one of its messages is hidden, nobody gets any of a group.
    for record in map(SQSRecord, event["Records"]):
        if record.message_id not in begun:
            _hand_back(delivery_of(record))
    telemetry.flush()
    return dict(processor.response())
