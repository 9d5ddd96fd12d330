"""Executes the runs in a pool's queue as an executor's host does, and nothing else.

``python -m benchmarks.executor_host HOST RUNS FILE`` executes `WARM_UP` runs, then RUNS. Stdout has
the host's log. FILE gets the CPU seconds that the RUNS took, of this process and its children.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias, cast

from benchmarks.execute import tree_cpu

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from nextfire.adapters.sqs.run_queue import SqsDelivery

Execute: TypeAlias = "Callable[[Sequence[SqsDelivery]], Sequence[object]]"
"""Executes messages. Returns those that must stay in the queue."""

WARM_UP = 10
_AT_ONCE = 10
_PLENTY_MS = 900_000


class Host:
    """An executor: `lambda` or `worker`. Create it when the environment is that of an executor."""

    def __init__(self, kind: str) -> None:
        # Imported here because these modules read the environment.
        from nextfire.adapters.aws.clients import sqs  # noqa: PLC0415
        from nextfire.adapters.sqs.run_queue import SqsInbox  # noqa: PLC0415
        from nextfire.settings import ExecutorSettings  # noqa: PLC0415

        settings = ExecutorSettings.read()
        self._lease = settings.lease
        self._inbox = SqsInbox(sqs(), queue_url=settings.queue_url)
        self._carry_out = _function() if kind == "lambda" else _worker()

    def execute(self, runs: int) -> None:
        """Execute *runs* runs that are in the queue.

        Raises:
            RuntimeError: They are not there, or one was not executed.
        """
        while runs > 0:
            received = self._inbox.receive(
                min(_AT_ONCE, runs), wait=timedelta(), hidden_for=self._lease
            )
            if not received:
                raise RuntimeError(f"the queue lacks {runs} runs")
            if stay := self._carry_out(received):
                raise RuntimeError(f"not executed: {stay}")
            self._inbox.acknowledge(received)
            runs -= len(received)


def _function() -> Execute:
    """The function with an invocation for each message, as the event source invokes it."""
    from functions.executor import handler  # noqa: PLC0415

    context = cast(
        "LambdaContext", SimpleNamespace(get_remaining_time_in_millis=lambda: _PLENTY_MS)
    )

    def invoke(received: Sequence[SqsDelivery]) -> Sequence[object]:
        stay: list[object] = []
        for each in received:
            record = {
                "body": each.body,
                "receiptHandle": each.receipt_handle,
                "messageId": each.message_id,
                "attributes": {"MessageGroupId": each.group},
            }
            stay += handler.handler({"Records": [record]}, context)["batchItemFailures"]
        return stay

    return invoke


def _worker() -> Execute:
    """The parts of a worker, in one thread."""
    from nextfire.settings import ExecutorSettings  # noqa: PLC0415
    from nextfire.usecases.execute_run import ExecuteRun  # noqa: PLC0415
    from nextfire.usecases.message_batch import MessageBatch  # noqa: PLC0415
    from nextfire.wiring.execution import executor_config, executor_ports  # noqa: PLC0415
    from nextfire.wiring.telemetry import WorkerTelemetry  # noqa: PLC0415

    settings = ExecutorSettings.read()
    telemetry = WorkerTelemetry()
    telemetry.sample(settings.log_sample)
    atexit.register(telemetry.flush)
    execute_run = ExecuteRun(
        executor_ports(settings, telemetry), executor_config(settings, worker="benchmark")
    )
    batch: MessageBatch[SqsDelivery] = MessageBatch(execute_run, telemetry)
    return lambda received: batch.carry_out(received, stopping=lambda: False)


def main(kind: str, runs: int, result: Path) -> None:
    """Execute `WARM_UP` runs, then *runs*; write the CPU seconds of the latter to *result*."""
    host = Host(kind)
    host.execute(WARM_UP)
    before = tree_cpu(os.getpid())
    host.execute(runs)
    result.write_text(str(tree_cpu(os.getpid()) - before))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
