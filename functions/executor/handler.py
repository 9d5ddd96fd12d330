"""The executor as a Lambda function that consumes a pool's queue."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws.clients import sqs
from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.settings import ExecutorSettings
from nextfire.usecases.concurrent_batch import ConcurrentBatch
from nextfire.usecases.message_batch import MessageBatch
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.executor import build_executor
from nextfire.wiring.telemetry import Telemetry

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_HAND_BACK_BEFORE_MS = 15_000
"""Remaining time of an invocation at which its run is handed back: for the grace period, the run
record and the acknowledgement."""

_MAX_BATCH = 10
"""Maximum number of messages in an invocation, by SQS."""
_MARGIN = timedelta(seconds=2)

telemetry = Telemetry("executor")


@cache
def _executor() -> MessageBatch[SqsDelivery] | ConcurrentBatch[SqsDelivery]:
    settings = ExecutorSettings.read()
    telemetry.sample(settings.log_sample)
    config = executor_config(settings, worker=f"lambda-{uuid.uuid4().hex[:12]}")
    batch = build_executor(executor_ports(settings, telemetry), config, telemetry)
    if settings.targets == "scripts":
        return batch
    return ConcurrentBatch(batch, ThreadPoolExecutor(_MAX_BATCH, thread_name_prefix="call"))


def _delivery_of(record: dict[str, Any], client: SQSClient, queue_url: str) -> SqsDelivery:
    return SqsDelivery(
        client,
        queue_url,
        record["body"],
        record["receiptHandle"],
        record["messageId"],
        record["attributes"].get("MessageGroupId", ""),
        receives=int(record["attributes"].get("ApproximateReceiveCount", "1")),
    )


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Execute the run of each message; report the messages that stay in the queue."""
    settings, client = ExecutorSettings.read(), sqs()
    deliveries = [_delivery_of(each, client, settings.queue_url) for each in event["Records"]]

    def stopping() -> bool:
        return context.get_remaining_time_in_millis() < _HAND_BACK_BEFORE_MS

    # The maximum time of a script in this invocation. A script that takes longer is TIMED_OUT: if
    # it were handed back, it would start over forever. A later run of the batch has less time left
    # and is handed back.
    left = timedelta(milliseconds=context.get_remaining_time_in_millis() - _HAND_BACK_BEFORE_MS)
    longest = max(left - _MARGIN, timedelta(seconds=1))
    stay = _executor().carry_out(deliveries, stopping=stopping, longest=longest)
    telemetry.flush()
    return {"batchItemFailures": [{"itemIdentifier": each.message_id} for each in stay]}
