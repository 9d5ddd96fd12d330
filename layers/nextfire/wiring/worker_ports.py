"""The adapters of a worker, and of the return of a dead worker's messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nextfire.adapters.aws.clients import SystemClock, dynamodb, ecs, sqs
from nextfire.adapters.aws.service_clock import SqsServiceClock
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.worker.ecs_deployment import EcsDeployment
from nextfire.adapters.worker.journal import HeldMessage
from nextfire.adapters.worker.task_protection import EcsTaskProtection
from nextfire.domain.ports.clocks import ServiceClock
from nextfire.domain.ports.queues import Journal
from nextfire.settings import EmbeddedSettings, ExecutorSettings, ecs_agent, ecs_metadata
from nextfire.usecases.return_held import ReturnHeld
from nextfire.usecases.serve_pool import Threads
from nextfire.wiring.execution import executor_ports
from nextfire.wiring.telemetry import WorkerTelemetry
from nextfire.wiring.worker import WorkerPorts


def service_clock(settings: ExecutorSettings) -> ServiceClock:
    """The comparison of this machine's clock with that of the queue."""
    if EmbeddedSettings.find() is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - workers on AWS do without SQLite

        return embedded.OneClock()
    return SqsServiceClock(sqs(), SystemClock(), queue_url=settings.queue_url)


def sqs_inbox(queue_url: str) -> SqsInbox:
    """The inbox of a worker on AWS. Only receives wait as long as a poll: a deletion or a heartbeat
    without a response is repeated long before the lease ends.
    """
    return SqsInbox(sqs(), queue_url=queue_url, receiver=sqs(long_poll=True))


def worker_ports(
    settings: ExecutorSettings,
    threads: Threads,
    journal: Journal[Any],
    telemetry: WorkerTelemetry,
) -> WorkerPorts[Any]:
    """The adapters of a worker.

    Raises:
        ValueError: Scripts cannot run here; the message says how to fix that.
    """
    local = EmbeddedSettings.find()
    if local is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - as above

        inbox: Any = embedded.inbox(settings, local)
    else:
        inbox = sqs_inbox(settings.queue_url)
    return WorkerPorts(
        executor=executor_ports(settings, telemetry),
        inbox=inbox,
        journal=journal,
        service_clock=service_clock(settings),
        protection=EcsTaskProtection(
            ecs_agent(), monotonic=time.monotonic, warn=telemetry.logger.warning
        ),
        deployment=EcsDeployment(
            ecs_metadata(), ecs(), monotonic=time.monotonic, log=telemetry.logger.warning
        ),
        threads=threads,
    )


def return_ports(
    settings: ExecutorSettings, held: Sequence[HeldMessage], telemetry: WorkerTelemetry
) -> tuple[ReturnHeld[Any], Sequence[Any]]:
    """The use case that returns the messages *held* of a dead worker, and their deliveries."""
    clock = SystemClock()
    local = EmbeddedSettings.find()
    if local is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - as above

        runs: Any = embedded.run_store(local)
        show: Callable[[Sequence[Any]], Sequence[str]] = embedded.inbox(settings, local).show
        deliveries: Sequence[Any] = embedded.deliveries(held, local)
    else:
        client = sqs()
        runs = DynamoDbRunStore(dynamodb(), table=settings.runs_table)
        show = SqsInbox(client, queue_url=settings.queue_url).show
        deliveries = [
            SqsDelivery(
                client,
                settings.queue_url,
                each.body,
                each.receipt_handle,
                each.message_id,
                each.group,
                each.token,
            )
            for each in held
        ]
    return ReturnHeld(runs, show, clock, telemetry), deliveries
