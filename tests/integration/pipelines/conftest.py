"""A client of the API's own handler, which a test can stop at any write."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import pytest

from nextfire import Client
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.client.pipelines.document import Pipeline, read
from nextfire.client.pipelines.export import export
from nextfire.client.pipelines.plan import JobChange
from tests.integration.deployment import Deployment
from tests.integration.test_client import Handler

MANUAL: dict[str, Any] = {"type": "MANUAL", "target": {"handler": "hello"}}


class Dying(Handler):
    """Lets a limited number of writes through. The one after them is lost: before it takes effect,
    or after.
    """

    writes = 10**6
    takes_effect = False

    def __init__(self, system: Deployment) -> None:
        super().__init__(system)
        self._one_at_a_time = threading.RLock()  # as a function handles requests

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        with self._one_at_a_time:
            return self._handle(request)

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        if request.method in {"POST", "PUT", "DELETE"}:
            self.writes -= 1
            if self.writes < 0:
                if self.writes == -1 and self.takes_effect:
                    super().handle_request(request)
                raise KeyboardInterrupt  # as if the process died
        return super().handle_request(request)


@pytest.fixture
def handler(system: Deployment) -> Dying:
    return Dying(system)


@pytest.fixture
def client(handler: Dying) -> Iterator[Client]:
    with Client(
        "https://api.example.com", auth=httpx2.Auth(), transport=handler, sleep=lambda _: None
    ) as client:
        yield client


def job(*parents: str, **fields: Any) -> dict[str, Any]:
    if parents:
        fields = {"type": "AFTER", "after": [{"job": each} for each in parents]} | fields
    return MANUAL | fields


def pipelines(name: str | None = "etl", /, **jobs: Any) -> Sequence[Pipeline]:
    return read({"pipeline": name, "jobs": [{"jobId": each, **jobs[each]} for each in jobs]})


def applied(client: Client, declared: Sequence[Pipeline], *, adopt: bool = False) -> list[str]:
    found = make_plan(client, declared, adopt=adopt)
    made: list[JobChange] = []
    apply_plan(client, found, report=made.append)
    return [f"{each.action} {each.job_id}" for each in made]


def stored(client: Client) -> dict[str, dict[str, Any]]:
    """The living jobs by id: what decides what they do."""
    return {
        job_id: definition.document() | {"owner": each.name}
        for each in export(client).pipelines
        for job_id, definition in each.jobs.items()
    }
