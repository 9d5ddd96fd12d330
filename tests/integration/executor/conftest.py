"""The executor's handler, its messages, and queues and tables that refuse calls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — what the SDK raises

from functions.executor import handler as executor
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.wiring import execution
from tests.integration.deployment import Deployment, Proxy, message_for

HOUR = timedelta(hours=1)


def send(system: Deployment, job: Job, *, minutes: int = 0, dispatch: int = 1) -> RunMessage:
    """Dispatch the occurrence of *job* that was due *minutes* ago."""
    at = floor_minute(job.created_at) - timedelta(minutes=minutes)
    message = message_for(job, at, dispatch)
    system.send(message.encode(), group=message.run_id, dedup=f"{message.run_id}-{dispatch}")
    return message


def hidings(proxy: Proxy) -> list[int]:
    """The visibility timeouts that were set, in order."""
    return [
        request["VisibilityTimeout"]
        for name, request in proxy.calls
        if name == "change_message_visibility"
    ]


@pytest.fixture
def queues(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The queue client of the handler, wrapping the real one."""
    proxy = Proxy(system.queues)
    monkeypatch.setattr(executor, "sqs", lambda: proxy)
    return proxy


@pytest.fixture
def database(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The handler's database client, wrapping the real one."""
    proxy = Proxy(system.database)
    monkeypatch.setattr(execution, "dynamodb", lambda: proxy)
    return proxy


def refuse(code: str, *, where: str = "") -> Callable[..., Any]:
    """Reject requests that contain the text *where* with the error *code*."""

    def answer(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if where in str(request):
            raise ClientError({"Error": {"Code": code, "Message": code}}, "Operation")
        return real(**request)

    return answer
