"""Asks ECS whether workers of a newer deployment have replaced this task."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from nextfire.adapters.worker.ecs_agent import ask_agent

_ASK_EVERY = timedelta(minutes=5)


class EcsDeployment:
    """The deployment of this task, from the metadata at *metadata_uri* and the service at ECS.
    Without *metadata_uri*, this process does not run on ECS and is never replaced.

    For use by one thread. *monotonic* returns seconds. *log* receives a message when the task has
    been replaced, and errors, which count as not replaced.
    """

    def __init__(
        self,
        metadata_uri: str | None,
        client: Any,
        *,
        monotonic: Callable[[], float],
        log: Callable[[str], None],
    ) -> None:
        self._uri = metadata_uri
        self._client = client
        self._monotonic = monotonic
        self._log = log
        self._is_replaced = False
        self._ask_at = monotonic() + _ASK_EVERY.total_seconds()

    def is_replaced(self) -> bool:
        """Whether all tasks of a newer deployment are running. Asks at most every five minutes."""
        now = self._monotonic()
        if self._uri is None or self._is_replaced or now < self._ask_at:
            return self._is_replaced
        self._ask_at = now + _ASK_EVERY.total_seconds()
        try:
            self._is_replaced = self._ask(json.loads(ask_agent("GET", self._uri, "/task")))
        except Exception as error:  # noqa: BLE001 — any error counts as not replaced
            self._log(
                f"cannot read this task's deployment, for which its role needs "
                f"ecs:DescribeServices: {error}"
            )
            return False
        if self._is_replaced:
            self._log("a newer deployment runs: this task ends when its runs have ended")
        return self._is_replaced

    def _ask(self, task: dict[str, Any]) -> bool:
        name = task.get("ServiceName")
        if name is None:  # started on its own
            return False
        answer = self._client.describe_services(cluster=task["Cluster"], services=[name])
        deployments = answer["services"][0]["deployments"]
        own = f"/{task['Family']}:{task['Revision']}"
        return any(
            each["status"] == "PRIMARY"
            and each["runningCount"] >= max(each["desiredCount"], 1)
            and not each["taskDefinition"].endswith(own)
            for each in deployments
        )
