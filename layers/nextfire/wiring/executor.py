"""Builds the process of the Lambda executor from its ports."""

from __future__ import annotations

from typing import Any

from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.message_batch import MessageBatch, MessageNotices

CHILDREN_AT_ONCE = 16
"""How many children of a run an executor serves concurrently."""


def build_executor(
    ports: ExecutorPorts, config: ExecutorConfig, notices: MessageNotices
) -> MessageBatch[Any]:
    """The process of the Lambda executor. Each invocation processes a batch, which Lambda receives
    with the queue's visibility timeout and deletes.
    """
    return MessageBatch(ExecuteRun(ports, config), notices, lease=config.lease)
