"""The watcher: invoked each minute for its group, lives two, dispatches what is due."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws import SystemClock, dynamodb, sqs
from nextfire.adapters.control_store import DynamoDbControlStore
from nextfire.adapters.due_store import DynamoDbDueStore
from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.run_queue import SqsRunQueue
from nextfire.adapters.run_store import DynamoDbRunStore
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports import Lease
from nextfire.settings import WatcherSettings
from nextfire.usecases.dispatch_due import DispatchDue, Shares
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from nextfire.wiring.telemetry import Telemetry

_AFTER_TROUBLE = timedelta(milliseconds=250)
_TELL_EVERY = timedelta(seconds=5)
_THREADS = 16

telemetry = Telemetry("watcher")


@cache
def _watch_for(group: int) -> Watch:
    """The watcher of *group* in this process; invocations of one process follow each other."""
    settings = WatcherSettings.read()
    executor = ThreadPoolExecutor(_THREADS)
    # Batches have threads of their own: a poll's shards wait for nothing that they submit.
    batches = ThreadPoolExecutor(_THREADS)
    database = dynamodb()
    control = DynamoDbControlStore(database, table=settings.control_table)
    queues = {name: pool.queue_url for name, pool in settings.pools.items()}
    shares = Shares(
        backlogs={name: pool.max_backlog for name, pool in settings.pools.items()},
        weights=settings.tenant_weights,
        quotas=settings.quotas,
    )

    def dispatcher(lease: Lease) -> DispatchDue:
        telemetry.logger.info("holds the lease", group=group, epoch=lease.epoch)
        return DispatchDue(
            jobs=DynamoDbJobStore(
                database,
                table=settings.jobs_table,
                due_table=settings.due_table,
                shards=settings.write_shards,
            ),
            due=DynamoDbDueStore(
                database,
                table=settings.due_table,
                shards=settings.write_shards,
                executor=batches,
            ),
            runs=DynamoDbRunStore(
                database,
                table=settings.runs_table,
                due_table=settings.due_table,
                shards=settings.write_shards,
            ),
            queue=SqsRunQueue(sqs(), queues=queues, executor=batches),
            control=control,
            clock=SystemClock(),
            executor=executor,
            shards=range(group, settings.read_shards, settings.groups),
            epoch=lease.epoch,
            shares=shares,
        )

    lease = HoldLease(control, group=group, holder=f"{group}-{uuid.uuid4().hex[:12]}")
    return Watch(lease, dispatcher)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001
    """Watch until this invocation's life ends; the next one, begun a minute before, goes on.

    Args:
        event: ``{"group": n}``, the constant input of the group's EventBridge rule.
        context: Lambda's; unused.
    """
    clock = SystemClock()
    watch = _watch_for(int(event.get("group", 0)))
    end_at = clock.now() + WatcherSettings.read().life
    tell_at, dispatched = clock.now() + _TELL_EVERY, 0
    while (now := clock.now()) < end_at:
        try:
            report, again_at = watch.step(now)
        except UnavailableError as error:
            telemetry.logger.warning(str(error))
            report, again_at = None, now + _AFTER_TROUBLE
        if report is not None:
            dispatched += len(report.dispatched)
            telemetry.tick(report)
        if now >= tell_at:
            telemetry.flush()
            tell_at = now + _TELL_EVERY
        clock.sleep(max(min(again_at, end_at) - clock.now(), timedelta()))
    try:
        watch.end()
    except UnavailableError as error:
        telemetry.logger.warning(str(error))
    telemetry.flush()
    return {"dispatched": dispatched}
